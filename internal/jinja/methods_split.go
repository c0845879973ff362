package jinja

import (
	"strings"
	"unicode/utf8"
)

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
