// Package quant knows the element and block formats of GGUF tensors: how many
// elements a block holds, how many bytes it takes, and how to decode and encode it
// in plain Go. The decoders are the reference that every fast kernel is tested
// against.
//
// It knows nothing of files, matrices or threads.
package quant

import "fmt"

// Type is a GGUF tensor type, with the numbers that the file format fixes
// (ggml.h, enum ggml_type).
type Type uint32

// The types that Baton computes with.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q8_0 Type = 8
	Q4_K Type = 12
	Q6_K Type = 14
	BF16 Type = 30
)

// Format describes how a type lies in memory.
type Format struct {
	Name  string
	Elems int  // elements a block
	Bytes int  // bytes a block
	Known bool // Baton can decode it; false: only its size is known
}

// formats holds every type of the file format whose size we know, so that a file
// with a type that we cannot compute with can still be inspected and verified.
var formats = map[Type]Format{
	F32:  {"F32", 1, 4, true},
	F16:  {"F16", 1, 2, true},
	Q4_0: {"Q4_0", 32, 18, true},
	3:    {"Q4_1", 32, 20, false},
	6:    {"Q5_0", 32, 22, false},
	7:    {"Q5_1", 32, 24, false},
	Q8_0: {"Q8_0", 32, 34, true},
	9:    {"Q8_1", 32, 36, false},
	10:   {"Q2_K", 256, 84, false},
	11:   {"Q3_K", 256, 110, false},
	Q4_K: {"Q4_K", 256, 144, true},
	13:   {"Q5_K", 256, 176, false},
	Q6_K: {"Q6_K", 256, 210, true},
	15:   {"Q8_K", 256, 292, false},
	16:   {"IQ2_XXS", 256, 66, false},
	17:   {"IQ2_XS", 256, 74, false},
	18:   {"IQ3_XXS", 256, 98, false},
	19:   {"IQ1_S", 256, 50, false},
	20:   {"IQ4_NL", 32, 18, false},
	21:   {"IQ3_S", 256, 110, false},
	22:   {"IQ2_S", 256, 82, false},
	23:   {"IQ4_XS", 256, 136, false},
	24:   {"I8", 1, 1, false},
	25:   {"I16", 1, 2, false},
	26:   {"I32", 1, 4, false},
	27:   {"I64", 1, 8, false},
	28:   {"F64", 1, 8, false},
	29:   {"IQ1_M", 256, 56, false},
	BF16: {"BF16", 1, 2, true},
	34:   {"TQ1_0", 256, 54, false},
	35:   {"TQ2_0", 256, 66, false},
	39:   {"MXFP4", 32, 17, false},
}

// Format returns how t lies in memory; ok is false for a number that no type has.
func (t Type) Format() (f Format, ok bool) {
	f, ok = formats[t]
	return f, ok
}

// Supported reports whether Baton can compute with t.
func (t Type) Supported() bool { return formats[t].Known }

func (t Type) String() string {
	if f, ok := formats[t]; ok {
		return f.Name
	}
	return fmt.Sprintf("type(%d)", uint32(t))
}

// RowBytes is the size in bytes of a row of n elements. n must be a multiple of the
// type's block.
func RowBytes(t Type, n int) (int, error) {
	f, ok := formats[t]
	if !ok {
		return 0, fmt.Errorf("quant: unknown tensor type %d", uint32(t))
	}
	if n < 0 || n%f.Elems != 0 {
		return 0, fmt.Errorf("quant: a row of %d elements is not a whole number of %s blocks of %d", n, f.Name, f.Elems)
	}
	return n / f.Elems * f.Bytes, nil
}
