package vocab

import "unicode/utf8"

// Byte-level BPE spells each byte as one printable character, so that a vocabulary is text
// without spaces and control characters: the printable bytes of Latin-1 stand for
// themselves, the other 68 are U+0100 and up, in order (GPT-2, encoder.py).
var (
	byteChar [256]rune
	charByte [256 + 68]int16 // -1: no byte
)

func init() {
	for i := range charByte {
		charByte[i] = -1
	}
	other := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = other
			other++
		}
		byteChar[b] = r
		charByte[r] = int16(b)
	}
}

// appendBytes appends the bytes that the entry text stands for. A character outside of the
// spelling stands for its own UTF-8 bytes.
func appendBytes(dst []byte, text string) []byte {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r < rune(len(charByte)) && charByte[r] >= 0 {
			dst = append(dst, byte(charByte[r]))
		} else {
			dst = append(dst, text[i:i+n]...)
		}
		i += n
	}
	return dst
}
