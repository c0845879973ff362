package jinja

import "strings"

// sortKeys returns what the items are compared by: the attribute, strings in
// lower case unless case counts.
func (in *interp) sortKeys(items []any, attribute any, caseSensitive bool) ([]any, error) {
	get, err := in.getter(attribute, nil)
	if err != nil {
		return nil, err
	}
	keys := make([]any, len(items))
	for i, item := range items {
		if keys[i], err = get(item); err != nil {
			return nil, err
		}
		if s, ok := plain(keys[i]); ok && !caseSensitive {
			keys[i] = lower(s)
			if err := in.charge(len(s)); err != nil {
				return nil, err
			}
		}
	}
	return keys, in.charge(len(items) * itemCost)
}

func sortFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	attribute := or(p[2], nil)
	if s, ok := plain(attribute); ok && strings.Contains(s, ",") {
		return nil, unsupportedf("sort by several attributes is not supported")
	}
	keys, err := in.sortKeys(items, attribute, truth(or(p[1], false)))
	if err != nil {
		return nil, err
	}
	return in.sortValues(items, keys, truth(or(p[0], false)))
}

func uniqueFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	keys, err := in.sortKeys(items, or(p[1], nil), truth(or(p[0], false)))
	if err != nil {
		return nil, err
	}
	seen := map[any]bool{}
	var out []any
	for i, k := range keys {
		h, err := in.hash(k)
		if err != nil {
			return nil, err
		}
		if !seen[h] {
			seen[h] = true
			out = append(out, items[i])
		}
	}
	return &iterator{out}, nil
}

// extremeFilter is max (sign 1) or min (sign -1).
func extremeFilter(sign int) filter {
	return func(in *interp, v any, a args) (any, error) {
		p, err := a.bind(0, "case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		items, err := in.iterate(v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return &undefined{"no aggregated item, the sequence is empty"}, nil
		}
		keys, err := in.sortKeys(items, or(p[1], nil), truth(or(p[0], false)))
		if err != nil {
			return nil, err
		}
		best := 0
		for i := range keys[1:] {
			c, err := in.compare("<", keys[i+1], keys[best])
			if err != nil {
				return nil, err
			}
			if c != unordered && c*sign > 0 {
				best = i + 1
			}
		}
		return items[best], nil
	}
}

func sumFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "attribute", "start")
	if err != nil {
		return nil, err
	}
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	get, err := in.getter(or(p[0], nil), nil)
	if err != nil {
		return nil, err
	}
	total := or(p[1], int64(0))
	if _, ok := plain(total); ok {
		return nil, failf("sum cannot add strings; use join")
	}
	for _, item := range items {
		if item, err = get(item); err != nil {
			return nil, err
		}
		if err := in.step(); err != nil {
			return nil, err
		}
		if total, err = in.binary("+", total, item); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func dictsortFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, failf("dictsort needs a mapping, not %s", typeName(v))
	}
	if err := in.charge(2 * d.Len() * itemCost); err != nil {
		return nil, err
	}
	by := int64(0)
	switch s, _ := plain(or(p[1], "key")); s {
	case "key":
	case "value":
		by = 1
	default:
		return nil, failf("dictsort: by must be 'key' or 'value'")
	}
	items := dictItems(d)
	keys, err := in.sortKeys(items, by, truth(or(p[0], false)))
	if err != nil {
		return nil, err
	}
	return in.sortValues(items, keys, truth(or(p[2], false)))
}
