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

// pieces collects slices of a text as a list.
type pieces struct {
	in   *interp
	t    Text
	list []any
}

func (p *pieces) add(from, to int) error {
	p.list = append(p.list, p.t.slice(from, to).value())
	return p.in.charge(2 * itemCost)
}

func splitArgs(p []any) (sep any, n int, err error) {
	limit, err := intArg("maxsplit", p[1], -1)
	if err != nil {
		return nil, 0, err
	}
	sep = or(p[0], nil)
	if sep != nil {
		s, err := stringArg("sep", sep)
		if err != nil {
			return nil, 0, err
		}
		if s == "" {
			return nil, 0, failf("empty separator")
		}
		sep = s
	}
	if limit < 0 || limit > maxSource {
		return sep, -1, nil
	}
	return sep, int(limit), nil
}

func split(in *interp, t Text, p []any) (any, error) {
	sep, n, err := splitArgs(p)
	if err != nil {
		return nil, err
	}
	out := pieces{in: in, t: t, list: []any{}}
	if sep == nil {
		return out.fields(n)
	}
	by := sep.(string)
	from := 0
	for ; n != 0; n-- {
		i := strings.Index(t.s[from:], by)
		if i < 0 {
			break
		}
		if err := out.add(from, from+i); err != nil {
			return nil, err
		}
		from += i + len(by)
	}
	err = out.add(from, len(t.s))
	return out.list, err
}

// fields splits at runs of white space, at most n times from the left.
func (p *pieces) fields(n int) (any, error) {
	s := p.t.s
	i := 0
	for {
		i = len(s) - len(strings.TrimLeftFunc(s[i:], isSpace))
		if i == len(s) {
			return p.list, nil
		}
		end := len(s)
		if n != 0 {
			if j := strings.IndexFunc(s[i:], isSpace); j >= 0 {
				end = i + j
			}
		}
		if err := p.add(i, end); err != nil {
			return nil, err
		}
		i = end
		n--
	}
}

func rsplit(in *interp, t Text, p []any) (any, error) {
	sep, n, err := splitArgs(p)
	if err != nil {
		return nil, err
	}
	end := len(t.s)
	out := pieces{in: in, t: t, list: []any{}}
	var spans []Span
	if sep == nil {
		for {
			end = len(strings.TrimRightFunc(t.s[:end], isSpace))
			if end == 0 {
				break
			}
			start := 0
			if n != 0 {
				if j := strings.LastIndexFunc(t.s[:end], isSpace); j >= 0 {
					_, size := utf8.DecodeRuneInString(t.s[j:])
					start = j + size
				}
			}
			spans = append(spans, Span{start, end})
			end = start
			n--
		}
	} else {
		by := sep.(string)
		for ; n != 0; n-- {
			i := strings.LastIndex(t.s[:end], by)
			if i < 0 {
				break
			}
			spans = append(spans, Span{i + len(by), end})
			end = i
		}
		spans = append(spans, Span{0, end})
	}
	for i := len(spans) - 1; i >= 0; i-- {
		if err := out.add(spans[i].Start, spans[i].End); err != nil {
			return nil, err
		}
	}
	return out.list, nil
}

// lineEnd returns the length of the line break that s starts with.
func lineEnd(s string) int {
	if strings.HasPrefix(s, "\r\n") {
		return 2
	}
	r, n := utf8.DecodeRuneInString(s)
	switch r {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return n
	}
	return 0
}

// lines splits at line breaks, as Python's splitlines.
func (in *interp) lines(t Text, keep bool) ([]any, error) {
	out := pieces{in: in, t: t, list: []any{}}
	from := 0
	for i, r := range t.s {
		if i < from {
			continue // the \n of a \r\n
		}
		n := 0
		if r < ' ' || r >= 0x85 {
			n = lineEnd(t.s[i:])
		}
		if n == 0 {
			continue
		}
		end := i
		if keep {
			end += n
		}
		if err := out.add(from, end); err != nil {
			return nil, err
		}
		from = i + n
	}
	if from < len(t.s) {
		if err := out.add(from, len(t.s)); err != nil {
			return nil, err
		}
	}
	return out.list, nil
}

func strSplitlines(in *interp, t Text, p []any) (any, error) {
	return in.lines(t, truth(or(p[0], false)))
}

func partition(_ *interp, t Text, p []any) (any, error) {
	sep, err := stringArg("sep", p[0])
	if err != nil {
		return nil, err
	}
	if sep == "" {
		return nil, failf("empty separator")
	}
	i := strings.Index(t.s, sep)
	if i < 0 {
		return Tuple{t.value(), "", ""}, nil
	}
	return t.cut(i, len(sep)), nil
}

func rpartition(_ *interp, t Text, p []any) (any, error) {
	sep, err := stringArg("sep", p[0])
	if err != nil {
		return nil, err
	}
	if sep == "" {
		return nil, failf("empty separator")
	}
	i := strings.LastIndex(t.s, sep)
	if i < 0 {
		return Tuple{"", "", t.value()}, nil
	}
	return t.cut(i, len(sep)), nil
}

// cut returns the text before, of and after the n bytes at i.
func (t Text) cut(i, n int) Tuple {
	return Tuple{t.slice(0, i).value(), t.slice(i, i+n).value(), t.slice(i+n, len(t.s)).value()}
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

func padLeft(n, _ int) int  { return n }
func padRight(_, _ int) int { return 0 }

// padCenter puts the odd fill character where CPython does: left when the
// width is odd.
func padCenter(n, width int) int { return n/2 + n&width&1 }
