package kernel

import (
	"math"

	"baton/internal/quant"
)

// The operations of this file work on rows of float32 of any length. Where the slices
// of one call must have the same length, the first one's counts and a shorter other one
// is the caller's bug.
//
// Reductions have one order everywhere: element i goes to lane i mod 16, each lane adds
// up its elements in order, and reduceSum adds up the lanes. The assembly takes the
// part that is a multiple of 16, the rest is done here.

// lanes holds the partial results of a reduction.
type lanes [16]float32

// reduceSum adds the lanes up as a tree: lane l with l+8, then l+4, l+2, l+1.
func (l *lanes) reduceSum() float32 {
	t := *l
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			t[i] += t[i+half]
		}
	}
	return t[0]
}

// Add adds x to dst, element by element.
func Add(dst, x []float32) {
	x = x[:len(dst)]
	n := len(dst) &^ 15
	add(dst[:n], x[:n])
	addGeneric(dst[n:], x[n:])
}

// AddBias adds bias to every row of x; a row is as long as bias.
func AddBias(x, bias []float32) {
	for ; len(bias) > 0 && len(x) >= len(bias); x = x[len(bias):] {
		Add(x[:len(bias)], bias)
	}
}

// Mul multiplies dst with x, element by element.
func Mul(dst, x []float32) {
	x = x[:len(dst)]
	n := len(dst) &^ 15
	mul(dst[:n], x[:n])
	mulGeneric(dst[n:], x[n:])
}

// RMSNorm writes x / sqrt(mean(x²) + eps) * w to dst, which may be x (Zhang and
// Sennrich, "Root Mean Square Layer Normalization", 1910.07467).
func RMSNorm(dst, x, w []float32, eps float32) {
	x, w = x[:len(dst)], w[:len(dst)]
	n := len(dst) &^ 15
	var l lanes
	sumSquares(&l, x[:n])
	for i, v := range x[n:] {
		l[i] = fma32(v, v, l[i])
	}
	mean := l.reduceSum() / float32(len(x))
	s := 1 / sqrt32(mean+eps)
	scaleMul(dst[:n], x[:n], w[:n], s)
	scaleMulGeneric(dst[n:], x[n:], w[n:], s)
}

// sqrt32 is correctly rounded: float64 has more than twice the digits of float32.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// SwiGLU writes silu(gate) * up to dst, which may be either (Shazeer, "GLU Variants
// Improve Transformer", 2002.05202). silu(g) = g / (1 + exp(-g)).
func SwiGLU(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	n := len(dst) &^ 15
	swiGLU(dst[:n], gate[:n], up[:n])
	swiGLUGeneric(dst[n:], gate[n:], up[n:])
}

// Exp writes e to the power of each x to dst, which may be x. The error is below 1.5
// units in the last place. Below -87 the result is 0.
func Exp(dst, x []float32) {
	x = x[:len(dst)]
	n := len(dst) &^ 15
	exp(dst[:n], x[:n])
	expGeneric(dst[n:], x[n:])
}

// Softmax replaces x by exp(x - max) / sum. An element of -Inf becomes 0. With nothing
// but -Inf, or with a NaN or +Inf, all elements become NaN.
func Softmax(x []float32) {
	n := len(x) &^ 15
	var l lanes
	m := Max(x)
	expSum(&l, x[:n], m)
	for i := n; i < len(x); i++ {
		x[i] = exp32(x[i] - m)
		l[i-n] += x[i]
	}
	scaleRow(x, x, 1/l.reduceSum())
}

// Max is the largest element, NaNs left out; -Inf when there is none.
func Max(x []float32) float32 {
	n := len(x) &^ 15
	m := vmax(x[:n])
	if t := maxGeneric(x[n:]); t > m {
		m = t
	}
	return m
}

// ArgMax is the index of the largest element, the first of equal ones, NaNs left out;
// -1 when there is none.
func ArgMax(x []float32) int {
	m := Max(x)
	n := len(x) &^ 15
	if i := index(x[:n], m); i >= 0 {
		return i
	}
	if i := indexGeneric(x[n:], m); i >= 0 {
		return n + i
	}
	return -1
}

// RopeNeoX rotates the first 2*len(cos) elements of one head: element i and element
// i+len(cos) are a pair, turned by the angle whose cosine and sine are cos[i] and
// sin[i] (Su et al., "RoFormer", 2104.09864; the order of GPT-NeoX).
func RopeNeoX(x, cos, sin []float32) {
	h := len(cos)
	sin = sin[:h]
	a, b := x[:h], x[h:2*h]
	n := h &^ 15
	ropeNeoX(a[:n], b[:n], cos[:n], sin[:n])
	ropeNeoXGeneric(a[n:], b[n:], cos[n:], sin[n:])
}

// RopeNorm is RopeNeoX with the elements 2i and 2i+1 as pair i (the order of the
// original paper and of Llama's GGUF files).
func RopeNorm(x, cos, sin []float32) {
	h := len(cos)
	x, sin = x[:2*h], sin[:h]
	n := h &^ 15
	ropeNorm(x[:2*n], cos[:n], sin[:n])
	ropeNormGeneric(x[2*n:], cos[n:], sin[n:])
}

// StoreF16 rounds src to half precision, half to even.
func StoreF16(dst []uint16, src []float32) {
	src = src[:len(dst)]
	n := len(dst) &^ 15
	storeF16(dst[:n], src[:n])
	for i := n; i < len(dst); i++ {
		dst[i] = quant.F32ToF16(src[i])
	}
}

// LoadF16 widens half precision to float32.
func LoadF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	n := len(dst) &^ 15
	loadF16(dst[:n], src[:n])
	for i := n; i < len(dst); i++ {
		dst[i] = quant.F16ToF32(src[i])
	}
}
