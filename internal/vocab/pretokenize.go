package vocab

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// preTokenizer is what tokenizer.ggml.pre stands for.
type preTokenizer struct {
	// split calls yield with the pieces of s in order; together they are s.
	split        func(s string, yield func(piece string))
	ignoreMerges bool // a piece that is a token needs no merges
	addBOS       bool // where the file does not say
	nfc          bool // the tokenizer normalizes to form C first
}

// preTokenizers are those that Baton knows. The patterns are facts of the models'
// tokenizer.json; each function below cites the one that it implements by hand.
var preTokenizers = map[string]preTokenizer{
	"qwen2":            {split: splitQwen2, nfc: true},
	"deepseek-r1-qwen": {split: splitQwen2},
	"llama-bpe":        {split: splitLlama3, ignoreMerges: true, addBOS: true},
	"llama3":           {split: splitLlama3, ignoreMerges: true, addBOS: true},
	"llama-v3":         {split: splitLlama3, ignoreMerges: true, addBOS: true},
	"gpt-2":            {split: splitGPT2},
	"smollm":           {split: splitSmolLM},
	"deepseek-llm":     {split: splitDeepSeekLLM},
	"default":          {split: splitDefault},
}

func preNames() []string {
	var names []string
	for n := range preTokenizers {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// splitQwen2 cuts as Qwen 2 to 3 do: the cl100k pattern with digits one by one.
func splitQwen2(s string, yield func(string)) { splitCL100K(s, 1, yield) }

// splitLlama3 cuts as Llama 3 does: the cl100k pattern, digits by up to three.
func splitLlama3(s string, yield func(string)) { splitCL100K(s, 3, yield) }

// splitCL100K implements
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|
//	 ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// with the first alternative that matches, as a backtracking engine takes it.
func splitCL100K(s string, digits int, yield func(string)) {
	t := classes()
	for i := 0; i < len(s); {
		c, n := t.at(s, i)
		end := i
		if s[i] == '\'' {
			end += contractionFold(s[i:])
		}
		switch {
		case end > i:
		case c&letter != 0:
			end = t.run(s, i+n, letter)
		case c&number != 0:
			end = i + n
			for k := 1; k < digits; k++ {
				c, n := t.at(s, end)
				if c&number == 0 {
					break
				}
				end += n
			}
		default:
			next, nn := t.at(s, i+n)
			switch {
			case c&newline == 0 && next&letter != 0:
				end = t.run(s, i+n+nn, letter)
			case c&space == 0:
				end = t.run(s, t.runOther(s, i+n, space|letter|number), newline)
			case s[i] == ' ' && nn > 0 && next&(space|letter|number) == 0:
				end = t.run(s, t.runOther(s, i+n+nn, space|letter|number), newline)
			default:
				end = t.run(s, i+n, space)
				if nl := strings.LastIndexAny(s[i:end], "\r\n"); nl >= 0 {
					end = i + nl + 1
				} else {
					end = spaceEnd(s, i, end)
				}
			}
		}
		yield(s[i:end])
		i = end
	}
}

// spaceEnd is where \s+(?!\S)|\s+ ends on the run of white space s[i:end]: a run before
// something else leaves its last character to what follows, if it has more than one.
func spaceEnd(s string, i, end int) int {
	if end == len(s) {
		return end
	}
	_, n := utf8.DecodeLastRuneInString(s[i:end])
	if end-n > i {
		return end - n
	}
	return end
}

// splitGPT2 implements
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func splitGPT2(s string, yield func(string)) {
	t := classes()
	for i := 0; i < len(s); {
		end := i
		if s[i] == '\'' {
			end += contraction(s[i:])
		}
		if end == i {
			c, n := t.at(s, i)
			from := i + n
			if s[i] == ' ' {
				if next, nn := t.at(s, i+1); nn > 0 && next&space == 0 {
					c, from = next, i+1+nn
				}
			}
			switch {
			case c&letter != 0:
				end = t.run(s, from, letter)
			case c&number != 0:
				end = t.run(s, from, number)
			case c&space == 0:
				end = t.runOther(s, from, space|letter|number)
			default:
				end = spaceEnd(s, i, t.run(s, from, space))
			}
		}
		yield(s[i:end])
		i = end
	}
}

// contraction returns the length of 's|'t|'re|'ve|'m|'ll|'d at the start of s, which begins
// with an apostrophe, or 0.
func contraction(s string) int {
	if len(s) > 1 {
		switch s[1] {
		case 's', 't', 'm', 'd':
			return 2
		}
	}
	if len(s) > 2 {
		switch s[1:3] {
		case "re", "ve", "ll":
			return 3
		}
	}
	return 0
}

// contractionFold is contraction without regard to case. Of the letters in it only s has a
// case variant beyond ASCII, the long s (U+017F).
func contractionFold(s string) int {
	if strings.HasPrefix(s[1:], "ſ") {
		return 1 + len("ſ")
	}
	var lower [3]byte
	n := copy(lower[:], s)
	for i, c := range lower[:n] {
		if c >= 'A' && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return contraction(string(lower[:n]))
}

// splitSmolLM isolates each \p{N}, then cuts what is between as GPT-2 does.
func splitSmolLM(s string, yield func(string)) {
	t := classes()
	isolate(s, func(i int) int {
		c, n := t.at(s, i)
		if c&number == 0 {
			return i
		}
		return i + n
	}, yield, func(gap string) { splitGPT2(gap, yield) })
}

// splitDefault implements llama.cpp's pattern list for files that name no pre-tokenizer,
// each applied to the pieces of the one before:
//
//	[\p{P}\$\+<=>\^~\|]+
//	the pattern of GPT-2
//	\p{N}+
//	[0-9][0-9][0-9]
func splitDefault(s string, yield func(string)) {
	t := classes()
	thousands := func(s string) {
		isolate(s, func(i int) int {
			for k := range 3 {
				if i+k >= len(s) || s[i+k] < '0' || s[i+k] > '9' {
					return i
				}
			}
			return i + 3
		}, yield, yield)
	}
	numbers := func(s string) {
		isolate(s, func(i int) int { return t.run(s, i, number) }, thousands, thousands)
	}
	words := func(s string) { splitGPT2(s, numbers) }
	isolate(s, func(i int) int {
		for i < len(s) {
			c, n := t.at(s, i)
			if c&punct == 0 && strings.IndexByte("$+<=>^~|", s[i]) < 0 {
				break
			}
			i += n
		}
		return i
	}, words, words)
}

// isolate cuts s into the matches of a pattern and the gaps between them. match returns the
// end of the match that begins at byte i, or i.
func isolate(s string, match func(i int) int, yield, gap func(string)) {
	from := 0
	for i := 0; i < len(s); {
		end := match(i)
		if end == i {
			_, n := utf8.DecodeRuneInString(s[i:])
			i += n
			continue
		}
		if from < i {
			gap(s[from:i])
		}
		yield(s[i:end])
		i, from = end, end
	}
	if from < len(s) {
		gap(s[from:])
	}
}
