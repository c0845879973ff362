package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// word reads a number, a name or a string, if there is one.
func (l *lexer) word() (bool, error) {
	rest := l.text[l.pos:]
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case r >= '0' && r <= '9':
		return true, l.number(rest)
	case r == '_' || unicode.IsLetter(r):
		n := strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && !unicode.In(r, unicode.L, unicode.N, unicode.Mn, unicode.Mc)
		})
		if n < 0 {
			n = len(rest)
		}
		l.emit(token{kind: tokName, pos: pos(l.pos), text: rest[:n]})
		l.pos += n
		return true, nil
	case r == '"' || r == '\'':
		return true, l.str(rest, rest[0])
	}
	return false, nil
}

// digits returns the length of the run of digits and single underscores
// between them that s starts with.
func digits(s string, is func(byte) bool) int {
	n := 0
	for i := range len(s) {
		switch {
		case is(s[i]):
			n = i + 1
		case s[i] == '_' && n == i && i > 0:
		default:
			return n
		}
	}
	return n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHexDigit(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// number reads an integer or a float.
func (l *lexer) number(s string) error {
	whole := digits(s, isDigit)
	n := whole
	afterDot := l.pos > 0 && l.text[l.pos-1] == '.' // x.0 is an item, never 0.5
	float := false
	if !afterDot {
		if n < len(s) && s[n] == '.' {
			if d := digits(s[n+1:], isDigit); d > 0 {
				n += 1 + d
				float = true
			}
		}
		if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
			e := n + 1
			if e < len(s) && (s[e] == '+' || s[e] == '-') {
				e++
			}
			if d := digits(s[e:], isDigit); d > 0 {
				n = e + d
				float = true
			}
		}
	}
	if float {
		f, err := strconv.ParseFloat(strings.ReplaceAll(s[:n], "_", ""), 64)
		if err != nil && !math.IsInf(f, 0) { // as in Python, 1e400 is infinite
			return l.errorf(l.pos, "the number %s cannot be read", s[:n])
		}
		l.emit(token{kind: tokFloat, pos: pos(l.pos), num: f})
		l.pos += n
		return nil
	}
	base := 10
	n = whole
	if s[0] == '0' {
		n = digits(s, func(c byte) bool { return c == '0' })
		if len(s) > 2 {
			is := map[byte]func(byte) bool{
				'x': isHexDigit,
				'o': func(c byte) bool { return c >= '0' && c <= '7' },
				'b': func(c byte) bool { return c == '0' || c == '1' },
			}[s[1]|0x20]
			if is != nil {
				if d := digits(s[2:], is); d > 0 {
					n, base = 2+d, 0
				}
			}
		}
	}
	v, err := strconv.ParseInt(strings.ReplaceAll(s[:n], "_", ""), base, 64)
	if err != nil {
		return l.errorf(l.pos, "the integer %s does not fit 64 bits", s[:n])
	}
	l.emit(token{kind: tokInt, pos: pos(l.pos), num: v})
	l.pos += n
	return nil
}

// str reads a string literal.
func (l *lexer) str(s string, quote byte) error {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case quote:
			text, err := unescape(s[1:i])
			if err != nil {
				return l.errorf(l.pos, "%v", err)
			}
			l.emit(token{kind: tokString, pos: pos(l.pos), text: text})
			l.pos += i + 1
			return nil
		}
	}
	return l.errorf(l.pos, "the string has no end %c", quote)
}
