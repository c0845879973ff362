package modelfile

import (
	"encoding/binary"

	"baton/internal/quant"
)

// floatKind is how a floating-point field of a block is encoded.
type floatKind struct {
	bytes    int
	exponent uint64 // mask: all bits set means infinite or NaN
	mantissa uint64 // mask: zero then means infinite; no mask: always NaN
}

var (
	half     = floatKind{2, 0x7c00, 0x03ff}
	bfloat   = floatKind{2, 0x7f80, 0x007f}
	single   = floatKind{4, 0x7f80_0000, 0x007f_ffff}
	double   = floatKind{8, 0x7ff0_0000_0000_0000, 0x000f_ffff_ffff_ffff}
	exponent = floatKind{1, 0xff, 0} // E8M0
)

type field struct {
	offset int // in the block
	kind   floatKind
}

// floatFields lists where the blocks of each type hold floating-point numbers: the
// elements themselves, or the scales (and minima) of quantized ones. The layouts are
// those of ggml-common.h. Integer types have none, IQ1_M is special: iq1mScale.
var floatFields = map[quant.Type][]field{
	quant.F32:  {{0, single}},
	quant.F16:  {{0, half}},
	quant.BF16: {{0, bfloat}},
	28:         {{0, double}}, // F64
	quant.Q4_0: {{0, half}},
	3:          {{0, half}, {2, half}}, // Q4_1
	6:          {{0, half}},            // Q5_0
	7:          {{0, half}, {2, half}}, // Q5_1
	quant.Q8_0: {{0, half}},
	9:          {{0, half}, {2, half}},   // Q8_1
	10:         {{80, half}, {82, half}}, // Q2_K
	11:         {{108, half}},            // Q3_K
	quant.Q4_K: {{0, half}, {2, half}},
	13:         {{0, half}, {2, half}}, // Q5_K
	quant.Q6_K: {{208, half}},
	15:         {{0, single}},   // Q8_K
	16:         {{0, half}},     // IQ2_XXS
	17:         {{0, half}},     // IQ2_XS
	18:         {{0, half}},     // IQ3_XXS
	19:         {{0, half}},     // IQ1_S
	20:         {{0, half}},     // IQ4_NL
	21:         {{0, half}},     // IQ3_S
	22:         {{0, half}},     // IQ2_S
	23:         {{0, half}},     // IQ4_XS
	34:         {{52, half}},    // TQ1_0
	35:         {{64, half}},    // TQ2_0
	39:         {{0, exponent}}, // MXFP4
}

const iq1m = quant.Type(29)

// nonFinite counts what is no number in the floats of a run of blocks.
type nonFinite struct {
	nan, inf uint64
	first    uint64 // block of the first one
}

func (c *nonFinite) any() bool { return c.nan+c.inf > 0 }

// add counts the floats in data, whole blocks of type t of which the first is number
// base of the tensor.
func (c *nonFinite) add(t quant.Type, data []byte, base uint64) {
	format, ok := t.Format()
	if !ok {
		return
	}
	if t == iq1m {
		for i := 0; i+format.Bytes <= len(data); i += format.Bytes {
			c.note(uint64(iq1mScale(data[i:i+format.Bytes])), half, base+uint64(i/format.Bytes))
		}
		return
	}
	for _, f := range floatFields[t] {
		for i := f.offset; i+f.kind.bytes <= len(data); i += format.Bytes {
			var x uint64
			switch f.kind.bytes {
			case 1:
				x = uint64(data[i])
			case 2:
				x = uint64(binary.LittleEndian.Uint16(data[i:]))
			case 4:
				x = uint64(binary.LittleEndian.Uint32(data[i:]))
			case 8:
				x = binary.LittleEndian.Uint64(data[i:])
			}
			if x&f.kind.exponent == f.kind.exponent {
				c.note(x, f.kind, base+uint64(i/format.Bytes))
			}
		}
	}
}

// note counts x if it is infinite or NaN.
func (c *nonFinite) note(x uint64, kind floatKind, block uint64) {
	if x&kind.exponent != kind.exponent {
		return
	}
	if !c.any() || block < c.first {
		c.first = block
	}
	if kind.mantissa != 0 && x&kind.mantissa == 0 {
		c.inf++
	} else {
		c.nan++
	}
}

// iq1mScale puts together the f16 scale of an IQ1_M block, which lies in the upper four
// bits of four 16-bit words at its end.
func iq1mScale(block []byte) uint16 {
	var scale uint16
	for i := range 4 {
		word := binary.LittleEndian.Uint16(block[48+2*i:])
		scale |= word >> 12 << (4 * i)
	}
	return scale
}

// allZero reports whether b holds nothing but zeros.
func allZero(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
	}
	var rest uint64
	for _, x := range b {
		rest |= uint64(x)
	}
	return rest == 0
}
