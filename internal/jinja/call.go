package jinja

import "slices"

// args are the arguments of a call.
type args struct {
	name string // of what is called, for errors
	pos  []any
	kw   []kwarg
}

type kwarg struct {
	name string
	v    any
}

// A function is a global, a bound method or another builtin that can be called.
type function struct {
	name string
	call func(in *interp, a args) (any, error)
}

// A macro is a macro with the scope it was defined in.
type macro struct {
	def   *macroDef
	scope *scope
}

// bind lays the arguments out as the named parameters, of which the first
// required ones must be given; the others are absent{} when they are not.
func (a args) bind(required int, params ...string) ([]any, error) {
	if len(a.pos) > len(params) {
		return nil, failf("%s() takes at most %d arguments (%d given)", a.name, len(params), len(a.pos))
	}
	out := make([]any, len(params))
	for i := range out {
		out[i] = absent{}
	}
	copy(out, a.pos)
	for _, k := range a.kw {
		i := slices.Index(params, k.name)
		if i < 0 {
			return nil, failf("%s() got an unexpected keyword argument '%s'", a.name, k.name)
		}
		if i < len(a.pos) {
			return nil, failf("%s() got multiple values for argument '%s'", a.name, k.name)
		}
		out[i] = k.v
	}
	for i := range required {
		if out[i] == (absent{}) {
			return nil, failf("%s() is missing its argument '%s'", a.name, params[i])
		}
	}
	return out, nil
}

// or returns v, or def when v is absent.
func or(v, def any) any {
	if _, ok := v.(absent); ok {
		return def
	}
	return v
}

func isAbsent(v any) bool {
	_, ok := v.(absent)
	return ok
}

// eval evaluates the arguments of a call.
func (a *arguments) eval(in *interp, p pos) (args, error) {
	var out args
	if len(a.pos) > 0 {
		var err error
		if out.pos, err = in.evalAll(p, a.pos); err != nil {
			return out, err
		}
	}
	for _, k := range a.kw {
		v, err := in.operand(p, k.value)
		if err != nil {
			return out, err
		}
		out.kw = append(out.kw, kwarg{k.name, v})
	}
	if a.star != nil {
		v, err := in.operand(p, a.star)
		if err != nil {
			return out, err
		}
		items, err := in.iterate(v)
		if err == nil {
			err = in.charge(len(items) * itemCost)
		}
		if err != nil {
			return out, in.at(p, err)
		}
		out.pos = append(out.pos, items...)
	}
	if a.starred != nil {
		v, err := in.operand(p, a.starred)
		if err != nil {
			return out, err
		}
		d, ok := v.(*Dict)
		if !ok {
			return out, in.at(p, failf("argument after ** must be a mapping, not %s", typeName(v)))
		}
		if err := in.charge(d.Len() * itemCost); err != nil {
			return out, in.at(p, err)
		}
		for i, k := range d.keys {
			name, ok := plain(k)
			if !ok {
				return out, in.at(p, failf("keywords must be strings"))
			}
			for _, given := range a.kw {
				if given.name == name {
					return out, in.at(p, failf("got multiple values for keyword argument '%s'", name))
				}
			}
			out.kw = append(out.kw, kwarg{name, d.vals[i]})
		}
	}
	return out, nil
}

func (e *callExpr) eval(in *interp) (any, error) { return e.callWith(in, nil) }

// callWith runs the call; caller is what {% call %} passes, or nil.
func (e *callExpr) callWith(in *interp, caller *macro) (any, error) {
	fn, err := in.operand(e.pos, e.fn)
	if err != nil {
		return nil, err
	}
	a, err := e.args.eval(in, e.pos)
	if err != nil {
		return nil, err
	}
	if caller != nil {
		a.kw = append(a.kw, kwarg{"caller", caller})
	}
	v, err := in.call(fn, a)
	return v, in.at(e.pos, err)
}

// call calls any value.
func (in *interp) call(fn any, a args) (any, error) {
	if err := in.enter(); err != nil {
		return nil, err
	}
	defer in.leave()
	switch fn := fn.(type) {
	case *function:
		a.name = fn.name
		return fn.call(in, a)
	case *macro:
		return fn.call(in, a)
	case *cycler:
		if fn.joins {
			return fn.join(a)
		}
	case *undefined:
		return nil, fn.fail()
	case *loopState:
		return nil, unsupportedf("calling loop, as in recursive loops, is not supported")
	}
	return nil, failf("'%s' object is not callable", typeName(fn))
}

// call runs the macro and returns what it writes.
func (m *macro) call(in *interp, a args) (any, error) {
	d := m.def
	outerScope, outerOut := in.scope, in.out
	defer func() { in.scope, in.out = outerScope, outerOut }()
	in.scope = &scope{parent: m.scope}
	in.out = &textBuilder{}

	given := make([]bool, len(d.params))
	for i, v := range a.pos[:min(len(a.pos), len(d.params))] {
		in.scope.set(d.params[i], v)
		given[i] = true
	}
	if rest := a.pos[min(len(a.pos), len(d.params)):]; d.usesVarargs {
		in.scope.set("varargs", Tuple(rest))
	} else if len(rest) > 0 {
		return nil, failf("macro '%s' takes not more than %d argument(s)", d.name, len(d.params))
	}
	more := NewDict()
	var caller any = &undefined{"no caller defined"}
	for _, k := range a.kw {
		i := slices.Index(d.params, k.name)
		switch {
		case i >= 0 && given[i]:
			return nil, failf("macro '%s' got multiple values for argument '%s'", d.name, k.name)
		case i >= 0:
			in.scope.set(k.name, k.v)
			given[i] = true
		case k.name == "caller" && d.usesCaller:
			caller = k.v
		case d.usesKwargs:
			more.Set(k.name, k.v)
		default:
			return nil, failf("macro '%s' takes no keyword argument '%s'", d.name, k.name)
		}
	}
	if d.usesKwargs {
		in.scope.set("kwargs", more)
	}
	if d.usesCaller && !slices.Contains(d.params, "caller") {
		in.scope.set("caller", caller)
	}
	for i, name := range d.params {
		if given[i] {
			continue
		}
		var v any = &undefined{"parameter '" + name + "' was not provided"}
		if j := i - (len(d.params) - len(d.defaults)); j >= 0 {
			var err error
			if v, err = d.defaults[j].eval(in); err != nil {
				return nil, err
			}
		}
		in.scope.set(name, v)
	}
	if _, err := in.run(d.body); err != nil {
		return nil, err
	}
	return in.out.text().value(), nil
}
