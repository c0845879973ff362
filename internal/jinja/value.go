package jinja

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// A Tuple is a Python tuple; a list is a []any.
type Tuple []any

// undefined is the value of a name, attribute or item that does not exist. It
// prints as nothing, is false and has no items; any other use is an error that
// gives msg.
type undefined struct{ msg string }

func (u *undefined) fail() error { return failf("%s", u.msg) }

// absent stands for an argument that a call did not give, or for the end of a
// slice that was left out; no expression ever has it as its value.
type absent struct{}

// An iterator is what a Python generator is: it is true, has no length, and can
// be gone through once.
type iterator struct{ items []any }

func (it *iterator) take() []any {
	items := it.items
	it.items = nil
	return items
}

// A view is a dict's keys(), values() or items().
type view struct {
	kind  string // dict_keys, dict_values, dict_items
	items []any
}

// A span of integers, what Python's range gives.
type rangeValue struct {
	start, stop, step int64
	n                 int
}

func (r *rangeValue) at(i int) int64 { return r.start + int64(i)*r.step }

func (r *rangeValue) items() []any {
	out := make([]any, r.n)
	for i := range out {
		out[i] = r.at(i)
	}
	return out
}

// A namespace is the object whose attributes {% set ns.x = ... %} can set: the
// only value that a template can change.
type namespace struct{ attrs *Dict }

// sliceKey is the value between the brackets of x[a:b:c].
type sliceKey struct{ start, stop, step any }

// typeName returns Python's name of v's type.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string, Text:
		return "str"
	case []any:
		return "list"
	case Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *undefined:
		return "Undefined"
	case *iterator:
		return "generator"
	case *view:
		return v.kind
	case *rangeValue:
		return "range"
	case *namespace:
		return "Namespace"
	case *function:
		return "function"
	case *macro:
		return "Macro"
	case *loopState:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case sliceKey:
		return "slice"
	}
	return "object"
}

// textOf returns v as a Text when it is a string.
func textOf(v any) (Text, bool) {
	switch v := v.(type) {
	case string:
		return Text{s: v}, true
	case Text:
		return v, true
	}
	return Text{}, false
}

// plain returns v as a Go string when it is a string.
func plain(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Text:
		return v.s, true
	}
	return "", false
}

// asInt returns v as an integer when it is an int or a bool.
func asInt(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// asFloat returns v as a float when it is any number.
func asFloat(v any) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	n, ok := asInt(v)
	return float64(n), ok
}

// truth is Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	}
	if n, ok := length(v); ok {
		return n > 0
	}
	return true
}

// length is Python's len(v), where v has one. For strings it is enough of an
// answer for truth; lenFilter counts code points.
func length(v any) (int, bool) {
	switch v := v.(type) {
	case string:
		return len(v), true
	case Text:
		return len(v.s), true
	case []any:
		return len(v), true
	case Tuple:
		return len(v), true
	case *Dict:
		return v.Len(), true
	case *view:
		return len(v.items), true
	case *rangeValue:
		return v.n, true
	case *undefined:
		return 0, true
	case *loopState:
		return len(v.items), true
	}
	return 0, false
}

// iterate returns the items of v as a slice, which must not be changed.
func (in *interp) iterate(v any) ([]any, error) {
	switch v := v.(type) {
	case []any:
		return v, nil
	case Tuple:
		return v, nil
	case *Dict:
		return v.keys, nil
	case *view:
		return v.items, nil
	case *iterator:
		return v.take(), nil
	case *undefined:
		return nil, nil
	case *rangeValue:
		if err := in.charge(v.n * itemCost); err != nil {
			return nil, err
		}
		return v.items(), nil
	case string, Text:
		t, _ := textOf(v)
		if err := in.charge(len(t.s) * itemCost); err != nil {
			return nil, err
		}
		items := make([]any, 0, len(t.s))
		for i, r := range t.s {
			items = append(items, t.slice(i, i+runeBytes(t.s[i:], r)).value())
		}
		return items, nil
	}
	return nil, failf("'%s' object is not iterable", typeName(v))
}

// maxNesting is how deep values may lie in each other where an operation has
// to go through all of them.
const maxNesting = 500

var errNesting = limitf("values are nested more than %d deep", maxNesting)

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
