package jinja

// A testFunc is what "v is name(args)" runs.
type testFunc func(in *interp, v any, a args) (bool, error)

// tests holds the tests by name; init fills it in, as tests refer to the
// interpreter and the interpreter to them.
var tests map[string]testFunc

func init() {
	tests = map[string]testFunc{
		"defined":   is(func(v any) bool { return !isUndefined(v) }),
		"undefined": is(isUndefined),
		"none":      is(func(v any) bool { return v == nil }),
		"boolean":   is(func(v any) bool { return v == true || v == false }),
		"true":      is(func(v any) bool { return v == true }),
		"false":     is(func(v any) bool { return v == false }),
		"string":    is(func(v any) bool { _, ok := plain(v); return ok }),
		"number":    is(func(v any) bool { _, ok := asFloat(v); return ok }),
		"integer":   is(func(v any) bool { _, ok := v.(int64); return ok }),
		"float":     is(func(v any) bool { _, ok := v.(float64); return ok }),
		"mapping":   is(func(v any) bool { _, ok := v.(*Dict); return ok }),
		"sequence":  is(isSequence),
		"iterable":  is(isIterable),
		"callable":  is(isCallable),
		"escaped":   is(func(any) bool { return false }),
		"odd":       remainder(2, 1),
		"even":      remainder(2, 0),
		"divisibleby": func(_ *interp, v any, a args) (bool, error) {
			p, err := a.bind(1, "num")
			if err != nil {
				return false, err
			}
			return divisible(v, p[0])
		},
		"lower": func(in *interp, v any, _ args) (bool, error) {
			t, err := in.text(v)
			return isLower(t.s), err
		},
		"upper": func(in *interp, v any, _ args) (bool, error) {
			t, err := in.text(v)
			return isUpper(t.s), err
		},
		"filter": known(func(name string) bool { return filters[name] != nil }),
		"test":   known(func(name string) bool { return tests[name] != nil }),
		"sameas": sameAs,
		"in":     comparing("in"),
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"},
		"!=": {"!=", "ne"},
		"<":  {"<", "lt", "lessthan"},
		"<=": {"<=", "le"},
		">":  {">", "gt", "greaterthan"},
		">=": {">=", "ge"},
	} {
		for _, name := range names {
			tests[name] = comparing(op)
		}
	}
}

// is makes a test without arguments.
func is(f func(v any) bool) testFunc {
	return func(_ *interp, v any, a args) (bool, error) {
		_, err := a.bind(0)
		return f(v), err
	}
}

func isUndefined(v any) bool {
	_, ok := v.(*undefined)
	return ok
}

func isSequence(v any) bool {
	switch v.(type) {
	case string, Text, []any, Tuple, *Dict, *rangeValue, *undefined:
		return true
	}
	return false
}

func isIterable(v any) bool {
	switch v.(type) {
	case *iterator, *view, *loopState:
		return true
	}
	return isSequence(v)
}

func isCallable(v any) bool {
	switch v := v.(type) {
	case *function, *macro, *loopState, *undefined:
		return true // Jinja's Undefined has a __call__, which fails
	case *cycler:
		return v.joins
	}
	return false
}

func divisible(v, by any) (bool, error) {
	r, err := numberOp("%", v, by)
	if err != nil {
		return false, err
	}
	return !truth(r), nil
}

// numberOp is a op b for numbers only.
func numberOp(op string, a, b any) (any, error) {
	if u, ok := a.(*undefined); ok {
		return nil, u.fail()
	}
	x, xInt := asInt(a)
	y, yInt := asInt(b)
	if xInt && yInt {
		return intOp(op, x, y)
	}
	f, okA := asFloat(a)
	g, okB := asFloat(b)
	if !okA || !okB {
		return nil, failf("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	}
	return floatOp(op, f, g)
}

func remainder(by, want int64) testFunc {
	return func(_ *interp, v any, a args) (bool, error) {
		if _, err := a.bind(0); err != nil {
			return false, err
		}
		r, err := numberOp("%", v, by)
		if err != nil {
			return false, err
		}
		c, ok := compareNumbers(r, want)
		return ok && c == 0, nil
	}
}

// comparing makes a test of a comparison operator.
func comparing(op string) testFunc {
	return func(in *interp, v any, a args) (bool, error) {
		p, err := a.bind(1, "other")
		if err != nil {
			return false, err
		}
		return in.compareOp(op, v, p[0])
	}
}

// known makes a test of whether a name exists.
func known(has func(string) bool) testFunc {
	return func(_ *interp, v any, a args) (bool, error) {
		name, _ := plain(v)
		_, err := a.bind(0)
		return has(name), err
	}
}

// sameAs is Python's "is", which for the values of templates differs from ==
// in that the types must agree.
func sameAs(in *interp, v any, a args) (bool, error) {
	p, err := a.bind(1, "other")
	if err != nil || typeName(v) != typeName(p[0]) {
		return false, err
	}
	return in.equal(v, p[0])
}
