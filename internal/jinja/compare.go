package jinja

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// equal is Python's a == b.
func (in *interp) equal(a, b any) (bool, error) { return in.equalAt(a, b, 0) }

func (in *interp) equalAt(a, b any, depth int) (bool, error) {
	if depth > maxNesting {
		return false, errNesting
	}
	if err := in.charge(1); err != nil {
		return false, err
	}
	if x, ok := plain(a); ok {
		y, ok := plain(b)
		if !ok || len(x) != len(y) {
			return false, nil
		}
		return x == y, in.charge(len(x))
	}
	if c, ok := compareNumbers(a, b); ok {
		return c == 0, nil
	}
	switch a := a.(type) {
	case nil:
		return b == nil, nil
	case []any:
		b, ok := b.([]any)
		if !ok {
			return false, nil
		}
		return in.equalItems(a, b, depth)
	case Tuple:
		b, ok := b.(Tuple)
		if !ok {
			return false, nil
		}
		return in.equalItems(a, b, depth)
	case *Dict:
		b, ok := b.(*Dict)
		if !ok || a.Len() != b.Len() {
			return false, nil
		}
		for i, k := range a.keys {
			v, ok, err := in.get(b, k)
			if err != nil || !ok {
				return false, err
			}
			if eq, err := in.equalAt(a.vals[i], v, depth+1); err != nil || !eq {
				return false, err
			}
		}
		return true, nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	case *rangeValue:
		b, ok := b.(*rangeValue)
		if !ok || a.n != b.n {
			return false, nil
		}
		return a.n == 0 || a.start == b.start && (a.n == 1 || a.step == b.step), nil
	case *iterator, *namespace, *function, *macro, *loopState, *cycler, *view:
		return a == b, nil
	}
	return false, nil
}

func (in *interp) equalItems(a, b []any, depth int) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if eq, err := in.equalAt(a[i], b[i], depth+1); err != nil || !eq {
			return false, err
		}
	}
	return true, nil
}

// unordered is what compareNumbers gives for a NaN.
const unordered = 2

// compareNumbers orders two numbers; ok is false when either is none.
func compareNumbers(a, b any) (c int, ok bool) {
	x, xInt := asInt(a)
	y, yInt := asInt(b)
	if xInt && yInt {
		return cmp.Compare(x, y), true
	}
	f, okA := asFloat(a)
	g, okB := asFloat(b)
	switch {
	case !okA || !okB:
		return 0, false
	case math.IsNaN(f) || math.IsNaN(g):
		return unordered, true
	case xInt:
		return compareIntFloat(x, g), true
	case yInt:
		return -compareIntFloat(y, f), true
	}
	return cmp.Compare(f, g), true
}

// compareIntFloat compares without losing the low bits of n.
func compareIntFloat(n int64, f float64) int {
	switch {
	case f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	whole := math.Trunc(f)
	if c := cmp.Compare(n, int64(whole)); c != 0 {
		return c
	}
	return cmp.Compare(whole, f)
}

// compare orders a and b as Python's < does; op names the operator for the
// error.
func (in *interp) compare(op string, a, b any) (int, error) {
	return in.compareAt(op, a, b, 0)
}

func (in *interp) compareAt(op string, a, b any, depth int) (int, error) {
	if depth > maxNesting {
		return 0, errNesting
	}
	if err := in.charge(1); err != nil {
		return 0, err
	}
	if x, ok := plain(a); ok {
		if y, ok := plain(b); ok {
			return strings.Compare(x, y), in.charge(min(len(x), len(y)))
		}
	}
	if c, ok := compareNumbers(a, b); ok {
		return c, nil
	}
	x, okX := a.([]any)
	y, okY := b.([]any)
	if !okX || !okY {
		x, okX = a.(Tuple)
		y, okY = b.(Tuple)
	}
	if okX && okY {
		for i := range min(len(x), len(y)) {
			eq, err := in.equalAt(x[i], y[i], depth+1)
			if err != nil {
				return 0, err
			}
			if !eq {
				return in.compareAt(op, x[i], y[i], depth+1)
			}
		}
		return cmp.Compare(len(x), len(y)), nil
	}
	for _, v := range []any{a, b} {
		if u, ok := v.(*undefined); ok {
			return 0, u.fail()
		}
	}
	return 0, failf("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
}

// contains is Python's "item in box".
func (in *interp) contains(box, item any) (bool, error) {
	switch box := box.(type) {
	case string, Text:
		sub, ok := plain(item)
		if !ok {
			return false, failf("'in <string>' requires string as left operand, not %s", typeName(item))
		}
		s, _ := plain(box)
		if err := in.charge(len(s)); err != nil {
			return false, err
		}
		return strings.Contains(s, sub), nil
	case *Dict:
		_, ok, err := in.get(box, item)
		return ok, err
	case []any, Tuple, *iterator, *view, *rangeValue, *undefined:
		items, err := in.iterate(box)
		if err != nil {
			return false, err
		}
		for _, v := range items {
			if eq, err := in.equal(v, item); err != nil || eq {
				return eq, err
			}
		}
		return false, nil
	}
	return false, failf("argument of type '%s' is not iterable", typeName(box))
}

// sortValues sorts items by their keys, keeping the order of equal ones.
func (in *interp) sortValues(items, keys []any, reverse bool) ([]any, error) {
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	if err := in.charge(len(items) * itemCost); err != nil {
		return nil, err
	}
	var failed error
	slices.SortStableFunc(order, func(i, j int) int {
		if failed != nil {
			return 0
		}
		c, err := in.compare("<", keys[i], keys[j])
		if err != nil {
			failed = err
			return 0
		}
		if c == unordered {
			return 0
		}
		if reverse {
			return -c
		}
		return c
	})
	if failed != nil {
		return nil, failed
	}
	out := make([]any, len(items))
	for i, j := range order {
		out[i] = items[j]
	}
	return out, nil
}
