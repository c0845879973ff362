package jinja

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
