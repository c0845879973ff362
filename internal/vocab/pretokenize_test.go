package vocab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"pgregory.net/rapid"
)

// Contractions without regard to case, with the long s that a Unicode-aware engine folds.
const fold = `'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]`

const (
	gpt2Pattern   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	cl100kPattern = fold + `|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// patterns are the regular expressions that the splitters implement by hand, applied one
// after the other to the pieces of the one before.
var patterns = map[string][]string{
	"qwen2":     {strings.Replace(cl100kPattern, "DIGITS", `\p{N}`, 1)},
	"llama-bpe": {strings.Replace(cl100kPattern, "DIGITS", `\p{N}{1,3}`, 1)},
	"gpt-2":     {gpt2Pattern},
	"smollm":    {`\p{N}`, gpt2Pattern},
	"default":   {`[\p{P}\$\+<=>\^~\|]+`, gpt2Pattern, `\p{N}+`, `[0-9][0-9][0-9]`},
	"deepseek-llm": {
		`[\r\n]`,
		`\s?[` + class2(deepSeekLetters) + `]+`,
		"\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
		`\s+$`,
		"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
		`\p{N}+`,
	},
}

// class2 spells spans as the inside of a character class.
func class2(set []span) string {
	var b strings.Builder
	for _, s := range set {
		b.WriteString(string(s.lo) + "-" + string(s.hi))
	}
	return b.String()
}

// splitRegexp cuts s with each pattern in turn: matches and gaps become pieces.
func splitRegexp(t testing.TB, res []*regexp2.Regexp, s string) []string {
	pieces := []string{s}
	for _, re := range res {
		var next []string
		for _, p := range pieces {
			runes := []rune(p)
			from := 0
			m, err := re.FindRunesMatch(runes)
			for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
				if m.Index > from {
					next = append(next, string(runes[from:m.Index]))
				}
				next = append(next, m.String())
				from = m.Index + m.Length
			}
			if err != nil {
				t.Fatal(err)
			}
			if from < len(runes) {
				next = append(next, string(runes[from:]))
			}
		}
		pieces = next
	}
	return pieces
}

// text draws strings in which the borders of the patterns meet.
func text() *rapid.Generator[string] {
	part := rapid.OneOf(
		rapid.SampledFrom([]string{
			" ", "  ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u3000", "\u0085", "\u2028", "'", "'s", "'S", "'ll", "'LL", "'Re", "'ſ", "’",
			"a", "B", "é", "ß", "ſ", "Ж", "ก", "ا", "日本", "한", "ǅ", "ª", "1", "23", "456", "٣", "Ⅷ", "½", "²", "!", "...", "-", "_", "$", "+", "<|", "|>",
			"\u0301", "\u200d", "\ufe0f", "😀", "\x00", "\x7f", "«", "、", "。", "，", "‘", "\ufffd", "\ufeff", "ｱ", "１", "Ａ", "𝟘", "𐐀", "𠀀", "~", "`", "^", "=",
		}),
		rapid.Map(rapid.Rune(), func(r rune) string { return string(r) }),
	)
	return rapid.Map(rapid.SliceOfN(part, 0, 12), func(p []string) string { return strings.Join(p, "") })
}

func TestSplitters(t *testing.T) {
	for _, c := range []struct {
		pre, text string
		want      []string
	}{
		{"qwen2", "he'S it'ſo 'LLx", []string{"he", "'S", " it", "'ſ", "o", " '", "LLx"}},
		{"qwen2", "a12 b", []string{"a", "1", "2", " b"}},
		{"llama-bpe", "a1234 b", []string{"a", "123", "4", " b"}},
		{"llama-bpe", "x  y\n\n  z", []string{"x", " ", " y", "\n\n", " ", " z"}},
		{"llama-bpe", "!\r\n\r\n  \n x", []string{"!\r\n\r\n", "  \n", " x"}},
		{"llama-bpe", "\u00a0x \u00a0", []string{"\u00a0x", " \u00a0"}},
		{"gpt-2", "it'S don't  1234 x\n\ty", []string{"it", "'", "S", " don", "'t", " ", " 1234", " x", "\n", "\t", "y"}},
		{"smollm", "a  12 b", []string{"a", "  ", "1", "2", " b"}},
		{"default", "a+b 12345!", []string{"a", "+", "b", " ", "123", "45", "!"}},
		// :-~ has the ASCII letters in it, so that the pattern of punctuation cuts before é.
		{"deepseek-llm", "café 12\n\n日本", []string{"caf", "é", " ", "12", "\n", "\n", "日本"}},
	} {
		var got []string
		preTokenizers[c.pre].split(c.text, func(p string) { got = append(got, p) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q\n got %q\nwant %q", c.pre, c.text, got, c.want)
		}
	}
}

// Text too long for 32-bit positions is encoded in runs: no byte is lost, no character cut,
// and only the first run begins a text.
func TestRuns(t *testing.T) {
	v, err := New(runMetadata{})
	if err != nil {
		t.Fatal(err)
	}
	const text = "aé aé\xff\x80\x80\x80\x80\x80aa"
	for limit := utf8.UTFMax; limit < len(text)+2; limit++ {
		ids := v.encodePlain(nil, text, limit)
		if got := string(v.Decode(ids, false)); got != text {
			t.Errorf("runs of %d: %q came back as %q", limit, text, got)
		}
		for _, id := range ids {
			if p := v.piece(id); p == "\xc3" || p == "\xa9" {
				t.Errorf("runs of %d: é was cut", limit)
			}
		}
	}
}

// runMetadata is a SentencePiece vocabulary of the 256 bytes, a space, a and é.
type runMetadata struct{}

func (runMetadata) NeedString(string) (string, error)           { return "llama", nil }
func (runMetadata) StringOr(_, def string) (string, error)      { return def, nil }
func (runMetadata) UintOr(_ string, def uint64) (uint64, error) { return def, nil }
func (runMetadata) BoolOr(key string, def bool) (bool, error)   { return def, nil }
func (runMetadata) Floats(string) ([]float32, bool, error)      { return make([]float32, 259), true, nil }
func (runMetadata) Ints(string) (types []int32, ok bool, err error) {
	return append(slices.Repeat([]int32{6}, 256), 1, 1, 1), true, nil
}
func (runMetadata) Strings(string) (tokens []string, ok bool, err error) {
	for b := range 256 {
		tokens = append(tokens, fmt.Sprintf("<0x%02X>", b))
	}
	return append(tokens, spaceMark, "a", "é"), true, nil
}

func TestSplittersAgainstRegexp(t *testing.T) {
	for name, list := range patterns {
		t.Run(name, func(t *testing.T) {
			var res []*regexp2.Regexp
			for _, p := range list {
				res = append(res, regexp2.MustCompile(p, regexp2.None))
			}
			split := preTokenizers[name].split
			rapid.Check(t, func(rt *rapid.T) {
				s := text().Draw(rt, "text")
				var got []string
				split(s, func(p string) { got = append(got, p) })
				if want := splitRegexp(t, res, s); s != "" && !slices.Equal(got, want) {
					rt.Fatalf("%q\n got %q\nwant %q", s, got, want)
				}
			})
		})
	}
}

// Whatever the bytes, the pieces together are the text and none is empty.
func TestSplittersKeepBytes(t *testing.T) {
	for name, p := range preTokenizers {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				b := rapid.SliceOf(rapid.Byte()).Draw(rt, "bytes")
				s := text().Draw(rt, "text")
				for _, in := range []string{string(b), s + string(b), string(b) + s} {
					var joined strings.Builder
					p.split(in, func(piece string) {
						if piece == "" {
							rt.Fatalf("%q: empty piece", in)
						}
						joined.WriteString(piece)
					})
					if joined.String() != in {
						rt.Fatalf("%q became %q", in, joined.String())
					}
				}
			})
		})
	}
}
