package jinja

func (e *constExpr) eval(*interp) (any, error) { return e.value, nil }

func (e *nameExpr) eval(in *interp) (any, error) {
	if v, ok := in.lookup(e.name); ok {
		return v, nil
	}
	return &undefined{"'" + e.name + "' is undefined"}, nil
}

func (e *listExpr) eval(in *interp) (any, error) {
	items, err := in.evalAll(e.pos, e.items)
	if err != nil {
		return nil, err
	}
	if e.tuple {
		return Tuple(items), nil
	}
	return items, nil
}

func (in *interp) evalAll(p pos, exprs []expr) ([]any, error) {
	if err := in.enter(); err != nil {
		return nil, in.at(p, err)
	}
	defer in.leave()
	if err := in.charge(len(exprs) * itemCost); err != nil {
		return nil, in.at(p, err)
	}
	items := make([]any, len(exprs))
	for i, x := range exprs {
		v, err := x.eval(in)
		if err != nil {
			return nil, err
		}
		items[i] = v
	}
	return items, nil
}

func (e *dictExpr) eval(in *interp) (any, error) {
	keys, err := in.evalAll(e.pos, e.keys)
	if err != nil {
		return nil, err
	}
	vals, err := in.evalAll(e.pos, e.vals)
	if err != nil {
		return nil, err
	}
	d := NewDict()
	for i, k := range keys {
		if err := in.put(d, k, vals[i]); err != nil {
			return nil, in.at(e.pos, err)
		}
	}
	return d, nil
}

func (e *attrExpr) eval(in *interp) (any, error) {
	base, err := in.operand(e.pos, e.base)
	if err != nil {
		return nil, err
	}
	v, err := in.attr(base, e.name)
	return v, in.at(e.pos, err)
}

// operand evaluates an operand of the node at p: one step, one level deeper.
func (in *interp) operand(p pos, x expr) (any, error) {
	if err := in.enter(); err != nil {
		return nil, in.at(p, err)
	}
	defer in.leave()
	v, err := x.eval(in)
	return v, in.at(p, err)
}

func (e *itemExpr) eval(in *interp) (any, error) {
	base, err := in.operand(e.pos, e.base)
	if err != nil {
		return nil, err
	}
	key, err := in.operand(e.pos, e.key)
	if err != nil {
		return nil, err
	}
	v, err := in.item(base, key)
	return v, in.at(e.pos, err)
}

func (e *sliceExpr) eval(in *interp) (any, error) {
	var k sliceKey
	for _, part := range []struct {
		x  expr
		to *any
	}{{e.start, &k.start}, {e.stop, &k.stop}, {e.step, &k.step}} {
		if part.x == nil {
			continue
		}
		v, err := part.x.eval(in)
		if err != nil {
			return nil, err
		}
		*part.to = v
	}
	return k, nil
}

func (e *unaryExpr) eval(in *interp) (any, error) {
	v, err := in.operand(e.pos, e.x)
	if err != nil {
		return nil, err
	}
	v, err = unary(e.op, v)
	return v, in.at(e.pos, err)
}

func (e *notExpr) eval(in *interp) (any, error) {
	v, err := in.operand(e.pos, e.x)
	if err != nil {
		return nil, err
	}
	return !truth(v), nil
}

func (e *logicExpr) eval(in *interp) (any, error) {
	a, err := in.operand(e.pos, e.a)
	if err != nil || truth(a) == e.or {
		return a, err
	}
	return in.operand(e.pos, e.b)
}

func (e *binaryExpr) eval(in *interp) (any, error) {
	a, err := in.operand(e.pos, e.a)
	if err != nil {
		return nil, err
	}
	b, err := in.operand(e.pos, e.b)
	if err != nil {
		return nil, err
	}
	v, err := in.binary(e.op, a, b)
	return v, in.at(e.pos, err)
}

func (e *concatExpr) eval(in *interp) (any, error) {
	var out textBuilder
	for _, x := range e.parts {
		v, err := in.operand(e.pos, x)
		if err != nil {
			return nil, err
		}
		t, err := in.str(v)
		if err == nil {
			err = in.charge(len(t.s) + len(t.marks)*itemCost)
		}
		if err != nil {
			return nil, in.at(e.pos, err)
		}
		out.write(t)
	}
	return out.text().value(), nil
}

func (e *compareExpr) eval(in *interp) (any, error) {
	a, err := in.operand(e.pos, e.first)
	if err != nil {
		return nil, err
	}
	for _, op := range e.ops {
		b, err := in.operand(e.pos, op.x)
		if err != nil {
			return nil, err
		}
		ok, err := in.compareOp(op.op, a, b)
		if err != nil || !ok {
			return false, in.at(e.pos, err)
		}
		a = b
	}
	return true, nil
}

func (in *interp) compareOp(op string, a, b any) (bool, error) {
	switch op {
	case "==":
		return in.equal(a, b)
	case "!=":
		eq, err := in.equal(a, b)
		return !eq, err
	case "in":
		return in.contains(b, a)
	case "not in":
		ok, err := in.contains(b, a)
		return !ok, err
	}
	c, err := in.compare(op, a, b)
	if err != nil || c == unordered {
		return false, err
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

func (e *condExpr) eval(in *interp) (any, error) {
	v, err := in.operand(e.pos, e.test)
	if err != nil {
		return nil, err
	}
	switch {
	case truth(v):
		return in.operand(e.pos, e.then)
	case e.orElse != nil:
		return in.operand(e.pos, e.orElse)
	}
	return &undefined{"the inline if-expression evaluated to false and no else section was defined"}, nil
}

func (e *filterExpr) eval(in *interp) (any, error) {
	v, err := in.operand(e.pos, e.base)
	if err != nil {
		return nil, err
	}
	return e.apply(in, v)
}

// apply passes v through the filter.
func (f *filterRef) apply(in *interp, v any) (any, error) {
	fn, ok := filters[f.name]
	if !ok {
		return nil, in.src.errorf(Unsupported, f.pos, "filter %q is not supported", f.name)
	}
	a, err := f.args.eval(in, f.pos)
	if err != nil {
		return nil, err
	}
	a.name = f.name
	v, err = fn(in, v, a)
	return v, in.at(f.pos, err)
}

func (e *testExpr) eval(in *interp) (any, error) {
	v, err := in.operand(e.pos, e.base)
	if err != nil {
		return nil, err
	}
	a, err := e.args.eval(in, e.pos)
	if err != nil {
		return nil, err
	}
	ok, err := in.test(e.name, v, a)
	if err != nil {
		return nil, in.at(e.pos, err)
	}
	return ok != e.negate, nil
}

// test runs the test called name.
func (in *interp) test(name string, v any, a args) (bool, error) {
	fn, ok := tests[name]
	if !ok {
		return false, unsupportedf("test %q is not supported", name)
	}
	a.name = name
	return fn(in, v, a)
}

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
