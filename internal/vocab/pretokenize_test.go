package vocab

import (
	"slices"
	"strings"
	"testing"

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
