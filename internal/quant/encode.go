package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Encode converts src to type t; dst must be exactly as long as a row of len(src)
// elements. Q8_0 and Q4_0 give the same bytes as ggml's reference quantizers; Q4_K
// and Q6_K search for the scales that give the smallest weighted square error, and
// their bytes are our own. A block type refuses numbers that are not finite or too
// large for its half-precision scale; dst is then partly written.
func Encode(t Type, dst []byte, src []float32) error {
	if err := checkRow(t, len(src), len(dst)); err != nil {
		return err
	}
	switch t {
	case F32:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
		return nil
	case F16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(v))
		}
		return nil
	case BF16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(v))
		}
		return nil
	case Q8_0:
		return encodeBlocks(t, dst, src, encodeQ8_0)
	case Q4_0:
		return encodeBlocks(t, dst, src, encodeQ4_0)
	case Q4_K:
		return encodeBlocks(t, dst, src, encodeQ4_K)
	default: // checkRow let through only the types that we know
		return encodeBlocks(t, dst, src, encodeQ6_K)
	}
}

// encodeBlocks calls encode for each block and stops at the first number that the
// type cannot hold.
func encodeBlocks(t Type, dst []byte, src []float32, encode func(b []byte, x []float32) bool) error {
	f := formats[t]
	for i := 0; i < len(src); i += f.Elems {
		x := src[i:][:f.Elems]
		for j, v := range x {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("quant: element %d is %v, %s holds finite numbers only", i+j, v, f.Name)
			}
		}
		if !encode(dst[i/f.Elems*f.Bytes:][:f.Bytes], x) {
			return fmt.Errorf("quant: block at element %d needs a scale above %g, the largest that %s can hold", i, maxHalf, f.Name)
		}
	}
	return nil
}

const (
	maxHalf   = 65504.0
	minNormal = 0x1p-126 // the smallest normal float32
)

// putHalf writes f as f16; ok is false if it overflows.
func putHalf(b []byte, f float32) (ok bool) {
	h := F32ToF16(f)
	binary.LittleEndian.PutUint16(b, h)
	return h&0x7c00 != 0x7c00
}

// inverse is 1/d, and 0 where that would overflow: numbers that small count as zero.
func inverse(d float32) float32 {
	if d < minNormal && d > -minNormal {
		return 0
	}
	return 1 / d
}

// extreme returns the element of largest magnitude, the first on ties, with its sign.
func extreme(x []float32) (e float32) {
	for _, v := range x {
		if math.Abs(float64(v)) > math.Abs(float64(e)) {
			e = v
		}
	}
	return e
}

func encodeQ8_0(b []byte, x []float32) bool {
	amax := float32(math.Abs(float64(extreme(x))))
	d := amax / 127
	id := inverse(d)
	for i, v := range x {
		b[2+i] = byte(int8(math.Round(float64(v * id))))
	}
	return putHalf(b, d)
}

// encodeQ4_0 maps the element of largest magnitude to -8, the end of the range that
// reaches farther.
func encodeQ4_0(b []byte, x []float32) bool {
	d := extreme(x) / -8
	id := inverse(d)
	level := func(v float32) byte { return byte(min(15, int(float32(v*id)+8.5))) }
	for i := range 16 {
		b[2+i] = level(x[i]) | level(x[i+16])<<4
	}
	return putHalf(b, d)
}
