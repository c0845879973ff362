package chat

import (
	"slices"
	"sort"
	"strings"

	"baton/internal/jinja"
)

// A Part is a stretch of a prompt. The texts of a prompt's parts in order are
// the prompt.
type Part struct {
	Text string
	// Trusted says that control tokens may be parsed in Text. An untrusted part
	// spells a control token that came from the request.
	Trusted bool
}

// Join returns the text of a prompt.
func Join(parts []Part) string {
	if len(parts) == 1 {
		return parts[0].Text
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// matcher finds the texts of control tokens.
type matcher struct {
	words []string  // sorted
	first [256]bool // the bytes that one starts with
}

func newMatcher(words []string) *matcher {
	m := &matcher{words: slices.Clone(words)}
	slices.Sort(m.words)
	m.words = slices.DeleteFunc(slices.Compact(m.words), func(w string) bool { return w == "" })
	for _, w := range m.words {
		m.first[w[0]] = true
	}
	return m
}

// longest returns the length of the longest word that s starts with and that
// ok accepts, or 0.
func (m *matcher) longest(s string, ok func(n int) bool) int {
	if s == "" || !m.first[s[0]] {
		return 0
	}
	// Narrow the range of words that share the first n bytes of s.
	lo, hi := 0, len(m.words)
	best := 0
	for n := 1; n <= len(s) && lo < hi; n++ {
		prefix := s[:n]
		lo += sort.Search(hi-lo, func(i int) bool { return m.words[lo+i] >= prefix })
		hi = lo + sort.Search(hi-lo, func(i int) bool { return !strings.HasPrefix(m.words[lo+i], prefix) })
		if lo < hi && len(m.words[lo]) == n && ok(n) {
			best = n
		}
	}
	return best
}

// tokens returns where s holds words that ok accepts, from the left, the
// longest first, none overlapping another.
func (m *matcher) tokens(s string, ok func(i, j int) bool) []jinja.Span {
	var out []jinja.Span
	for i := 0; i < len(s); {
		n := m.longest(s[i:], func(n int) bool { return ok(i, i+n) })
		if n > 0 {
			out = append(out, jinja.Span{Start: i, End: i + n})
		}
		i += max(n, 1)
	}
	return out
}

// split cuts a rendered prompt into parts: control tokens that the template
// wrote stay in trusted parts, those that hold a byte of the request become
// untrusted parts of their own.
func (m *matcher) split(t jinja.Text) []Part {
	s, marks := t.String(), t.Marks()
	if len(marks) == 0 || len(m.words) == 0 {
		return []Part{{s, true}}
	}
	marked := func(i, j int) bool {
		k := sort.Search(len(marks), func(k int) bool { return marks[k].End > i })
		return k < len(marks) && marks[k].Start < j
	}
	// The template's own tokens come first: a look-alike must not be able to
	// break one by overlapping it.
	own := m.tokens(s, func(i, j int) bool { return !marked(i, j) })
	var parts []Part
	from := 0 // of the pending trusted part
	flush := func(to int) {
		if from < to {
			parts = append(parts, Part{s[from:to], true})
		}
		from = to
	}
	border := -1 // where a part has to end, whatever follows
	for i, k := 0, 0; i < len(s); {
		if i == border {
			flush(i)
		}
		for k < len(own) && own[k].End <= i {
			k++
		}
		end := len(s) // of the stretch without an own token
		if k < len(own) {
			if own[k].Start == i {
				// A look-alike that begins in the token and ends after it must not
				// win over it.
				for p := i; p < own[k].End; p++ {
					if m.longest(s[p:], func(n int) bool { return p+n > own[k].End && marked(p, p+n) }) > 0 {
						flush(own[k].End)
						break
					}
				}
				i = own[k].End
				continue
			}
			end = own[k].Start
		}
		lookalike := func(n int) bool { return marked(i, i+n) }
		if n := m.longest(s[i:], func(n int) bool { return i+n <= end && lookalike(n) }); n > 0 {
			flush(i)
			parts = append(parts, Part{s[i : i+n], false})
			i += n
			from = i
			continue
		}
		if m.longest(s[i:], lookalike) > 0 {
			// It overlaps the template's token: a border is enough to keep it
			// from being read.
			border = end
		}
		i++
	}
	flush(len(s))
	return parts
}
