package jinja

import (
	"slices"
	"strings"
)

func lengthFilter(in *interp, v any) (any, error) {
	if s, ok := plain(v); ok {
		return int64(runeLen(s)), in.charge(len(s))
	}
	n, ok := length(v)
	if !ok {
		return nil, failf("object of type '%s' has no len()", typeName(v))
	}
	return int64(n), nil
}

func firstFilter(in *interp, v any) (any, error) {
	if it, ok := v.(*iterator); ok && len(it.items) > 0 {
		first := it.items[0]
		it.items = it.items[1:]
		return first, nil
	}
	if _, ok := plain(v); ok {
		return in.index(v, 0)
	}
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return &undefined{"no first item, the sequence is empty"}, nil
	}
	return items[0], nil
}

func lastFilter(in *interp, v any) (any, error) {
	switch v.(type) {
	case string, Text:
		return in.index(v, -1)
	case *iterator:
		return nil, failf("'generator' object is not reversible")
	}
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return &undefined{"no last item, the sequence is empty"}, nil
	}
	return items[len(items)-1], nil
}

func listFilter(in *interp, v any) (any, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	return append([]any{}, items...), in.charge(len(items) * itemCost)
}

func reverseFilter(in *interp, v any) (any, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	if err := in.charge(len(items) * itemCost); err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	if _, ok := plain(v); ok {
		return joinTexts(items).value(), nil
	}
	return &iterator{items}, nil
}

func joinFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "d", "attribute")
	if err != nil {
		return nil, err
	}
	sep, err := in.str(or(p[0], ""))
	if err != nil {
		return nil, err
	}
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	get, err := in.getter(or(p[1], nil), nil)
	if err != nil {
		return nil, err
	}
	var out textBuilder
	for i, item := range items {
		if item, err = get(item); err != nil {
			return nil, err
		}
		t, err := in.str(item)
		if err != nil {
			return nil, err
		}
		if err := in.charge(len(t.s) + len(sep.s) + (len(t.marks)+len(sep.marks)+1)*itemCost); err != nil {
			return nil, err
		}
		if i > 0 {
			out.write(sep)
		}
		out.write(t)
	}
	return out.text().value(), nil
}

// getter returns a function that fetches the attribute of an item: a name, a
// number, or several with dots between. Without an attribute it returns the
// item itself. Where def is given it stands in for what is undefined.
func (in *interp) getter(attribute, def any) (func(any) (any, error), error) {
	if attribute == nil {
		return func(v any) (any, error) { return v, nil }, nil
	}
	var path []any
	switch a := attribute.(type) {
	case string, Text:
		s, _ := plain(a)
		for part := range strings.SplitSeq(s, ".") {
			if n, err := parseIndex(part); err == nil {
				path = append(path, n)
			} else {
				path = append(path, part)
			}
		}
	default:
		if _, ok := asInt(a); !ok {
			return nil, failf("attribute must be a string or an integer, not %s", typeName(a))
		}
		path = []any{a}
	}
	return func(v any) (any, error) {
		if err := in.step(); err != nil {
			return nil, err
		}
		for _, key := range path {
			var err error
			if v, err = in.item(v, key); err != nil {
				return nil, err
			}
			if _, ok := v.(*undefined); ok && def != nil {
				v = def
			}
		}
		return v, nil
	}, nil
}

// parseIndex reads a part of an attribute path that is a number.
func parseIndex(s string) (int64, error) {
	if s == "" || len(s) > 9 {
		return 0, failf("no index")
	}
	n := int64(0)
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, failf("no index")
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, nil
}

// iterateTrue is iterate for the filters that take anything false, None too, as
// an empty list.
func (in *interp) iterateTrue(v any) ([]any, error) {
	if !truth(v) {
		return nil, nil
	}
	return in.iterate(v)
}

func mapFilter(in *interp, v any, a args) (any, error) {
	items, err := in.iterateTrue(v)
	if err != nil {
		return nil, err
	}
	if err := in.charge(len(items) * itemCost); err != nil {
		return nil, err
	}
	var apply func(any) (any, error)
	if len(a.pos) > 0 {
		name, err := stringArg("the filter's name", a.pos[0])
		if err != nil {
			return nil, err
		}
		fn, ok := filters[name]
		if !ok {
			return nil, unsupportedf("filter %q is not supported", name)
		}
		rest := args{name: name, pos: a.pos[1:], kw: a.kw}
		apply = func(v any) (any, error) {
			if err := in.enter(); err != nil {
				return nil, err
			}
			defer in.leave()
			return fn(in, v, rest)
		}
	} else {
		p, err := a.bind(0, "attribute", "default")
		if err != nil {
			return nil, err
		}
		if isAbsent(p[0]) {
			return nil, failf("map needs the name of a filter or an attribute")
		}
		if apply, err = in.getter(p[0], or(p[1], nil)); err != nil {
			return nil, err
		}
	}
	out := make([]any, len(items))
	for i, item := range items {
		if out[i], err = apply(item); err != nil {
			return nil, err
		}
	}
	return &iterator{out}, nil
}

// pick is select, reject, selectattr and rejectattr: the items for which a test,
// of the item or of an attribute, gives want.
func pick(in *interp, v any, a args, byAttr, want bool) (any, error) {
	items, err := in.iterateTrue(v)
	if err != nil {
		return nil, err
	}
	var attribute any
	rest := a.pos
	if byAttr {
		if len(rest) == 0 {
			return nil, failf("%s needs the name of an attribute", a.name)
		}
		attribute, rest = rest[0], rest[1:]
	}
	get, err := in.getter(attribute, nil)
	if err != nil {
		return nil, err
	}
	holds := func(v any) (bool, error) { return truth(v), nil }
	if len(rest) > 0 {
		name, err := stringArg("the test's name", rest[0])
		if err != nil {
			return nil, err
		}
		testArgs := args{pos: rest[1:], kw: a.kw}
		holds = func(v any) (bool, error) { return in.test(name, v, testArgs) }
	}
	var out []any
	for _, item := range items {
		if err := in.step(); err != nil {
			return nil, err
		}
		key, err := get(item)
		if err != nil {
			return nil, err
		}
		ok, err := holds(key)
		if err != nil {
			return nil, err
		}
		if ok == want {
			out = append(out, item)
		}
	}
	return &iterator{out}, in.charge(len(out) * itemCost)
}

func itemsFilter(in *interp, v any) (any, error) {
	switch d := v.(type) {
	case *undefined:
		return &iterator{}, nil
	case *Dict:
		return &iterator{dictItems(d)}, in.charge(2 * d.Len() * itemCost)
	}
	return nil, failf("can only get item pairs from a mapping, not from %s", typeName(v))
}

func batchFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(1, "linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	n, err := intArg("linecount", p[0], 0)
	if err != nil {
		return nil, err
	}
	if n < 1 || n > maxRange {
		return nil, failf("batch: linecount must be 1 to %d, not %d", maxRange, n)
	}
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	if err := in.charge((2*len(items) + int(n)) * itemCost); err != nil {
		return nil, err
	}
	var out []any
	for chunk := range slices.Chunk(items, int(n)) {
		line := append([]any{}, chunk...)
		if fill := or(p[1], nil); fill != nil {
			for len(line) < int(n) {
				line = append(line, fill)
			}
		}
		out = append(out, line)
	}
	return &iterator{out}, nil
}
