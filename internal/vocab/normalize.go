package vocab

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// joiner is U+034F COMBINING GRAPHEME JOINER. x/text puts one into a run of more than 30
// combining marks (the Stream-Safe Text Format of UAX #15), which form C proper does not.
const joiner = "\u034f"

// nfc returns s in Unicode normalization form C. Bytes that are not valid UTF-8 stay.
func nfc(s string) string {
	if norm.NFC.IsNormalString(s) {
		return s
	}
	t := norm.NFC.String(s)
	if strings.Count(t, joiner) > strings.Count(s, joiner) {
		return nfcLong(s)
	}
	return t
}

// mark is a character with its canonical combining class.
type mark struct {
	text string
	ccc  uint8
}

// nfcLong is nfc for texts with runs of combining marks of any length: the three steps of
// UAX #15 (decompose, order, compose) one by one, with x/text only for single characters
// and pairs.
func nfcLong(s string) string {
	var chars []mark
	for i := 0; i < len(s); {
		_, n := utf8.DecodeRuneInString(s[i:])
		for d := norm.NFD.String(s[i : i+n]); d != ""; {
			_, m := utf8.DecodeRuneInString(d)
			chars = append(chars, mark{d[:m], norm.NFD.PropertiesString(d[:m]).CCC()})
			d = d[m:]
		}
		i += n
	}
	for i := 0; i < len(chars); i++ {
		j := i
		for j < len(chars) && chars[j].ccc != 0 {
			j++
		}
		slices.SortStableFunc(chars[i:j], func(a, b mark) int { return int(a.ccc) - int(b.ccc) })
		i = j
	}

	out := chars[:0]
	starter := -1 // index in out of the last character of class 0
	for _, c := range chars {
		if starter >= 0 {
			last := len(out) - 1
			// Nothing between the two may block: no character of class 0, none of the
			// same or a higher class.
			if last == starter || out[last].ccc != 0 && out[last].ccc < c.ccc {
				pair := norm.NFC.String(out[starter].text + c.text)
				if _, n := utf8.DecodeRuneInString(pair); n == len(pair) {
					out[starter].text = pair
					continue
				}
			}
		}
		if c.ccc == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	var b strings.Builder
	for _, c := range out {
		b.WriteString(c.text)
	}
	return b.String()
}
