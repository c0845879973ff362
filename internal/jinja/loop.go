package jinja

// loopState is the "loop" of a for statement.
type loopState struct {
	items   []any
	i       int
	changed []any // arguments of the last loop.changed, nil before
}

func (s *forStmt) exec(in *interp) (control, error) {
	if err := in.enter(); err != nil {
		return ctlNone, in.at(s.pos, err)
	}
	defer in.leave()
	v, err := s.items.eval(in)
	if err != nil {
		return ctlNone, in.at(s.pos, err)
	}
	items, err := in.iterate(v)
	if err == nil && s.test != nil {
		items, err = s.filter(in, items)
	}
	if err != nil {
		return ctlNone, in.at(s.pos, err)
	}
	if len(items) == 0 {
		var ctl control
		err := in.inner(func() (err error) {
			ctl, err = in.run(s.orElse)
			return err
		})
		return ctl, err
	}
	loop := &loopState{items: items}
	for i, item := range items {
		if err := in.step(); err != nil {
			return ctlNone, in.at(s.pos, err)
		}
		loop.i = i
		var ctl control
		err := in.inner(func() (err error) {
			in.scope.set("loop", loop)
			if err := s.target.assign(in, item); err != nil {
				return in.at(s.pos, err)
			}
			ctl, err = in.run(s.body)
			return err
		})
		if err != nil {
			return ctlNone, err
		}
		if ctl == ctlBreak {
			break
		}
	}
	return ctlNone, nil
}

// filter returns the items for which the loop's own "if" holds.
func (s *forStmt) filter(in *interp, items []any) ([]any, error) {
	if err := in.charge(len(items) * itemCost); err != nil {
		return nil, err
	}
	var kept []any
	for _, item := range items {
		if err := in.step(); err != nil {
			return nil, err
		}
		err := in.inner(func() error {
			if err := s.target.assign(in, item); err != nil {
				return err
			}
			v, err := s.test.eval(in)
			if err == nil && truth(v) {
				kept = append(kept, item)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// attr returns an attribute of the loop object.
func (l *loopState) attr(name string) (any, bool) {
	n := len(l.items)
	switch name {
	case "index":
		return int64(l.i + 1), true
	case "index0":
		return int64(l.i), true
	case "revindex":
		return int64(n - l.i), true
	case "revindex0":
		return int64(n - l.i - 1), true
	case "first":
		return l.i == 0, true
	case "last":
		return l.i == n-1, true
	case "length":
		return int64(n), true
	case "depth": // counts recursive loops, of which there are none
		return int64(1), true
	case "depth0":
		return int64(0), true
	case "previtem":
		if l.i == 0 {
			return &undefined{"there is no previous item"}, true
		}
		return l.items[l.i-1], true
	case "nextitem":
		if l.i == n-1 {
			return &undefined{"there is no next item"}, true
		}
		return l.items[l.i+1], true
	case "cycle":
		return &function{"cycle", l.cycle}, true
	case "changed":
		return &function{"changed", l.hasChanged}, true
	}
	return nil, false
}

func (l *loopState) cycle(_ *interp, a args) (any, error) {
	if len(a.pos) == 0 {
		return nil, failf("loop.cycle needs at least one argument")
	}
	return a.pos[l.i%len(a.pos)], nil
}

func (l *loopState) hasChanged(in *interp, a args) (any, error) {
	if l.changed != nil {
		same, err := in.equal(l.changed, a.pos)
		if err != nil || same {
			return false, err
		}
	}
	l.changed = append(make([]any, 0, len(a.pos)+1), a.pos...)
	return true, nil
}
