package jinja

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
)

// A Dict is a mapping that keeps the order in which its keys were first set.
// The zero Dict is empty and ready for use. A render only reads the Dicts it
// is given, so that they may be shared by several renders at once.
type Dict struct {
	keys  []any
	vals  []any
	index map[any]int // from hash keys; nil while the Dict is small
}

// smallDict is the size up to which a linear search beats a map.
const smallDict = 8

// NewDict returns an empty Dict.
func NewDict() *Dict { return new(Dict) }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Get returns the value of key.
func (d *Dict) Get(key string) (any, bool) {
	i := d.find(key)
	if i < 0 {
		return nil, false
	}
	return d.vals[i], true
}

// Set gives key the value v, which must be of one of the types that
// [Template.Render] names; an int is stored as an int64.
func (d *Dict) Set(key string, v any) {
	if n, ok := v.(int); ok {
		v = int64(n)
	}
	d.put(key, key, v)
}

// Delete removes key.
func (d *Dict) Delete(key string) {
	i := d.find(key)
	if i < 0 {
		return
	}
	d.keys = slices.Delete(d.keys, i, i+1)
	d.vals = slices.Delete(d.vals, i, i+1)
	d.index = nil
	d.reindex()
}

// All yields the keys and values in order. A key that is no string, which only
// a template can make, comes out in Go's notation.
func (d *Dict) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i, k := range d.keys {
			s, ok := plain(k)
			if !ok {
				s = fmt.Sprint(k)
			}
			if !yield(s, d.vals[i]) {
				return
			}
		}
	}
}

// Clone returns a copy of d that shares its values.
func (d *Dict) Clone() *Dict {
	c := &Dict{keys: slices.Clone(d.keys), vals: slices.Clone(d.vals)}
	c.reindex()
	return c
}

// find returns the place of the hash key h, or -1.
func (d *Dict) find(h any) int {
	if d.index != nil {
		if i, ok := d.index[h]; ok {
			return i
		}
		return -1
	}
	for i, k := range d.keys {
		if kh, err := hashKey(k); err == nil && kh == h {
			return i
		}
	}
	return -1
}

func (d *Dict) put(h, key, v any) {
	if i := d.find(h); i >= 0 {
		d.vals[i] = v
		return
	}
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, v)
	if d.index != nil {
		d.index[h] = len(d.keys) - 1
	} else {
		d.reindex()
	}
}

func (d *Dict) reindex() {
	if len(d.keys) <= smallDict {
		return
	}
	d.index = make(map[any]int, len(d.keys))
	for i, k := range d.keys {
		if h, err := hashKey(k); err == nil {
			d.index[h] = i
		}
	}
}

// hash is hashKey, whose work it counts.
func (in *interp) hash(key any) (any, error) {
	if s, ok := plain(key); ok {
		return s, in.charge(len(s))
	}
	return hashKey(key)
}

// get returns the value of a key of any type.
func (in *interp) get(d *Dict, key any) (any, bool, error) {
	h, err := in.hash(key)
	if err != nil {
		return nil, false, err
	}
	if i := d.find(h); i >= 0 {
		return d.vals[i], true, nil
	}
	return nil, false, nil
}

// put sets a key of any type.
func (in *interp) put(d *Dict, key, v any) error {
	h, err := in.hash(key)
	if err == nil {
		d.put(h, key, v)
	}
	return err
}

// noneKey and tupleKey are the hash keys of None and of tuples.
type (
	noneKey  struct{}
	tupleKey string
)

// hashKey maps a value to a comparable Go value such that two values that are
// equal in Python (1, 1.0 and True) have the same key.
func hashKey(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case Text:
		return v.s, nil
	case nil:
		return noneKey{}, nil
	case bool, int64:
		n, _ := asInt(v)
		return n, nil
	case float64:
		if v == math.Trunc(v) && v >= -1<<63 && v < 1<<63 {
			return int64(v), nil
		}
		return v, nil
	case Tuple:
		var b strings.Builder
		for _, e := range v {
			if _, ok := e.(Tuple); ok {
				return nil, unsupportedf("a tuple that holds a tuple is not supported as a key")
			}
			h, err := hashKey(e)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "%T %q\n", h, fmt.Sprint(h))
		}
		return tupleKey(b.String()), nil
	case []any, *Dict, sliceKey:
		return nil, failf("unhashable type: '%s'", typeName(v))
	}
	return v, nil // pointers: identity
}
