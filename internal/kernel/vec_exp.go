package kernel

import "math"

// The exponentials of all implementations, operation by operation. The argument is
// split into an integer n and a rest; a polynomial gives the power of the rest and n is
// added to the exponent. The polynomials interpolate at Chebyshev nodes; their error
// is below 2^-26 relative, that of the whole about one unit in the last place.
//
// Below the lower bound the result is 0, so that no subnormal number ever arises.

// expTable holds the constants of exp32 as the assembly reads them.
var expTable = [...]float32{
	-87,            // lower bound, n >= -126
	88.72283,       // upper bound, n <= 128: above it +Inf
	1.4426950409,   // 1/ln 2
	-0.69314718246, // -ln 2, leading part
	1.9046542e-09,  // -ln 2, rest
	0.0013926401, 0.008363353, 0.041666552, 0.16666576, 0.5, 1, 1,
	float32(math.Inf(1)),
}

// exp32 returns e^x.
func exp32(x float32) float32 {
	t := &expTable
	switch {
	case x < t[0]:
		return 0
	case x > t[1]:
		return t[12]
	case x != x:
		return x
	}
	n := math.RoundToEven(float64(float32(x * t[2])))
	r := fma32(float32(n), t[3], x)
	r = fma32(float32(n), t[4], r)
	p := t[5]
	for _, c := range t[6:12] {
		p = fma32(p, r, c)
	}
	return math.Float32frombits(math.Float32bits(p) + uint32(int32(n))<<23)
}

// exp2Table holds the constants of exp2neg as the assembly reads them.
var exp2Table = [...]float32{
	-125.5, // lower bound, n >= -126
	0.00015453462, 0.0013391208, 0.009618082, 0.055503566, 0.24022651, 0.69314718, 1,
}

// exp2neg returns 2^x for x <= 0. The attention works with base 2: its scores are
// multiplied with 1/ln 2 together with the scale.
func exp2neg(x float32) float32 {
	t := &exp2Table
	switch {
	case x < t[0]:
		return 0
	case x != x:
		return x
	}
	n := math.RoundToEven(float64(x))
	r := x - float32(n)
	p := t[1]
	for _, c := range t[2:] {
		p = fma32(p, r, c)
	}
	return math.Float32frombits(math.Float32bits(p) + uint32(int32(n))<<23)
}
