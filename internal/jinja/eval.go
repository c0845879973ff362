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
