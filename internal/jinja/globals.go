package jinja

// globals are the functions that a template can call; init fills it in.
var globals map[string]*function

func init() {
	globals = map[string]*function{}
	for name, call := range map[string]func(in *interp, a args) (any, error){
		"range":           rangeFunc,
		"dict":            dictFunc,
		"namespace":       namespaceFunc,
		"raise_exception": raiseFunc,
		"strftime_now":    strftimeFunc,
		"cycler":          cyclerFunc,
		"joiner":          joinerFunc,
	} {
		globals[name] = &function{name, call}
	}
}

func rangeFunc(_ *interp, a args) (any, error) {
	if len(a.kw) > 0 || len(a.pos) == 0 || len(a.pos) > 3 {
		return nil, failf("range takes 1 to 3 positional arguments")
	}
	var n [3]int64
	for i, v := range a.pos {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
		var ok bool
		if n[i], ok = asInt(v); !ok {
			return nil, failf("range: '%s' object cannot be interpreted as an integer", typeName(v))
		}
	}
	start, stop, step := n[0], n[1], n[2]
	switch len(a.pos) {
	case 1:
		start, stop, step = 0, n[0], 1
	case 2:
		step = 1
	}
	if step == 0 {
		return nil, failf("range: the step must not be zero")
	}
	// In unsigned arithmetic, since stop - start may not fit 64 bits.
	var size uint64
	if step > 0 && stop > start {
		size = (uint64(stop) - uint64(start) - 1) / uint64(step)
		size++
	}
	if step < 0 && stop < start {
		size = (uint64(start) - uint64(stop) - 1) / -uint64(step)
		size++
	}
	if size > maxRange {
		return nil, limitf("range: %d items are more than %d", size, maxRange)
	}
	return &rangeValue{start, stop, step, int(size)}, nil
}

// dictFrom builds a dict of a mapping or pairs, and of keyword arguments.
func dictFrom(in *interp, a args) (*Dict, error) {
	if len(a.pos) > 1 {
		return nil, failf("%s takes at most 1 positional argument (%d given)", a.name, len(a.pos))
	}
	d := NewDict()
	if len(a.pos) == 1 {
		if from, ok := a.pos[0].(*Dict); ok {
			d = from.Clone()
		} else {
			pairs, err := in.iterate(a.pos[0])
			if err != nil {
				return nil, err
			}
			for _, pair := range pairs {
				kv, err := in.iterate(pair)
				if err != nil {
					return nil, err
				}
				if len(kv) != 2 {
					return nil, failf("%s needs pairs of a key and a value, not %d values", a.name, len(kv))
				}
				if err := in.put(d, kv[0], kv[1]); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, k := range a.kw {
		d.Set(k.name, k.v)
	}
	return d, in.charge(2 * d.Len() * itemCost)
}

func dictFunc(in *interp, a args) (any, error) {
	d, err := dictFrom(in, a)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func namespaceFunc(in *interp, a args) (any, error) {
	d, err := dictFrom(in, a)
	if err != nil {
		return nil, err
	}
	return &namespace{d}, nil
}

func raiseFunc(in *interp, a args) (any, error) {
	p, err := a.bind(1, "message")
	if err != nil {
		return nil, err
	}
	t, err := in.str(p[0])
	if err != nil {
		return nil, err
	}
	return nil, &fault{Raised, t.s}
}

func strftimeFunc(in *interp, a args) (any, error) {
	p, err := a.bind(1, "format")
	if err != nil {
		return nil, err
	}
	format, err := stringArg("format", p[0])
	if err != nil {
		return nil, err
	}
	if err := in.charge(16 * len(format)); err != nil {
		return nil, err
	}
	return strftime(in.now(), format)
}

// A cycler gives its items in turn; a joiner, which shares the type, nothing
// the first time and then its separator.
type cycler struct {
	items []any
	i     int
	joins bool
}

func cyclerFunc(_ *interp, a args) (any, error) {
	if len(a.pos) == 0 || len(a.kw) > 0 {
		return nil, failf("cycler needs at least one item")
	}
	return &cycler{items: a.pos}, nil
}

func joinerFunc(_ *interp, a args) (any, error) {
	p, err := a.bind(0, "sep")
	if err != nil {
		return nil, err
	}
	return &cycler{items: []any{or(p[0], ", ")}, joins: true}, nil
}

func (c *cycler) join(a args) (any, error) {
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	if c.i == 0 {
		c.i = 1
		return "", nil
	}
	return c.items[0], nil
}

func (c *cycler) attr(name string) (any, bool) {
	if c.joins {
		return nil, false
	}
	switch name {
	case "current":
		return c.items[c.i], true
	case "next":
		return &function{"next", func(*interp, args) (any, error) {
			v := c.items[c.i]
			c.i = (c.i + 1) % len(c.items)
			return v, nil
		}}, true
	case "reset":
		return &function{"reset", func(*interp, args) (any, error) {
			c.i = 0
			return nil, nil
		}}, true
	}
	return nil, false
}
