package vocab

import (
	"strings"
	"unicode/utf8"
)

// Piece is what id adds to a text, in bytes: possibly a part of a character. Without special
// a control or unknown token adds nothing. An id out of range adds nothing.
func (v *Vocab) Piece(id int32, special bool) []byte { return []byte(v.visible(id, special)) }

// visible is Piece without the copy.
func (v *Vocab) visible(id int32, special bool) string {
	if !v.Valid(id) || !special && v.attrs[id]&(attrControl|attrUnknown) != 0 {
		return ""
	}
	return v.piece(id)
}

// Decode returns the text of ids, as bytes. It is the text of a whole input: the space that
// a SentencePiece tokenizer puts before a text is taken off again, which for a continuation
// of an earlier text would be wrong; see Detokenizer.
func (v *Vocab) Decode(ids []int32, special bool) []byte {
	var out []byte
	start := v.addSpace
	for _, id := range ids {
		p := v.visible(id, special)
		if start && p != "" {
			p = strings.TrimPrefix(p, " ")
			start = false
		}
		out = append(out, p...)
	}
	return out
}

// Detokenizer turns a stream of ids into text that never ends within a character. It is for
// what a model generates, a continuation: a leading space stays.
type Detokenizer struct {
	v       *Vocab
	special bool
	held    []byte // an incomplete character, at most 3 bytes between calls
}

// NewDetokenizer returns a detokenizer for v; special as for Piece.
func NewDetokenizer(v *Vocab, special bool) *Detokenizer {
	return &Detokenizer{v: v, special: special}
}

// Push adds a token and returns the characters that are complete by now. Bytes that can be
// part of no character become U+FFFD, one for each maximal start of a character, as the
// Unicode Standard (3.9, "U+FFFD Substitution of Maximal Subparts") and the WHATWG decoder
// have it.
func (d *Detokenizer) Push(id int32) string {
	p := d.v.visible(id, d.special)
	if p == "" || len(d.held) == 0 && utf8.ValidString(p) {
		return p
	}
	d.held = append(d.held, p...)
	text, rest := takeUTF8(d.held)
	n := copy(d.held, rest)
	d.held = d.held[:n]
	return text
}

// Flush returns what is held back, as U+FFFD: the stream has ended within a character. The
// detokenizer is then as new.
func (d *Detokenizer) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = d.held[:0]
	return "\ufffd"
}

// takeUTF8 returns the complete characters of b, with U+FFFD for what cannot become one, and
// the start of a character at the end.
func takeUTF8(b []byte) (text string, rest []byte) {
	var out strings.Builder
	for len(b) > 0 {
		n, complete := charLen(b)
		switch {
		case complete:
			out.Write(b[:n])
		case n == len(b):
			return out.String(), b
		default:
			out.WriteString("\ufffd")
			n = max(n, 1)
		}
		b = b[n:]
	}
	return out.String(), nil
}

// charLen returns how many bytes at the start of b are a character (complete) or may still
// become one; 0 for a byte that begins no character. The ranges are table 3-7 of the Unicode
// Standard.
func charLen(b []byte) (n int, complete bool) {
	want := 0
	lo, hi := byte(0x80), byte(0xbf) // the second byte
	switch c := b[0]; {
	case c < 0x80:
		return 1, true
	case c < 0xc2:
		return 0, false
	case c < 0xe0:
		want = 2
	case c < 0xf0:
		want = 3
		switch c {
		case 0xe0:
			lo = 0xa0
		case 0xed:
			hi = 0x9f
		}
	case c < 0xf5:
		want = 4
		switch c {
		case 0xf0:
			lo = 0x90
		case 0xf4:
			hi = 0x8f
		}
	default:
		return 0, false
	}
	for n = 1; n < want; n++ {
		if n == len(b) || b[n] < lo || b[n] > hi {
			return n, false
		}
		lo, hi = 0x80, 0xbf
	}
	return want, true
}
