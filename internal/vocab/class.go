package vocab

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is a set of the Unicode classes that pre-tokenizers ask for. A byte that is not part
// of valid UTF-8 has none, like a symbol.
//
// The classes are those of the Unicode version of Go's unicode package (15.0 in Go 1.26).
// The reference tokenizers run Oniguruma (HF tokenizers) with Unicode 15 or 16, llama.cpp has
// its own tables; they differ only for letters and digits added to Unicode since, which no
// vocabulary of today has tokens for: they cut a text there in another place, no more.
type class uint8

const (
	letter  class = 1 << iota // \p{L}
	number                    // \p{N}
	space                     // \s: White_Space, which has U+0085 and lacks U+FEFF, unlike JavaScript's
	newline                   // [\r\n]
	punct                     // \p{P}
)

// classTable holds a class for every rune: a page of 256 for each value of the upper bits,
// pages of the same content once.
type classTable struct {
	page  [(unicode.MaxRune + 1) >> 8]uint8
	pages [][256]class
}

// classes is built at the first use (about a millisecond, 50 KB).
var classes = sync.OnceValue(func() *classTable {
	all := make([]class, unicode.MaxRune+1)
	for _, t := range []struct {
		table *unicode.RangeTable
		c     class
	}{{unicode.L, letter}, {unicode.N, number}, {unicode.White_Space, space}, {unicode.P, punct}} {
		for _, r := range t.table.R16 {
			for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
				all[c] |= t.c
			}
		}
		for _, r := range t.table.R32 {
			for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
				all[c] |= t.c
			}
		}
	}
	all['\r'] |= newline
	all['\n'] |= newline

	t := &classTable{}
	seen := map[[256]class]uint8{}
	for p := range t.page {
		content := [256]class(all[p<<8:])
		n, ok := seen[content]
		if !ok {
			n = uint8(len(t.pages)) // some 130 different pages
			seen[content] = n
			t.pages = append(t.pages, content)
		}
		t.page[p] = n
	}
	return t
})

// at returns the class and the length in bytes of the character at s[i:], 0 and 0 at the end.
func (t *classTable) at(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return t.pages[0][c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return t.pages[t.page[r>>8]][r&0xff], n
}

// run returns the end of the run at i of characters that have one of the classes in any.
func (t *classTable) run(s string, i int, any class) int {
	for {
		c, n := t.at(s, i)
		if c&any == 0 {
			return i
		}
		i += n
	}
}

// runOther returns the end of the run at i of characters that have none of the classes in not.
func (t *classTable) runOther(s string, i int, not class) int {
	for i < len(s) {
		c, n := t.at(s, i)
		if c&not != 0 {
			break
		}
		i += n
	}
	return i
}
