//go:build !purego

package kernel

import "baton/internal/quant"

var _ = register("generic", func() {
	quantizeActs, int8Rows = quantizeActsGeneric, int8RowsGeneric
})

var _ = register("avx2", func() {
	quantizeActs, int8Rows, tiles = quantizeActsAVX2, int8RowsTiled, tilesAVX2
})

var _ = register("avx512", func() {
	quantizeActs, int8Rows, tiles = quantizeActsAVX512, int8RowsTiled, tilesAVX512
})

func quantizeActsAVX2(dst []actBlock, x []float32) {
	if len(dst) > 0 {
		quantizeAVX2(&dst[0], &x[0], len(dst))
	}
}

func quantizeActsAVX512(dst []actBlock, x []float32) {
	n := len(dst) / 4
	if n > 0 {
		quantize4AVX512(&dst[0], &x[0], n)
	}
	quantizeActsAVX2(dst[4*n:], x[4*n*blockCols:])
}

var tilesAVX2 = map[quant.Type]*tileKernels{
	quant.Q8_0: {
		rows:    8,
		narrow:  [5]func(*tileArgs){1: q8_0x1AVX2, 2: q8_0x2AVX2},
		wide:    [7]func(*tileArgs){2: q8_0Wide16x2AVX2},
		maxWide: 2,
		unpack:  q8_0PanelAVX2,
		block:   576,
		second:  32,
	},
	quant.Q4_0: {
		rows:    8,
		narrow:  [5]func(*tileArgs){1: q4_0x1AVX2, 2: q4_0x2AVX2},
		wide:    [7]func(*tileArgs){2: q4_0Wide16x2AVX2},
		maxWide: 2,
		unpack:  q4_0PanelAVX2,
		block:   576,
		second:  32,
	},
	quant.Q4_K: {
		rows:    8,
		narrow:  [5]func(*tileArgs){1: q4_kx1AVX2, 2: q4_kx2AVX2},
		wide:    [7]func(*tileArgs){2: q4_kWide16x2AVX2},
		maxWide: 2,
		unpack:  q4_kPanelAVX2,
		block:   640,
		second:  32,
	},
	quant.Q6_K: {
		rows:    8,
		narrow:  [5]func(*tileArgs){1: q6_kx1AVX2, 2: q6_kx2AVX2},
		wide:    [7]func(*tileArgs){2: q6_kWide16x2AVX2},
		maxWide: 2,
		unpack:  q6_kPanelAVX2,
		block:   704,
		second:  32,
	},
}

var tilesAVX512 = map[quant.Type]*tileKernels{
	quant.Q8_0: {
		rows:    16,
		narrow:  [5]func(*tileArgs){1: q8_0x1AVX512, 2: q8_0x2AVX512, 4: q8_0x4AVX512},
		wide:    [7]func(*tileArgs){2: plain32x2AVX512, 4: plain32x4AVX512, 6: plain32x6AVX512},
		maxWide: 6,
		unpack:  q8_0PanelAVX512,
		block:   2 * 576,
		second:  576,
	},
	quant.Q4_0: {
		rows:    16,
		narrow:  [5]func(*tileArgs){1: q4_0x1AVX512, 2: q4_0x2AVX512, 4: q4_0x4AVX512},
		wide:    [7]func(*tileArgs){2: plain32x2AVX512, 4: plain32x4AVX512, 6: plain32x6AVX512},
		maxWide: 6,
		unpack:  q4_0PanelAVX512,
		block:   2 * 576,
		second:  576,
	},
	quant.Q4_K: {
		rows:    16,
		narrow:  [5]func(*tileArgs){1: q4_kx1AVX512, 2: q4_kx2AVX512, 4: q4_kx4AVX512},
		wide:    [7]func(*tileArgs){2: mins32x2AVX512, 4: mins32x4AVX512, 6: mins32x6AVX512},
		maxWide: 6,
		unpack:  q4_kPanelAVX512,
		block:   2 * 640,
		second:  640,
	},
	quant.Q6_K: {
		rows:    16,
		narrow:  [5]func(*tileArgs){1: q6_kx1AVX512, 2: q6_kx2AVX512, 4: q6_kx4AVX512},
		wide:    [7]func(*tileArgs){2: six32x2AVX512, 4: six32x4AVX512},
		maxWide: 4,
		unpack:  q6_kPanelAVX512,
		block:   2 * 704,
		second:  704,
	},
}

//go:noescape
func quantizeAVX2(dst *actBlock, x *float32, n int)

//go:noescape
func quantize4AVX512(dst *actBlock, x *float32, n int)

//go:noescape
func q8_0x1AVX2(a *tileArgs)

//go:noescape
func q8_0x2AVX2(a *tileArgs)

//go:noescape
func q8_0PanelAVX2(a *tileArgs)

//go:noescape
func q8_0Wide16x2AVX2(a *tileArgs)

//go:noescape
func q4_0x1AVX2(a *tileArgs)

//go:noescape
func q4_0x2AVX2(a *tileArgs)

//go:noescape
func q4_0PanelAVX2(a *tileArgs)

//go:noescape
func q4_0Wide16x2AVX2(a *tileArgs)

//go:noescape
func q4_kx1AVX2(a *tileArgs)

//go:noescape
func q4_kx2AVX2(a *tileArgs)

//go:noescape
func q4_kPanelAVX2(a *tileArgs)

//go:noescape
func q4_kWide16x2AVX2(a *tileArgs)

//go:noescape
func q6_kx1AVX2(a *tileArgs)

//go:noescape
func q6_kx2AVX2(a *tileArgs)

//go:noescape
func q6_kPanelAVX2(a *tileArgs)

//go:noescape
func q6_kWide16x2AVX2(a *tileArgs)

//go:noescape
func q8_0x1AVX512(a *tileArgs)

//go:noescape
func q8_0x2AVX512(a *tileArgs)

//go:noescape
func q8_0x4AVX512(a *tileArgs)

//go:noescape
func q8_0PanelAVX512(a *tileArgs)

//go:noescape
func q4_0x1AVX512(a *tileArgs)

//go:noescape
func q4_0x2AVX512(a *tileArgs)

//go:noescape
func q4_0x4AVX512(a *tileArgs)

//go:noescape
func q4_0PanelAVX512(a *tileArgs)

//go:noescape
func q4_kx1AVX512(a *tileArgs)

//go:noescape
func q4_kx2AVX512(a *tileArgs)

//go:noescape
func q4_kx4AVX512(a *tileArgs)

//go:noescape
func q4_kPanelAVX512(a *tileArgs)

//go:noescape
func q6_kx1AVX512(a *tileArgs)

//go:noescape
func q6_kx2AVX512(a *tileArgs)

//go:noescape
func q6_kx4AVX512(a *tileArgs)

//go:noescape
func q6_kPanelAVX512(a *tileArgs)

//go:noescape
func plain32x2AVX512(a *tileArgs)

//go:noescape
func plain32x4AVX512(a *tileArgs)

//go:noescape
func plain32x6AVX512(a *tileArgs)

//go:noescape
func mins32x2AVX512(a *tileArgs)

//go:noescape
func mins32x4AVX512(a *tileArgs)

//go:noescape
func mins32x6AVX512(a *tileArgs)

//go:noescape
func six32x2AVX512(a *tileArgs)

//go:noescape
func six32x4AVX512(a *tileArgs)
