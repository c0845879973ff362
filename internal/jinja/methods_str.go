package jinja

import (
	"strings"
	"unicode/utf8"
)

type strFunc = func(in *interp, t Text, p []any) (any, error)

// strip cuts white space, or the characters of the argument, off the ends.
func strip(left, right bool) strFunc {
	return func(_ *interp, t Text, p []any) (any, error) {
		cut := isSpace
		if chars := or(p[0], nil); chars != nil {
			set, err := stringArg("chars", chars)
			if err != nil {
				return nil, err
			}
			cut = func(r rune) bool { return strings.ContainsRune(set, r) }
		}
		from, to := 0, len(t.s)
		if left {
			from = to - len(strings.TrimLeftFunc(t.s, cut))
		}
		if right {
			to = from + len(strings.TrimRightFunc(t.s[from:], cut))
		}
		return t.slice(from, to).value(), nil
	}
}

// window is the part of t between the code points start and end, as the
// methods that search take them, and the code point that it starts at. It is
// not ok when start lies beyond the end.
func window(t Text, start, end any) (s string, first int, ok bool, err error) {
	start, end = or(start, nil), or(end, nil)
	if start == nil && end == nil {
		return t.s, 0, true, nil
	}
	size := runeLen(t.s)
	if n, isInt := asInt(start); isInt && n > int64(size) {
		return "", 0, false, nil
	}
	first, _, n, err := sliceKey{start, end, nil}.resolve(size)
	if err != nil {
		return "", 0, false, err
	}
	from := byteOffset(t.s, first)
	return t.s[from : from+byteOffset(t.s[from:], n)], first, true, nil
}

// affix is startswith or endswith, of one string or any of a tuple.
func affix(has func(s, affix string) bool) strFunc {
	return func(_ *interp, t Text, p []any) (any, error) {
		s, _, ok, err := window(t, p[1], p[2])
		if err != nil || !ok {
			return false, err
		}
		any, isTuple := p[0].(Tuple)
		if !isTuple {
			any = Tuple{p[0]}
		}
		for _, v := range any {
			a, isString := plain(v)
			if !isString {
				return nil, failf("the argument must be a string or a tuple of strings, not %s", typeName(v))
			}
			if has(s, a) {
				return true, nil
			}
		}
		return false, nil
	}
}

func removePrefix(_ *interp, t Text, p []any) (any, error) {
	s, err := stringArg("prefix", p[0])
	if err == nil && strings.HasPrefix(t.s, s) {
		t = t.slice(len(s), len(t.s))
	}
	return t.value(), err
}

func removeSuffix(_ *interp, t Text, p []any) (any, error) {
	s, err := stringArg("suffix", p[0])
	if err == nil && strings.HasSuffix(t.s, s) {
		t = t.slice(0, len(t.s)-len(s))
	}
	return t.value(), err
}

func strReplace(in *interp, t Text, p []any) (any, error) {
	old, ok := textOf(p[0])
	by, ok2 := textOf(p[1])
	if !ok || !ok2 {
		return nil, failf("replace() needs two strings, not %s and %s", typeName(p[0]), typeName(p[1]))
	}
	n, err := intArg("count", p[2], -1)
	if err != nil {
		return nil, err
	}
	return in.replace(t, old.s, by, n)
}

// replace replaces the first n places of old in t, all when n is negative. An
// empty old stands before every character and at the end.
func (in *interp) replace(t Text, old string, by Text, n int64) (any, error) {
	var out textBuilder
	put := func(texts ...Text) error {
		for _, x := range texts {
			if err := in.charge(len(x.s) + (1+len(x.marks))*itemCost); err != nil {
				return err
			}
			out.write(x)
		}
		return nil
	}
	from := 0
	for started := false; n != 0; n-- {
		at := from
		if old != "" {
			i := strings.Index(t.s[from:], old)
			if i < 0 {
				break
			}
			at = from + i
		} else if started {
			if from == len(t.s) {
				break
			}
			_, size := utf8.DecodeRuneInString(t.s[from:])
			at = from + size
		}
		started = true
		if err := put(t.slice(from, at), by); err != nil {
			return nil, err
		}
		from = at + len(old)
	}
	if err := put(t.slice(from, len(t.s))); err != nil {
		return nil, err
	}
	return out.text().value(), nil
}

func strJoin(in *interp, t Text, p []any) (any, error) {
	items, err := in.iterate(p[0])
	if err != nil {
		return nil, err
	}
	var out textBuilder
	for i, v := range items {
		s, ok := textOf(v)
		if !ok {
			return nil, failf("sequence item %d: expected str instance, %s found", i, typeName(v))
		}
		if err := in.charge(len(s.s) + len(t.s) + (len(s.marks)+len(t.marks))*itemCost); err != nil {
			return nil, err
		}
		if i > 0 {
			out.write(t)
		}
		out.write(s)
	}
	return out.text().value(), nil
}

// find is find, rfind, index or rindex.
func find(index func(s, sub string) int, must bool) strFunc {
	return func(_ *interp, t Text, p []any) (any, error) {
		sub, err := stringArg("sub", p[0])
		if err != nil {
			return nil, err
		}
		s, first, ok, err := window(t, p[1], p[2])
		if err != nil {
			return nil, err
		}
		i := -1
		if ok {
			i = index(s, sub)
		}
		switch {
		case i >= 0:
			return int64(first + runeLen(s[:i])), nil
		case must:
			return nil, failf("substring not found")
		}
		return int64(-1), nil
	}
}

func strCount(_ *interp, t Text, p []any) (any, error) {
	sub, err := stringArg("sub", p[0])
	if err != nil {
		return nil, err
	}
	s, _, ok, err := window(t, p[1], p[2])
	if err != nil || !ok {
		return int64(0), err
	}
	return int64(strings.Count(s, sub)), nil
}

func zfill(in *interp, t Text, p []any) (any, error) {
	width, err := intArg("width", p[0], 0)
	if err != nil {
		return nil, err
	}
	sign := 0
	if t.s != "" && (t.s[0] == '-' || t.s[0] == '+') {
		sign = 1
	}
	zeros, err := in.padding(t, width, "0")
	if err != nil {
		return nil, err
	}
	return joinTexts([]any{t.slice(0, sign).value(), zeros, t.slice(sign, len(t.s)).value()}).value(), nil
}

// padding is the fill that brings t to width code points.
func (in *interp) padding(t Text, width int64, fill string) (string, error) {
	n := width - int64(runeLen(t.s))
	if n <= 0 {
		return "", nil
	}
	if n > maxSource {
		return "", limitf("a string of width %d is too long", width)
	}
	return strings.Repeat(fill, int(n)), in.charge(int(n)*len(fill) + len(t.s))
}

// pad is center, ljust or rjust; side splits the padding.
func pad(side func(n, width int) (left int)) strFunc {
	return func(in *interp, t Text, p []any) (any, error) {
		width, err := intArg("width", p[0], 0)
		if err != nil {
			return nil, err
		}
		fill, ok := plain(or(p[1], " "))
		if !ok || runeLen(fill) != 1 {
			return nil, failf("the fill character must be exactly one character long")
		}
		all, err := in.padding(t, width, fill)
		if err != nil {
			return nil, err
		}
		left := side(len(all)/len(fill), int(min(width, maxSource))) * len(fill)
		return joinTexts([]any{all[:left], t, all[left:]}).value(), nil
	}
}

func padLeft(n, _ int) int { return n }

func padRight(_, _ int) int { return 0 }

// padCenter puts the odd fill character where CPython does: left when the
// width is odd.
func padCenter(n, width int) int { return n/2 + n&width&1 }
