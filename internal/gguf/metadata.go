package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The accessors below come in up to three forms. X(key) reports whether the key is
// there; XOr(key, def) returns def when it is not; NeedX(key) makes its absence an
// error. A key that is there with a value of another type is always an error, which
// names the key, the type found and the type wanted.

// Uint returns an integer of any width and sign that is not negative.
func (f *File) Uint(key string) (v uint64, ok bool, err error) {
	return lookup(f, key, "a non-negative integer", decodeUint)
}

// UintOr is Uint with a default.
func (f *File) UintOr(key string, def uint64) (uint64, error) {
	return orDefault(key, def, f.Uint)
}

// NeedUint is Uint for a key that must be there.
func (f *File) NeedUint(key string) (uint64, error) {
	return required(f, key, "a non-negative integer", f.Uint)
}

// Float returns a float32 or float64. Infinities and NaN are errors: no hyperparameter
// has a use for them.
func (f *File) Float(key string) (v float64, ok bool, err error) {
	return lookup(f, key, "a finite float", decodeFloat)
}

// FloatOr is Float with a default.
func (f *File) FloatOr(key string, def float64) (float64, error) {
	return orDefault(key, def, f.Float)
}

// NeedFloat is Float for a key that must be there.
func (f *File) NeedFloat(key string) (float64, error) {
	return required(f, key, "a finite float", f.Float)
}

// Bool returns a bool.
func (f *File) Bool(key string) (v, ok bool, err error) {
	return lookup(f, key, "a bool", decodeBool)
}

// BoolOr is Bool with a default.
func (f *File) BoolOr(key string, def bool) (bool, error) {
	return orDefault(key, def, f.Bool)
}

// String returns a string. It is copied, and may hold any bytes.
func (f *File) String(key string) (v string, ok bool, err error) {
	return lookup(f, key, "a string", decodeString)
}

// StringOr is String with a default.
func (f *File) StringOr(key, def string) (string, error) {
	return orDefault(key, def, f.String)
}

// NeedString is String for a key that must be there.
func (f *File) NeedString(key string) (string, error) {
	return required(f, key, "a string", f.String)
}

// Strings returns an array of strings. The strings share one copy of the array's bytes,
// which makes a vocabulary of 150,000 entries two allocations; keep the result rather
// than ask again.
func (f *File) Strings(key string) (v []string, ok bool, err error) {
	return lookup(f, key, "an array of strings", decodeStrings)
}

// Ints returns an array of integers of any width whose values fit an int32.
func (f *File) Ints(key string) (v []int32, ok bool, err error) {
	return lookup(f, key, "an array of 32-bit integers", decodeInts)
}

// Floats returns an array of float32 or float64, the latter rounded.
func (f *File) Floats(key string) (v []float32, ok bool, err error) {
	return lookup(f, key, "an array of floats", decodeFloats)
}

// lookup decodes the value of key. The decoder's second result is empty, or says what
// was found instead of what is wanted.
func lookup[T any](f *File, key, wanted string, decode func(Value) (T, string)) (v T, ok bool, err error) {
	value, ok := f.Value(key)
	if !ok {
		return v, false, nil
	}
	v, found := decode(value)
	if found != "" {
		return v, true, fmt.Errorf("gguf: %s: key %s is %s, wanted %s", f.Name, quote(key), found, wanted)
	}
	return v, true, nil
}

func orDefault[T any](key string, def T, get func(string) (T, bool, error)) (T, error) {
	v, ok, err := get(key)
	if !ok {
		return def, nil
	}
	return v, err
}

func required[T any](f *File, key, wanted string, get func(string) (T, bool, error)) (T, error) {
	v, ok, err := get(key)
	if !ok {
		return v, fmt.Errorf("gguf: %s: key %s is missing, wanted %s", f.Name, quote(key), wanted)
	}
	return v, err
}

func decodeUint(v Value) (uint64, string) {
	switch v.typ {
	case Uint8, Uint16, Uint32, Uint64:
		return v.uint(), ""
	case Int8, Int16, Int32, Int64:
		n := v.int()
		if n < 0 {
			return 0, fmt.Sprintf("%d (%s)", n, v.Kind())
		}
		return uint64(n), ""
	}
	return 0, v.Kind()
}

func decodeFloat(v Value) (float64, string) {
	var x float64
	switch v.typ {
	case Float32:
		x = float64(math.Float32frombits(binary.LittleEndian.Uint32(v.raw)))
	case Float64:
		x = math.Float64frombits(binary.LittleEndian.Uint64(v.raw))
	default:
		return 0, v.Kind()
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Sprint(x)
	}
	return x, ""
}

func decodeBool(v Value) (bool, string) {
	if v.typ != Bool {
		return false, v.Kind()
	}
	return v.raw[0] != 0, ""
}

func decodeString(v Value) (string, string) {
	if v.typ != String {
		return "", v.Kind()
	}
	return string(v.raw[stringHead:]), ""
}

func decodeStrings(v Value) ([]string, string) {
	if v.typ != Array || v.Elem() != String {
		return nil, v.Kind()
	}
	all := string(v.raw[arrayHead:])
	list := make([]string, v.Len())
	pos := 0
	for i := range list {
		n := int(binary.LittleEndian.Uint64(v.raw[arrayHead+pos:]))
		pos += stringHead
		list[i] = all[pos : pos+n]
		pos += n
	}
	return list, ""
}

func decodeInts(v Value) ([]int32, string) {
	var signed bool
	switch v.Elem() {
	case Uint8, Uint16, Uint32, Uint64:
	case Int8, Int16, Int32, Int64:
		signed = true
	default:
		return nil, v.Kind()
	}
	if v.typ != Array {
		return nil, v.Kind()
	}
	list := make([]int32, 0, v.Len())
	for e := range v.All() {
		if signed {
			n := e.int()
			if n < math.MinInt32 || n > math.MaxInt32 {
				return nil, fmt.Sprintf("%s, element %d is %d", v.Kind(), len(list), n)
			}
			list = append(list, int32(n))
			continue
		}
		n := e.uint()
		if n > math.MaxInt32 {
			return nil, fmt.Sprintf("%s, element %d is %d", v.Kind(), len(list), n)
		}
		list = append(list, int32(n))
	}
	return list, ""
}

func decodeFloats(v Value) ([]float32, string) {
	if v.typ != Array || v.Elem() != Float32 && v.Elem() != Float64 {
		return nil, v.Kind()
	}
	list := make([]float32, 0, v.Len())
	for e := range v.All() {
		if e.typ == Float32 {
			list = append(list, math.Float32frombits(binary.LittleEndian.Uint32(e.raw)))
		} else {
			list = append(list, float32(math.Float64frombits(binary.LittleEndian.Uint64(e.raw))))
		}
	}
	return list, ""
}
