package vocab

import (
	"fmt"
	"math"
)

// spell fills the pieces: what every token stands for in a text. decode appends the bytes
// of a normal token's entry.
func (v *Vocab) spell(decode func(dst []byte, text string) []byte) error {
	total := 0
	for _, t := range v.texts {
		total += len(t)
	}
	pieces := make([]byte, 0, total)
	v.offsets = make([]uint32, len(v.texts)+1)
	for i, t := range v.texts {
		switch a := v.attrs[i]; {
		case a&(attrControl|attrUnknown|attrUserDefined) != 0:
			pieces = append(pieces, t...)
		case a == attrNormal:
			pieces = decode(pieces, t)
		case a == attrByte:
			b, ok := parseByteToken(t)
			if !ok {
				return fmt.Errorf("vocab: token %d (%q) has type byte: expected <0x00> to <0xFF>", i, t)
			}
			pieces = append(pieces, b)
		}
		if len(pieces) > math.MaxUint32 {
			return fmt.Errorf("vocab: the tokens have more than 4 GiB of text")
		}
		v.offsets[i+1] = uint32(len(pieces))
	}
	v.pieces = string(pieces)
	return nil
}

// piece is what the valid token id stands for.
func (v *Vocab) piece(id int32) string {
	return v.pieces[v.offsets[id]:v.offsets[id+1]]
}

// parseByteToken reads the <0xXX> of a SentencePiece byte token.
func parseByteToken(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	var b byte
	for _, c := range []byte(s[3:5]) {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return 0, false
		}
		b = b<<4 | c
	}
	return b, true
}

// What is known of a token's text as input: most words of a text are tokens, and remembering
// that the merges make just that token saves doing them again.
const (
	wholeUnknown = 0
	wholeYes     = 1
	wholeNo      = 2
)

func (v *Vocab) isWhole(id int32) uint32 {
	return v.whole[id>>4].Load() >> (uint(id) & 15 * 2) & 3
}

func (v *Vocab) setWhole(id int32, yes bool) {
	s := uint32(wholeNo)
	if yes {
		s = wholeYes
	}
	v.whole[id>>4].Or(s << (uint(id) & 15 * 2))
}
