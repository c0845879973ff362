package gguf

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// ValueType is the type of a metadata value, with the numbers that the format fixes.
type ValueType uint32

// The metadata value types.
const (
	Uint8 ValueType = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
	numValueTypes
)

var valueTypes = [numValueTypes]struct {
	name string
	size uint64 // encoded bytes; the least possible for strings and arrays
}{
	Uint8: {"uint8", 1}, Int8: {"int8", 1},
	Uint16: {"uint16", 2}, Int16: {"int16", 2},
	Uint32: {"uint32", 4}, Int32: {"int32", 4},
	Float32: {"float32", 4}, Bool: {"bool", 1},
	String: {"string", stringHead}, Array: {"array", arrayHead},
	Uint64: {"uint64", 8}, Int64: {"int64", 8}, Float64: {"float64", 8},
}

const (
	stringHead = 8  // length
	arrayHead  = 12 // element type, count
)

func (t ValueType) String() string {
	if t < numValueTypes {
		return valueTypes[t].name
	}
	return fmt.Sprintf("value type %d", uint32(t))
}

// Value is one metadata value. It refers to the file's header and decodes on demand, so
// that passing it around costs nothing, however long an array it is.
type Value struct {
	typ ValueType
	raw []byte // the encoding that follows the type; checked by the parser
}

// Type returns the type of v.
func (v Value) Type() ValueType { return v.typ }

// Elem returns the element type of an array, and v's own type otherwise.
func (v Value) Elem() ValueType {
	if v.typ == Array {
		return ValueType(binary.LittleEndian.Uint32(v.raw))
	}
	return v.typ
}

// Len returns the number of elements of an array, and 1 otherwise.
func (v Value) Len() int {
	if v.typ == Array {
		return int(binary.LittleEndian.Uint64(v.raw[4:]))
	}
	return 1
}

// Kind describes the type for messages: "uint32", or "array of 3 strings".
func (v Value) Kind() string {
	if v.typ == Array {
		return fmt.Sprintf("array of %d %s", v.Len(), v.Elem())
	}
	return v.typ.String()
}

// All yields the elements of an array in order, and v itself otherwise.
func (v Value) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.typ != Array {
			yield(v)
			return
		}
		elem, rest := v.Elem(), v.raw[arrayHead:]
		for range v.Len() {
			n := encodedLen(elem, rest)
			if !yield(Value{elem, rest[:n:n]}) {
				return
			}
			rest = rest[n:]
		}
	}
}

// Any returns a scalar as uint64, int64, float32, float64, bool or string (a copy), and
// nil for an array.
func (v Value) Any() any {
	switch v.typ {
	case Uint8, Uint16, Uint32, Uint64:
		return v.uint()
	case Int8, Int16, Int32, Int64:
		return v.int()
	case Float32:
		return math.Float32frombits(binary.LittleEndian.Uint32(v.raw))
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.raw))
	case Bool:
		return v.raw[0] != 0
	case String:
		return string(v.raw[stringHead:])
	}
	return nil
}

// uint decodes an unsigned integer.
func (v Value) uint() uint64 {
	switch len(v.raw) {
	case 1:
		return uint64(v.raw[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(v.raw))
	case 4:
		return uint64(binary.LittleEndian.Uint32(v.raw))
	}
	return binary.LittleEndian.Uint64(v.raw)
}

// int decodes a signed integer.
func (v Value) int() int64 {
	unused := 64 - 8*len(v.raw)
	return int64(v.uint()<<unused) >> unused
}

// encodedLen is the length of the value of type t at the start of b, which the parser
// has checked. The parser bounds the recursion.
func encodedLen(t ValueType, b []byte) int {
	switch t {
	case String:
		return stringHead + int(binary.LittleEndian.Uint64(b))
	case Array:
		elem, n := ValueType(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint64(b[4:]))
		if elem != String && elem != Array {
			return arrayHead + n*int(valueTypes[elem].size)
		}
		end := arrayHead
		for range n {
			end += encodedLen(elem, b[end:])
		}
		return end
	}
	return int(valueTypes[t].size)
}
