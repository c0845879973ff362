package jinja

import (
	"errors"
	"fmt"
	"time"
)

// Options are what a render may use besides its variables.
type Options struct {
	Limits Limits
	// Now is the clock of strftime_now; nil means time.Now.
	Now func() time.Time
}

// Render renders the template. Its variables, and the values in them, are
//
//	nil, bool, int64, float64, string, Text, []any, Tuple, *Dict
//
// and int, which counts as an int64. Lists and Dicts are only read. The error
// is an [*Error].
func (t *Template) Render(vars *Dict, o Options) (string, error) {
	text, err := t.RenderText(vars, o)
	return text.String(), err
}

// RenderText is Render that also tells which bytes of the result came from
// [Untrusted] text.
func (t *Template) RenderText(vars *Dict, o Options) (Text, error) {
	if vars == nil {
		vars = NewDict()
	}
	for name, v := range vars.All() {
		if err := checkValue(v, 0); err != nil {
			return Text{}, &Error{Kind: Runtime, Msg: fmt.Sprintf("variable %s: %v", name, err)}
		}
	}
	limits := o.Limits.withDefaults()
	in := &interp{
		src:    t.src,
		limits: limits,
		steps:  limits.Steps,
		work:   limits.Work,
		now:    o.Now,
		vars:   vars,
		scope:  &scope{},
		out:    &textBuilder{},
	}
	if in.now == nil {
		in.now = time.Now
	}
	if _, err := in.run(t.body); err != nil {
		return Text{}, in.at(0, err)
	}
	return in.out.text(), nil
}

// checkValue refuses values of types that templates do not know.
func checkValue(v any, depth int) error {
	if depth > maxNesting {
		return errNesting
	}
	switch v := v.(type) {
	case nil, bool, int64, float64, string, Text:
	case []any:
		for _, e := range v {
			if err := checkValue(e, depth+1); err != nil {
				return err
			}
		}
	case Tuple:
		return checkValue([]any(v), depth)
	case *Dict:
		if v == nil {
			return failf("a nil *Dict")
		}
		for _, e := range v.vals {
			if err := checkValue(e, depth+1); err != nil {
				return err
			}
		}
	default:
		return failf("a value of the Go type %T, which templates do not know", v)
	}
	return nil
}

// interp is the state of one render.
type interp struct {
	src    *source
	limits Limits
	steps  int // left
	work   int // left
	depth  int
	now    func() time.Time
	vars   *Dict
	scope  *scope
	out    *textBuilder
}

// A scope holds the names that a template has set: one for the template, one
// for each pass of a loop, each macro call and each block with a body of its
// own. "if" has none.
type scope struct {
	parent *scope
	names  map[string]any
}

func (s *scope) set(name string, v any) {
	if s.names == nil {
		s.names = make(map[string]any, 4)
	}
	s.names[name] = v
}

// lookup finds a name: in the scopes, then the variables, then the globals.
func (in *interp) lookup(name string) (any, bool) {
	for s := in.scope; s != nil; s = s.parent {
		if v, ok := s.names[name]; ok {
			return v, true
		}
	}
	if v, ok := in.vars.Get(name); ok {
		return v, true
	}
	f, ok := globals[name]
	return f, ok
}

// at adds a place to an error that has none yet.
func (in *interp) at(p pos, err error) error {
	if err == nil {
		return nil
	}
	var placed *Error
	if errors.As(err, &placed) {
		return err
	}
	var f *fault
	if errors.As(err, &f) {
		return in.src.errorf(f.kind, p, "%s", f.msg)
	}
	return in.src.errorf(Runtime, p, "%v", err)
}

// run executes statements up to a break or continue.
func (in *interp) run(body []stmt) (control, error) {
	for _, s := range body {
		if ctl, err := s.exec(in); err != nil || ctl != ctlNone {
			return ctl, err
		}
	}
	return ctlNone, nil
}

// inner runs f in a new scope.
func (in *interp) inner(f func() error) error {
	outer := in.scope
	in.scope = &scope{parent: outer}
	err := f()
	in.scope = outer
	return err
}

// capture runs body in a new scope and returns what it wrote.
func (in *interp) capture(body []stmt) (Text, control, error) {
	out := in.out
	in.out = &textBuilder{}
	var ctl control
	err := in.inner(func() (err error) {
		ctl, err = in.run(body)
		return err
	})
	text := in.out.text()
	in.out = out
	return text, ctl, err
}

// write appends to the output.
func (in *interp) write(t Text) error {
	if err := in.charge(len(t.s) + len(t.marks)*itemCost); err != nil {
		return err
	}
	if in.out.len()+len(t.s) > in.limits.Output {
		return limitf("the template writes more than %d bytes", in.limits.Output)
	}
	in.out.write(t)
	return nil
}

func (s *textStmt) exec(in *interp) (control, error) {
	return ctlNone, in.write(Text{s: s.text})
}

func (s *outputStmt) exec(in *interp) (control, error) {
	v, err := s.value.eval(in)
	if err != nil {
		return ctlNone, in.at(s.pos, err)
	}
	t, err := in.str(v)
	if err == nil {
		err = in.write(t)
	}
	return ctlNone, in.at(s.pos, err)
}

func (s *ifStmt) exec(in *interp) (control, error) {
	if err := in.enter(); err != nil {
		return ctlNone, in.at(s.pos, err)
	}
	defer in.leave()
	for _, b := range s.branches {
		v, err := b.test.eval(in)
		if err != nil {
			return ctlNone, in.at(s.pos, err)
		}
		if truth(v) {
			return in.run(b.body)
		}
	}
	return in.run(s.orElse)
}

func (s *setStmt) exec(in *interp) (control, error) {
	v, err := s.value.eval(in)
	if err == nil {
		err = in.step()
	}
	if err == nil {
		err = s.target.assign(in, v)
	}
	return ctlNone, in.at(s.pos, err)
}

func (s *setBlockStmt) exec(in *interp) (control, error) {
	v, err := in.filteredBlock(s.body, s.filters)
	if err == nil {
		err = s.target.assign(in, v)
	}
	return ctlNone, in.at(s.pos, err)
}

func (s *filterStmt) exec(in *interp) (control, error) {
	v, err := in.filteredBlock(s.body, s.filters)
	if err != nil {
		return ctlNone, in.at(s.pos, err)
	}
	t, err := in.str(v)
	if err == nil {
		err = in.write(t)
	}
	return ctlNone, in.at(s.pos, err)
}

// filteredBlock returns the output of body passed through filters.
func (in *interp) filteredBlock(body []stmt, filters []filterRef) (any, error) {
	if err := in.enter(); err != nil {
		return nil, err
	}
	defer in.leave()
	text, ctl, err := in.capture(body)
	if err == nil && ctl != ctlNone {
		err = unsupportedf("break or continue out of a set or filter block is not supported")
	}
	if err != nil {
		return nil, err
	}
	v := text.value()
	for i := range filters {
		if v, err = filters[i].apply(in, v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (s *withStmt) exec(in *interp) (control, error) {
	if err := in.enter(); err != nil {
		return ctlNone, in.at(s.pos, err)
	}
	defer in.leave()
	values := make([]any, len(s.values))
	for i, e := range s.values {
		var err error
		if values[i], err = e.eval(in); err != nil {
			return ctlNone, in.at(s.pos, err)
		}
	}
	var ctl control
	err := in.inner(func() (err error) {
		for i, to := range s.targets {
			if err := to.assign(in, values[i]); err != nil {
				return in.at(s.pos, err)
			}
		}
		ctl, err = in.run(s.body)
		return err
	})
	return ctl, err
}

func (s *scopeStmt) exec(in *interp) (ctl control, err error) {
	err = in.inner(func() (err error) {
		ctl, err = in.run(s.body)
		return err
	})
	return ctl, err
}

func (s *macroStmt) exec(in *interp) (control, error) {
	in.scope.set(s.def.name, &macro{def: s.def, scope: in.scope})
	return ctlNone, in.at(s.pos, in.step())
}

func (s *callStmt) exec(in *interp) (control, error) {
	caller := &macro{def: s.body, scope: in.scope}
	v, err := s.call.callWith(in, caller)
	if err != nil {
		return ctlNone, in.at(s.pos, err)
	}
	t, err := in.str(v)
	if err == nil {
		err = in.write(t)
	}
	return ctlNone, in.at(s.pos, err)
}

func (breakStmt) exec(*interp) (control, error)    { return ctlBreak, nil }
func (continueStmt) exec(*interp) (control, error) { return ctlContinue, nil }

func (t *nameTarget) assign(in *interp, v any) error {
	in.scope.set(t.name, v)
	return nil
}

func (t *tupleTarget) assign(in *interp, v any) error {
	items, err := in.iterate(v)
	if err != nil {
		return in.at(t.pos, failf("cannot unpack non-iterable %s object", typeName(v)))
	}
	if len(items) != len(t.items) {
		return in.at(t.pos, failf("cannot unpack %d values into %d names", len(items), len(t.items)))
	}
	for i, to := range t.items {
		if err := to.assign(in, items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *attrTarget) assign(in *interp, v any) error {
	base, _ := in.lookup(t.name)
	ns, ok := base.(*namespace)
	if !ok {
		return in.at(t.pos, failf("cannot assign attribute %q: %s is no namespace", t.attr, t.name))
	}
	if err := in.charge(itemCost); err != nil {
		return err
	}
	ns.attrs.Set(t.attr, v)
	return nil
}
