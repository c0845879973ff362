package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// simpleEscapes are the escapes of one character.
var simpleEscapes = map[byte]string{
	'\n': "", '\\': "\\", '\'': "'", '"': "\"",
	'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape resolves the escapes of a Python string literal; like Python it
// leaves a backslash before anything else as it stands.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1]
		if out, ok := simpleEscapes[c]; ok {
			b.WriteString(out)
			i += 2
			continue
		}
		switch {
		case c == 'x' || c == 'u' || c == 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			r, ok := hexRune(s, i+2, n)
			if !ok {
				return "", fmt.Errorf("\\%c needs %d hexadecimal digits of a code point", c, n)
			}
			i += 2 + n
			if hi := r; hi >= 0xd800 && hi < 0xdc00 && strings.HasPrefix(s[i:], `\u`) {
				// A surrogate pair, which Python keeps as two halves, can only
				// have been meant as one character.
				if lo, ok := hexRune(s, i+2, 4); ok && lo >= 0xdc00 && lo < 0xe000 {
					r = 0x10000 + (hi-0xd800)<<10 + (lo - 0xdc00)
					i += 6
				}
			}
			b.WriteRune(r)
		case c >= '0' && c <= '7':
			end := i + 2
			for end < len(s) && end < i+4 && s[end] >= '0' && s[end] <= '7' {
				end++
			}
			r, _ := strconv.ParseUint(s[i+1:end], 8, 32)
			b.WriteRune(rune(r))
			i = end
		case c == 'N':
			return "", fmt.Errorf("\\N{...} in a string is not supported")
		default:
			b.WriteByte('\\')
			i++
		}
	}
	return b.String(), nil
}

func hexRune(s string, i, n int) (rune, bool) {
	if i+n > len(s) {
		return 0, false
	}
	for j := i; j < i+n; j++ {
		if !isHexDigit(s[j]) {
			return 0, false
		}
	}
	v, err := strconv.ParseUint(s[i:i+n], 16, 32)
	return rune(v), err == nil && v <= utf8.MaxRune
}
