package jinja

// attr is base.name: an attribute or method first, then an item.
func (in *interp) attr(base any, name string) (any, error) {
	if u, ok := base.(*undefined); ok {
		return nil, u.fail()
	}
	if v, ok := in.attribute(base, name); ok {
		return v, nil
	}
	if d, ok := base.(*Dict); ok {
		if v, ok := d.Get(name); ok {
			return v, nil
		}
	}
	return missing(base, name), nil
}

// missing is the undefined value of an attribute or item that base lacks.
func missing(base, key any) any {
	if name, ok := plain(key); ok {
		return &undefined{"'" + typeName(base) + " object' has no attribute '" + name + "'"}
	}
	return &undefined{"'" + typeName(base) + " object' has no such item"}
}

// attribute finds what Python's getattr would.
func (in *interp) attribute(base any, name string) (any, bool) {
	switch b := base.(type) {
	case *namespace:
		v, ok := b.attrs.Get(name)
		return v, ok
	case *loopState:
		v, ok := b.attr(name)
		return v, ok
	case *cycler:
		v, ok := b.attr(name)
		return v, ok
	case *macro:
		if name == "name" {
			return b.def.name, true
		}
		return nil, false
	}
	kind := typeName(base)
	if mutators[kind][name] {
		return &undefined{"'" + kind + "." + name + "' is unsafe: templates cannot change values"}, true
	}
	if m, ok := methods[kind][name]; ok {
		return &function{name, func(in *interp, a args) (any, error) { return m(in, base, a) }}, true
	}
	return nil, false
}

// item is base[key]: an item first, then an attribute.
func (in *interp) item(base, key any) (any, error) {
	switch b := base.(type) {
	case *undefined:
		return nil, b.fail()
	case *Dict:
		// A key that cannot be hashed is only a missing one, as in Jinja.
		v, ok, err := in.get(b, key)
		if ok || isLimit(err) {
			return v, err
		}
	case string, Text, []any, Tuple, *rangeValue:
		if k, ok := key.(sliceKey); ok {
			return in.slice(base, k)
		}
		if n, ok := asInt(key); ok {
			return in.index(base, n)
		}
	}
	if _, ok := key.(sliceKey); ok {
		return nil, failf("'%s' object cannot be sliced", typeName(base))
	}
	if name, ok := plain(key); ok {
		if v, ok := in.attribute(base, name); ok {
			return v, nil
		}
	}
	return missing(base, key), nil
}

// index is base[n], counting from the end when n is negative.
func (in *interp) index(base any, n int64) (any, error) {
	t, isText := textOf(base)
	size := 0
	if isText {
		if err := in.charge(len(t.s)); err != nil {
			return nil, err
		}
		size = runeLen(t.s)
	} else {
		size, _ = length(base)
	}
	if n < 0 {
		n += int64(size)
	}
	if n < 0 || n >= int64(size) {
		return &undefined{typeName(base) + " object has no element " + itoa(n)}, nil
	}
	i := int(n)
	switch b := base.(type) {
	case []any:
		return b[i], nil
	case Tuple:
		return b[i], nil
	case *rangeValue:
		return b.at(i), nil
	}
	from := byteOffset(t.s, i)
	return t.slice(from, from+byteOffset(t.s[from:], 1)).value(), nil
}

// slice is base[start:stop:step].
func (in *interp) slice(base any, k sliceKey) (any, error) {
	t, isText := textOf(base)
	size := 0
	if isText {
		if err := in.charge(len(t.s)); err != nil {
			return nil, err
		}
		size = runeLen(t.s)
	} else {
		size, _ = length(base)
	}
	start, step, n, err := k.resolve(size)
	if err != nil {
		return nil, err
	}
	if isText && step == 1 {
		from := byteOffset(t.s, start)
		return t.slice(from, from+byteOffset(t.s[from:], n)).value(), nil
	}
	if err := in.charge(n * itemCost); err != nil {
		return nil, err
	}
	if r, ok := base.(*rangeValue); ok {
		first := r.start
		if n > 0 {
			first = r.at(start)
		}
		return &rangeValue{start: first, step: r.step * int64(step), n: n, stop: first + r.step*int64(step)*int64(n)}, nil
	}
	items, err := in.iterate(base)
	if err != nil {
		return nil, err
	}
	out := make([]any, n)
	for i := range out {
		out[i] = items[start+i*step]
	}
	switch base.(type) {
	case Tuple:
		return Tuple(out), nil
	case []any:
		return out, nil
	}
	return joinTexts(out).value(), nil
}

// resolve turns the bounds into the first index, the step and the number of
// items for a sequence of the given size.
func (k sliceKey) resolve(size int) (start, step, n int, err error) {
	bound := func(v any, def int64) (int64, error) {
		if v == nil {
			return def, nil
		}
		i, ok := asInt(v)
		if !ok {
			return 0, failf("slice indices must be integers or None, not %s", typeName(v))
		}
		return i, nil
	}
	by, err := bound(k.step, 1)
	if err != nil {
		return 0, 0, 0, err
	}
	if by == 0 {
		return 0, 0, 0, failf("slice step cannot be zero")
	}
	// The places that a bound may take: 0 to size going up, -1 to size-1 down.
	lo, hi := int64(0), int64(size)
	first, last := lo, hi
	if by < 0 {
		lo, hi = -1, int64(size)-1
		first, last = hi, lo
	}
	clamp := func(v any, def int64) (int64, error) {
		i, err := bound(v, def)
		if v != nil && i < 0 {
			i = max(i+int64(size), lo)
		}
		return min(max(i, lo), hi), err
	}
	if first, err = clamp(k.start, first); err != nil {
		return 0, 0, 0, err
	}
	if last, err = clamp(k.stop, last); err != nil {
		return 0, 0, 0, err
	}
	by = min(max(by, -int64(size)-1), int64(size)+1)
	if by > 0 && last > first {
		n = int((last - first + by - 1) / by)
	}
	if by < 0 && last < first {
		n = int((first - last - by - 1) / -by)
	}
	return int(first), int(by), n, nil
}
