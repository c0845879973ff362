package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A Span is a range of bytes, Start inclusive, End exclusive.
type Span struct{ Start, End int }

// A Text is a string that remembers which of its bytes came from outside the
// template. The zero Text is the empty string.
type Text struct {
	s     string
	marks []Span // sorted, disjoint, not empty, not adjacent
}

// Untrusted returns s as a [Text] with every byte marked. Templates treat it
// as any other string.
func Untrusted(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{s, []Span{{0, len(s)}}}
}

// String returns the string without its marks.
func (t Text) String() string { return t.s }

// Marks returns the byte ranges that came from outside, sorted and disjoint.
func (t Text) Marks() []Span { return slices.Clone(t.marks) }

// value returns t as a template value: a plain string when nothing is marked.
func (t Text) value() any {
	if len(t.marks) == 0 {
		return t.s
	}
	return t
}

// slice returns the bytes [i, j) of t.
func (t Text) slice(i, j int) Text {
	out := Text{s: t.s[i:j]}
	if len(t.marks) == 0 {
		return out
	}
	first, _ := slices.BinarySearchFunc(t.marks, i, func(m Span, i int) int {
		if m.End <= i {
			return -1
		}
		return 1
	})
	for _, m := range t.marks[first:] {
		if m.Start >= j {
			break
		}
		out.marks = append(out.marks, Span{max(m.Start, i) - i, min(m.End, j) - i})
	}
	return out
}

// with returns s carrying t's marks: byte for byte when s is t changed in
// place, and wholly marked when the two differ in length.
func (t Text) with(s string) Text {
	switch {
	case len(t.marks) == 0:
		return Text{s: s}
	case len(s) == len(t.s) && isASCII(t.s):
		return Text{s, t.marks}
	}
	return Untrusted(s)
}

// A textBuilder collects text with its marks.
type textBuilder struct {
	b     strings.Builder
	marks []Span
}

func (b *textBuilder) len() int { return b.b.Len() }

func (b *textBuilder) writeString(s string) { b.b.WriteString(s) }

func (b *textBuilder) write(t Text) {
	base := b.b.Len()
	b.b.WriteString(t.s)
	for _, m := range t.marks {
		b.mark(base+m.Start, base+m.End)
	}
}

// mark marks the bytes [i, j), which must not lie before an earlier mark.
func (b *textBuilder) mark(i, j int) {
	if i >= j {
		return
	}
	if n := len(b.marks); n > 0 && b.marks[n-1].End >= i {
		b.marks[n-1].End = max(b.marks[n-1].End, j)
		return
	}
	b.marks = append(b.marks, Span{i, j})
}

func (b *textBuilder) text() Text { return Text{b.b.String(), b.marks} }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// runeLen returns the length of s in code points, which is Python's len.
func runeLen(s string) int {
	if isASCII(s) {
		return len(s)
	}
	return utf8.RuneCountInString(s)
}

// byteOffset returns the byte offset of code point i of s; i may equal the
// length.
func byteOffset(s string, i int) int {
	if isASCII(s) {
		return i
	}
	off := 0
	for ; i > 0; i-- {
		_, n := utf8.DecodeRuneInString(s[off:])
		off += n
	}
	return off
}

// UntrustedValue returns a deep copy of v in which every string, dict keys
// included, is [Untrusted]. Nesting beyond 500 levels, which [FromJSON] does not
// let through, is returned as it is.
func UntrustedValue(v any) any { return untrustedAt(v, 0) }

func untrustedAt(v any, depth int) any {
	if depth > maxNesting {
		return v
	}
	switch v := v.(type) {
	case string:
		return Untrusted(v).value()
	case Text:
		return Untrusted(v.s).value()
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = untrustedAt(e, depth+1)
		}
		return out
	case Tuple:
		out := make(Tuple, len(v))
		for i, e := range v {
			out[i] = untrustedAt(e, depth+1)
		}
		return out
	case *Dict:
		if v == nil {
			return v
		}
		out := &Dict{keys: make([]any, len(v.keys)), vals: make([]any, len(v.vals))}
		for i, k := range v.keys {
			out.keys[i] = untrustedAt(k, depth+1)
			out.vals[i] = untrustedAt(v.vals[i], depth+1)
		}
		out.reindex()
		return out
	}
	return v
}
