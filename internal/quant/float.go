package quant

import "math"

// F16ToF32 converts an IEEE 754 half-precision number. Every half is exact in
// single precision; a signalling NaN becomes a quiet one, as VCVTPH2PS does it.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	mag := uint32(h & 0x7fff)
	switch {
	case mag > 0x7c00:
		return math.Float32frombits(sign | 0x7fc00000 | mag<<13)
	case mag == 0x7c00:
		return math.Float32frombits(sign | 0x7f800000)
	case mag >= 0x0400:
		return math.Float32frombits(sign | (mag<<13 + (127-15)<<23))
	}
	return math.Float32frombits(sign | math.Float32bits(float32(mag)*0x1p-24))
}

// F32ToF16 rounds to half precision, ties to even. What is too large becomes an
// infinity, what is too small a subnormal or a zero; a NaN stays a quiet NaN.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00 | uint16(b>>13)&0x03ff
	case b >= 0x477ff000: // 65520, halfway between the largest half and 2^16
		return sign | 0x7c00
	case b >= 0x38800000: // 2^-14, the smallest normal half
		b += 0x0fff + b>>13&1
		return sign | uint16((b-(127-15)<<23)>>13)
	}
	// Adding 0.5 leaves the multiple of 2^-24 in the low bits, correctly rounded.
	return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
}

// BF16ToF32 converts a bfloat16, the upper half of a single-precision number.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 rounds to bfloat16, ties to even; a NaN stays a quiet NaN.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x0040
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
