package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Case mappings of whole strings, as Python has them: full mappings, so that
// the German sharp s becomes two letters in upper case. A cases.Caser keeps
// state, hence a new one for each call.

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func casefold(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Fold().String(s)
}

func swapcase(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsUpper(r):
			return unicode.ToLower(r)
		case unicode.IsLower(r):
			return unicode.ToUpper(r)
		}
		return r
	}, s)
}

// titlecase is str.title: every letter after something that is no letter is a
// capital.
func titlecase(s string) string {
	inWord := false
	return strings.Map(func(r rune) rune {
		cased := unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r)
		start := cased && !inWord
		inWord = cased
		if start {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}

func capitalize(s string) string {
	if s == "" {
		return s
	}
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToTitle(r)) + lower(s[n:])
}

// mapped makes a method of a case mapping.
func mapped(f func(string) string) strFunc {
	return func(in *interp, t Text, _ []any) (any, error) {
		out := t.with(f(t.s))
		return out.value(), in.charge(len(out.s))
	}
}

// allRunes makes a method that is true when s is not empty and all its code
// points are of a class.
func allRunes(is func(rune) bool) strFunc {
	return func(_ *interp, t Text, _ []any) (any, error) {
		return t.s != "" && strings.IndexFunc(t.s, func(r rune) bool { return !is(r) }) < 0, nil
	}
}

func isAlpha(r rune) bool   { return unicode.IsLetter(r) }
func isDecimal(r rune) bool { return unicode.Is(unicode.Nd, r) }
func isNumeric(r rune) bool { return unicode.IsNumber(r) }
func isAlnum(r rune) bool   { return isAlpha(r) || isNumeric(r) }

// isPythonDigit adds the digits that stand above, below or in a circle.
func isPythonDigit(r rune) bool {
	switch {
	case isDecimal(r), r == 0xb2, r == 0xb3, r == 0xb9, r == 0x2070,
		r >= 0x2074 && r <= 0x2079, r >= 0x2080 && r <= 0x2089, r >= 0x2460 && r <= 0x2468:
		return true
	}
	return false
}

// isUpper reports whether s has cased letters, and only capitals.
func isUpper(s string) bool {
	cased := false
	for _, r := range s {
		if unicode.IsLower(r) || unicode.IsTitle(r) {
			return false
		}
		cased = cased || unicode.IsUpper(r)
	}
	return cased
}

// isLower reports whether s has cased letters, and no capitals.
func isLower(s string) bool {
	cased := false
	for _, r := range s {
		if unicode.IsUpper(r) || unicode.IsTitle(r) {
			return false
		}
		cased = cased || unicode.IsLower(r)
	}
	return cased
}
