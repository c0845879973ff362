package vocab

import (
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

func TestNFC(t *testing.T) {
	rep := strings.Repeat
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"e\u0301", "é"},
		{"\u212b\u2126", "Åω"[:len("Å")] + "Ω"},
		{"\u1112\u1161\u11ab", "한"},
		{"a\u0323\u0302", "ậ"},
		{"a\u0302\u0323", "ậ"},
		{"\u0958", "\u0915\u093c"}, // excluded from composition
		{"\xff e\u0301\xc3", "\xff é\xc3"},
		// More than 30 marks: no U+034F among them. 0323 has class 220, 0301 has 230.
		{"a" + rep("\u0301", 40), "á" + rep("\u0301", 39)},
		{"a" + rep("\u0301\u0323", 20) + "b", "ạ" + rep("\u0323", 19) + rep("\u0301", 20) + "b"},
		{"\xff" + rep("\u0301", 35) + "\xff", "\xff" + rep("\u0301", 35) + "\xff"},
		{"q\u034f" + rep("\u0308", 33) + "u\u0308", "q\u034f" + rep("\u0308", 33) + "ü"},
	} {
		if got := nfc(c.in); got != c.want {
			t.Errorf("%+q became %+q, want %+q", c.in, got, c.want)
		}
	}
}

// The step-by-step form agrees with x/text wherever that is form C proper.
func TestNFCLong(t *testing.T) {
	part := rapid.OneOf(
		rapid.SampledFrom([]string{
			"a", "e", "A", "S", "ω", "ᾳ", "か", "は", "क", "ש", "가", "각", "\u1100", "\u1161", "\u11a8", "\u212b", "\u0344", "\u1fbe", "\u0958", "\ufb1d", "\xff", "\xe2\x82",
			"\u0301", "\u0308", "\u0323", "\u0302", "\u0327", "\u0345", "\u05b4", "\u0651", "\u093c", "\u3099", "\u0338", "\u034f", "\u0f71", "\u0f72", "\u1d165",
		}),
		rapid.Map(rapid.Rune(), func(r rune) string { return string(r) }),
	)
	rapid.Check(t, func(rt *rapid.T) {
		s := strings.Join(rapid.SliceOfN(part, 0, 20).Draw(rt, "text"), "")
		if got, want := nfcLong(s), norm.NFC.String(s); got != want {
			rt.Fatalf("%+q became %+q, want %+q", s, got, want)
		}
	})
}
