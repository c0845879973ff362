//go:build !purego

package kernel

// The assembly takes lengths that are multiples of 16, and not 0.

//go:noescape
func addAVX2(dst, x *float32, n int)

//go:noescape
func mulAVX2(dst, x *float32, n int)

//go:noescape
func scaleAVX2(dst, x *float32, n int, s float32)

//go:noescape
func scaleMulAVX2(dst, x, w *float32, n int, s float32)

//go:noescape
func sumSquaresAVX2(l *lanes, x *float32, n int)

//go:noescape
func maxAVX2(x *float32, n int) float32

//go:noescape
func indexAVX2(x *float32, n int, v float32) int

//go:noescape
func ropeNeoXAVX2(a, b, cos, sin *float32, n int)

//go:noescape
func ropeNormAVX2(x, cos, sin *float32, n int)

//go:noescape
func storeF16AVX2(dst *uint16, src *float32, n int)

//go:noescape
func loadF16AVX2(dst *float32, src *uint16, n int)

//go:noescape
func expAVX2(dst, x *float32, n int)

//go:noescape
func expAVX512(dst, x *float32, n int)

//go:noescape
func expSumAVX2(l *lanes, x *float32, n int, m float32)

//go:noescape
func expSumAVX512(l *lanes, x *float32, n int, m float32)

//go:noescape
func swiGLUAVX2(dst, gate, up *float32, n int)

//go:noescape
func swiGLUAVX512(dst, gate, up *float32, n int)

func add(dst, x []float32) {
	if level == levelGeneric || len(dst) == 0 {
		addGeneric(dst, x)
		return
	}
	addAVX2(&dst[0], &x[0], len(dst))
}

func mul(dst, x []float32) {
	if level == levelGeneric || len(dst) == 0 {
		mulGeneric(dst, x)
		return
	}
	mulAVX2(&dst[0], &x[0], len(dst))
}

func scale(dst, x []float32, s float32) {
	if level == levelGeneric || len(x) == 0 {
		scaleGeneric(dst, x, s)
		return
	}
	scaleAVX2(&dst[0], &x[0], len(x), s)
}

func scaleMul(dst, x, w []float32, s float32) {
	if level == levelGeneric || len(dst) == 0 {
		scaleMulGeneric(dst, x, w, s)
		return
	}
	scaleMulAVX2(&dst[0], &x[0], &w[0], len(dst), s)
}

func sumSquares(l *lanes, x []float32) {
	if level == levelGeneric || len(x) == 0 {
		sumSquaresGeneric(l, x)
		return
	}
	sumSquaresAVX2(l, &x[0], len(x))
}

func swiGLU(dst, gate, up []float32) {
	switch {
	case level == levelGeneric || len(dst) == 0:
		swiGLUGeneric(dst, gate, up)
	case level == levelAVX512:
		swiGLUAVX512(&dst[0], &gate[0], &up[0], len(dst))
	default:
		swiGLUAVX2(&dst[0], &gate[0], &up[0], len(dst))
	}
}

func exp(dst, x []float32) {
	switch {
	case level == levelGeneric || len(dst) == 0:
		expGeneric(dst, x)
	case level == levelAVX512:
		expAVX512(&dst[0], &x[0], len(dst))
	default:
		expAVX2(&dst[0], &x[0], len(dst))
	}
}

func expSum(l *lanes, x []float32, m float32) {
	switch {
	case level == levelGeneric || len(x) == 0:
		expSumGeneric(l, x, m)
	case level == levelAVX512:
		expSumAVX512(l, &x[0], len(x), m)
	default:
		expSumAVX2(l, &x[0], len(x), m)
	}
}

func vmax(x []float32) float32 {
	if level == levelGeneric || len(x) == 0 {
		return maxGeneric(x)
	}
	return maxAVX2(&x[0], len(x))
}

func index(x []float32, v float32) int {
	if level == levelGeneric || len(x) == 0 {
		return indexGeneric(x, v)
	}
	return indexAVX2(&x[0], len(x), v)
}

func ropeNeoX(a, b, cos, sin []float32) {
	if level == levelGeneric || len(cos) == 0 {
		ropeNeoXGeneric(a, b, cos, sin)
		return
	}
	ropeNeoXAVX2(&a[0], &b[0], &cos[0], &sin[0], len(cos))
}

func ropeNorm(x, cos, sin []float32) {
	if level == levelGeneric || len(cos) == 0 {
		ropeNormGeneric(x, cos, sin)
		return
	}
	ropeNormAVX2(&x[0], &cos[0], &sin[0], len(cos))
}

func storeF16(dst []uint16, src []float32) {
	if level == levelGeneric || len(dst) == 0 {
		storeF16Generic(dst, src)
		return
	}
	storeF16AVX2(&dst[0], &src[0], len(dst))
}

func loadF16(dst []float32, src []uint16) {
	if level == levelGeneric || len(dst) == 0 {
		loadF16Generic(dst, src)
		return
	}
	loadF16AVX2(&dst[0], &src[0], len(dst))
}
