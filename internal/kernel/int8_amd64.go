//go:build !purego

package kernel

import "baton/internal/quant"

var _ = register("generic", func() {
	quantizeActs, int8Rows = quantizeActsGeneric, int8RowsGeneric
})

var _ = register("avx512", func() {
	int8Rows, tiles = int8RowsTiled, tilesAVX512
})

var tilesAVX512 = map[quant.Type]*tileKernels{
	quant.Q8_0: {
		narrow:  [5]func(*tileArgs){1: q8_0x1AVX512, 2: q8_0x2AVX512, 4: q8_0x4AVX512},
		wide:    [7]func(*tileArgs){2: plain32x2AVX512, 4: plain32x4AVX512, 6: plain32x6AVX512},
		maxWide: 6,
		unpack:  q8_0PanelAVX512,
		record:  576,
	},
}

//go:noescape
func q8_0x1AVX512(a *tileArgs)

//go:noescape
func q8_0x2AVX512(a *tileArgs)

//go:noescape
func q8_0x4AVX512(a *tileArgs)

//go:noescape
func q8_0PanelAVX512(a *tileArgs)

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
