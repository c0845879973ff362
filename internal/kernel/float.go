package kernel

import (
	"encoding/binary"
	"math"

	"baton/internal/quant"
)

// Products with F32, F16 and BF16 weights, which stay as they are or are widened to
// float32, exactly. The order of one product, whatever else is computed with it: lane
// l = fma(w[16i+l], x[16i+l], lane l) in the order of i, from 0; then the lanes are
// added up as in the vector kernels, l with l+8, l+4, l+2, l+1.

// floatRowsGeneric is the plain-Go twin of floatRows, which computes rows r0 to r1-1 of
// the product of w with n rows of activations: dst[t*ld+r] = sum over c of w[r][c] *
// x[t*cols+c]. It touches no other element of dst.
func floatRowsGeneric(dst []float32, ld int, w *Matrix, x []float32, n, r0, r1 int, s *scratch) {
	cols := w.Cols
	panel := s.floats(cols)
	for r := r0; r < r1; r++ {
		widen(panel, w.Type, w.Row(r))
		for t := range n {
			dst[t*ld+r] = dotLanes(panel, x[t*cols:(t+1)*cols])
		}
	}
}

// dotLanes is one product; both have the same length, a multiple of 16.
func dotLanes(w, x []float32) float32 {
	var l lanes
	for len(w) >= 16 && len(x) >= 16 {
		for i := range l {
			l[i] = fma32(w[i], x[i], l[i])
		}
		w, x = w[16:], x[16:]
	}
	return l.reduceSum()
}

// widen decodes a row of one of the float types.
func widen(dst []float32, t quant.Type, src []byte) {
	switch t {
	case quant.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case quant.F16:
		for i := range dst {
			dst[i] = quant.F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case quant.BF16:
		for i := range dst {
			dst[i] = quant.BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	}
}
