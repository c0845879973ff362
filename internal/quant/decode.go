package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Decode converts the len(dst) elements that src holds to float32. src must be
// exactly as long as a row of that many elements.
//
// The layouts are those of ggml (ggml-common.h and the reference dequantizers in
// ggml-quants.c); each decoder states its own.
func Decode(t Type, dst []float32, src []byte) error {
	if err := checkRow(t, len(dst), len(src)); err != nil {
		return err
	}
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case Q8_0:
		eachBlock(dst, src, 32, 34, decodeQ8_0)
	case Q4_0:
		eachBlock(dst, src, 32, 18, decodeQ4_0)
	case Q4_K:
		eachBlock(dst, src, 256, 144, decodeQ4_K)
	case Q6_K:
		eachBlock(dst, src, 256, 210, decodeQ6_K)
	}
	return nil
}

// checkRow reports why a row of n elements of type t cannot lie in size bytes.
func checkRow(t Type, n, size int) error {
	if !t.Supported() {
		return fmt.Errorf("quant: cannot compute with tensor type %s", t)
	}
	want, err := RowBytes(t, n)
	if err != nil {
		return err
	}
	if size != want {
		return fmt.Errorf("quant: %d elements of %s take %d bytes, got %d", n, t, want, size)
	}
	return nil
}

// eachBlock calls decode for each block of elems elements in size bytes.
func eachBlock(dst []float32, src []byte, elems, size int, decode func(y []float32, b []byte)) {
	for len(dst) > 0 {
		decode(dst[:elems], src[:size])
		dst, src = dst[elems:], src[size:]
	}
}

func half(b []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(b)) }

// decodeQ8_0: f16 d; int8 q[32]. y = d*q.
func decodeQ8_0(y []float32, b []byte) {
	d := half(b)
	for i := range y {
		y[i] = d * float32(int8(b[2+i]))
	}
}

// decodeQ4_0: f16 d; 16 bytes of two 4-bit numbers, byte i holding elements i (low
// half) and i+16 (high half). y = d*(q-8).
func decodeQ4_0(y []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:18] {
		y[i] = d * float32(int(q&15)-8)
		y[i+16] = d * float32(int(q>>4)-8)
	}
}

// ScaleMinQ4K returns the 6-bit scale and minimum of sub-block j (0..7) of a Q4_K
// block from its 12 packed bytes. Bytes 0-3 hold the scales of sub-blocks 0-3 in
// their low six bits, bytes 4-7 the minima; bytes 8-11 hold the low four bits of the
// scales (low half) and minima (high half) of sub-blocks 4-7, whose upper two bits
// are the top bits of bytes 0-7.
func ScaleMinQ4K(packed []byte, j int) (scale, minimum uint8) {
	if j < 4 {
		return packed[j] & 63, packed[j+4] & 63
	}
	return packed[j+4]&15 | packed[j-4]>>6<<4, packed[j+4]>>4 | packed[j]>>6<<4
}

// decodeQ4_K: f16 d; f16 dmin; 12 bytes of scales and minima (see ScaleMinQ4K); 128
// bytes of 4-bit numbers, 32 bytes for each pair of sub-blocks of 32 elements, the
// first of the pair in the low halves. y = d*scale*q - dmin*min.
func decodeQ4_K(y []float32, b []byte) {
	d, dmin, packed := half(b), half(b[2:]), b[4:16]
	for j := 0; j < 8; j += 2 {
		q := b[16+16*j:][:32]
		s0, m0 := ScaleMinQ4K(packed, j)
		s1, m1 := ScaleMinQ4K(packed, j+1)
		lo, hi := y[32*j:][:32], y[32*j+32:][:32]
		for i, v := range q {
			lo[i] = float32(d*float32(s0)*float32(v&15)) - dmin*float32(m0)
			hi[i] = float32(d*float32(s1)*float32(v>>4)) - dmin*float32(m1)
		}
	}
}

// decodeQ6_K: 128 bytes of lower four bits, 64 bytes of upper two bits, 16 int8
// scales (one for 16 elements), f16 d. y = d*scale*(q-32). Each half of the block
// (128 elements) takes 64 low bytes and 32 high bytes: element 32g+i has its low bits
// in byte i (g even) or i+32 (g odd), in the low half for g < 2, and its high bits in
// bits 2g and 2g+1 of byte i.
func decodeQ6_K(y []float32, b []byte) {
	d := half(b[208:])
	for h := range 2 {
		low, high, scales := b[64*h:][:64], b[128+32*h:][:32], b[192+8*h:][:8]
		out := y[128*h:][:128]
		for i := range out {
			g := i / 32
			q := low[i&63]>>(g/2*4)&15 | high[i&31]>>(2*g)&3<<4
			out[i] = d * float32(int8(scales[i/16])) * float32(int(q)-32)
		}
	}
}
