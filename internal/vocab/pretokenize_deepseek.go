package vocab

import "unicode/utf8"

// splitDeepSeekLLM implements the pattern list of DeepSeek LLM, each pattern applied to the
// pieces of the one before:
//
//	[\r\n]
//	\s?[letters]+           of the scripts that have case
//	\s?[!-/:-~！-／：-～‘-‟　-。]+
//	\s+$
//	[一-龥ࠀ-一가-퟿]+
//	\p{N}+
func splitDeepSeekLLM(s string, yield func(string)) {
	t := classes()
	numbers := func(s string) {
		isolate(s, func(i int) int { return t.run(s, i, number) }, yield, yield)
	}
	east := func(s string) {
		isolate(s, func(i int) int { return runIn(s, i, deepSeekEast) }, numbers, numbers)
	}
	trailing := func(s string) {
		end := len(s)
		for end > 0 {
			_, n := utf8.DecodeLastRuneInString(s[:end])
			if c, _ := t.at(s, end-n); c&space == 0 {
				break
			}
			end -= n
		}
		for _, part := range []string{s[:end], s[end:]} {
			if part != "" {
				east(part)
			}
		}
	}
	spaced := func(in []span, next func(string)) func(string) {
		return func(s string) {
			isolate(s, func(i int) int {
				from := i
				if c, n := t.at(s, i); c&space != 0 {
					from += n
				}
				if end := runIn(s, from, in); end > from {
					return end
				}
				return runIn(s, i, in) // the white space may itself be in the set
			}, next, next)
		}
	}
	words := spaced(deepSeekLetters, spaced(deepSeekPunct, trailing))
	isolate(s, func(i int) int {
		if s[i] == '\r' || s[i] == '\n' {
			return i + 1
		}
		return i
	}, words, words)
}

// span is a range of runes, both ends included.
type span struct{ lo, hi rune }

// runIn returns the end of the run at i of characters in set, which is ascending.
func runIn(s string, i int, set []span) int {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || !inSpans(r, set) {
			break
		}
		i += n
	}
	return i
}

func inSpans(r rune, set []span) bool {
	lo, hi := 0, len(set)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		switch {
		case r < set[m].lo:
			hi = m
		case r > set[m].hi:
			lo = m + 1
		default:
			return true
		}
	}
	return false
}

// The character sets of the patterns, as code points.
var (
	deepSeekLetters = []span{
		{0x41, 0x212d}, {0x212f, 0x2134}, {0x2139, 0x2139}, {0x213c, 0x213f}, {0x2145, 0x2149}, {0x214e, 0x214e},
		{0x2183, 0x2184}, {0x2c00, 0x2c7b}, {0x2c7e, 0x2ce4}, {0x2ceb, 0x2cee}, {0x2cf2, 0x2cf3}, {0xa640, 0xa66d},
		{0xa680, 0xa69b}, {0xa722, 0xa76f}, {0xa771, 0xa787}, {0xa78b, 0xa78e}, {0xab70, 0xabbf}, {0xfb00, 0xfb06},
		{0xfb13, 0xfb17}, {0xff21, 0xff3a}, {0xff41, 0xff5a}, {0x10400, 0x1044f}, {0x104b0, 0x104d3},
		{0x104d8, 0x104fb}, {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943},
	}
	deepSeekPunct = []span{
		{0x21, 0x2f}, {0x3a, 0x7e}, {0x2018, 0x201f}, {0x3000, 0x3002}, {0xff01, 0xff0f}, {0xff1a, 0xff5e},
	}
	deepSeekEast = []span{{0x800, 0x9fa5}, {0xac00, 0xd7ff}}
)
