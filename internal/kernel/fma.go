package kernel

import "math"

// fma32 returns a*b + c rounded once to float32, as a fused multiply-add instruction
// does, on every architecture. The product of two float32 is exact in float64. The sum
// is not; rounding it twice (to 53 bits, then to 24) would be wrong where the first
// rounding lands on a midpoint of the second, so there the sum is first rounded to odd
// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms
// using rounding to odd", 2008).
func fma32(a, b, c float32) float32 {
	p, q := float64(a)*float64(b), float64(c)
	s := p + q
	bits := math.Float64bits(s)
	const below = 1<<29 - 1 // the bits of s that float32 does not keep
	if bits&below != 1<<28 && math.Abs(s) >= 0x1p-126 {
		return float32(s)
	}
	// The error of the sum, exactly (Knuth's two-sum).
	v := s - p
	e := (p - (s - v)) + (q - v)
	if bits&1 == 0 && (e > 0 || e < 0) {
		if (e > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}
