package kernel

import (
	"math"

	"baton/internal/quant"
)

// The plain-Go twins of the vector kernels. An explicit float32(...) around a product
// keeps the compiler from fusing it with a sum, which some architectures would.

func addGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}

func mulGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] *= v
	}
}

func scaleGeneric(dst, x []float32, s float32) {
	for i, v := range x {
		dst[i] = v * s
	}
}

// sumSquaresGeneric: l[i mod 16] = fma(x[i], x[i], l[i mod 16]).
func sumSquaresGeneric(l *lanes, x []float32) {
	for i, v := range x {
		l[i&15] = fma32(v, v, l[i&15])
	}
}

// scaleMulGeneric: dst = (x*s) * w.
func scaleMulGeneric(dst, x, w []float32, s float32) {
	for i, v := range x {
		dst[i] = float32(v*s) * w[i]
	}
}

func swiGLUGeneric(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = float32(g/(1+exp32(-g))) * up[i]
	}
}

func expGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] = exp32(v)
	}
}

// expSumGeneric: x[i] = exp(x[i] - m), added to lane i mod 16.
func expSumGeneric(l *lanes, x []float32, m float32) {
	for i, v := range x {
		x[i] = exp32(v - m)
		l[i&15] += x[i]
	}
}

func maxGeneric(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

// indexGeneric is the index of the first element equal to v, or -1.
func indexGeneric(x []float32, v float32) int {
	for i, w := range x {
		if w == v {
			return i
		}
	}
	return -1
}

func ropeNeoXGeneric(a, b, cos, sin []float32) {
	for i, c := range cos {
		s, x, y := sin[i], a[i], b[i]
		a[i] = float32(x*c) - float32(y*s)
		b[i] = float32(y*c) + float32(x*s)
	}
}

func ropeNormGeneric(x, cos, sin []float32) {
	for i, c := range cos {
		s, a, b := sin[i], x[2*i], x[2*i+1]
		x[2*i] = float32(a*c) - float32(b*s)
		x[2*i+1] = float32(b*c) + float32(a*s)
	}
}

func storeF16Generic(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = quant.F32ToF16(v)
	}
}

func loadF16Generic(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = quant.F16ToF32(v)
	}
}
