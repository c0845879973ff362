package kernel

import (
	"encoding/binary"

	"baton/internal/quant"
)

// int8Rows computes the products of rows r0 to r1 with n tokens of quantized
// activations: dst[t*ld+r] for t in [0, n).
var int8Rows = int8RowsGeneric

// int8RowsGeneric states what every implementation computes. Each row's weights are
// unpacked block by block and multiplied with all tokens, whose sums lie in acc.
func int8RowsGeneric(dst []float32, ld int, w *Matrix, x []actBlock, n, r0, r1 int, s *scratch) {
	acc := s.floats(n)
	for r := r0; r < r1; r++ {
		clear(acc)
		switch row := w.Row(r); w.Type {
		case quant.Q8_0:
			dotQ8_0(acc, row, x)
		case quant.Q4_0:
			dotQ4_0(acc, row, x)
		case quant.Q4_K:
			dotQ4_K(acc, row, x)
		case quant.Q6_K:
			dotQ6_K(acc, row, x)
		}
		for t, v := range acc {
			dst[t*ld+r] = v
		}
	}
}

func half(b []byte) float32 { return quant.F16ToF32(binary.LittleEndian.Uint16(b)) }

// dotQ8_0 adds to acc, for each token and block b in turn,
//
//	acc = fma(float32(sum of w*q), dw*d, acc)
//
// with the sum an exact integer and the product dw*d rounded to float32.
func dotQ8_0(acc []float32, row []byte, x []actBlock) {
	blocks := len(row) / 34
	var w [blockCols]int8
	for b := range blocks {
		block := row[34*b:][:34]
		dw := half(block)
		for i := range w {
			w[i] = int8(block[2+i])
		}
		for t := range acc {
			a := &x[t*blocks+b]
			acc[t] = fma32(float32(dot16(&w, a, 0)+dot16(&w, a, 16)), dw*a.d, acc[t])
		}
	}
}

// dotQ4_0 is dotQ8_0 with w = q4-8.
func dotQ4_0(acc []float32, row []byte, x []actBlock) {
	blocks := len(row) / 18
	var w [blockCols]int8
	for b := range blocks {
		block := row[18*b:][:18]
		dw := half(block)
		for i, v := range block[2:] {
			w[i] = int8(v&15) - 8
			w[i+16] = int8(v>>4) - 8
		}
		for t := range acc {
			a := &x[t*blocks+b]
			acc[t] = fma32(float32(dot16(&w, a, 0)+dot16(&w, a, 16)), dw*a.d, acc[t])
		}
	}
}

// dotQ4_K adds to acc, for each token and sub-block in turn,
//
//	acc = fma(float32(sum of w*q), (dw*scale)*d, acc)
//	acc = fma(-(dmin*min), d*float32(sum of q), acc)
//
// with every product rounded to float32 (dw*scale and dmin*min are exact).
func dotQ4_K(acc []float32, row []byte, x []actBlock) {
	blocks := len(row) / 144 * 8
	var w [blockCols]int8
	for b := range blocks {
		block, j := row[b/8*144:][:144], b%8
		scale, minimum := quant.ScaleMinQ4K(block[4:16], j)
		dw, m := half(block)*float32(scale), -(half(block[2:]) * float32(minimum))
		for i, v := range block[16+j/2*32:][:32] {
			w[i] = int8(v >> (j % 2 * 4) & 15)
		}
		for t := range acc {
			a := &x[t*blocks+b]
			v := fma32(float32(dot16(&w, a, 0)+dot16(&w, a, 16)), dw*a.d, acc[t])
			acc[t] = fma32(m, a.sd, v)
		}
	}
}

// dotQ6_K adds to acc, for each token and block of 32 columns in turn,
//
//	acc = fma(float32(s0*i0 + s1*i1), dw*d, acc)
//
// where s0 and s1 are the scales of the block's halves and i0 and i1 the sums of w*q
// over them. Up to the fma all is exact: s0*i0 + s1*i1 stays below 2^24.
func dotQ6_K(acc []float32, row []byte, x []actBlock) {
	blocks := len(row) / 210 * 8
	var w [blockCols]int8
	for b := range blocks {
		block, h, g := row[b/8*210:][:210], b%8/4, b%4
		low, high := block[64*h+g%2*32:][:32], block[128+32*h:][:32]
		for i := range w {
			w[i] = int8(low[i]>>(g/2*4)&15|high[i]>>(2*g)&3<<4) - 32
		}
		s0, s1 := int32(int8(block[192+b%8*2])), int32(int8(block[193+b%8*2]))
		dw := half(block[208:])
		for t := range acc {
			a := &x[t*blocks+b]
			i := s0*dot16(&w, a, 0) + s1*dot16(&w, a, 16)
			acc[t] = fma32(float32(i), dw*a.d, acc[t])
		}
	}
}

// dot16 is the sum of w*q over 16 columns from i on.
func dot16(w *[blockCols]int8, a *actBlock, i int) (sum int32) {
	q := a.q[i:][:16]
	for j, v := range w[i:][:16] {
		sum += int32(v) * int32(q[j])
	}
	return sum
}
