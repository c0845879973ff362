//go:build !purego

package kernel

// One round each; see peak_amd64.s. n must be above 0.

//go:noescape
func peakInt8AVX2(n int)

//go:noescape
func peakInt8AVX512(n int)

//go:noescape
func peakFloatAVX2(n int)

//go:noescape
func peakFloatAVX512(n int)

func peakInt8(n int) (perRound int) {
	switch {
	case level == levelGeneric || n <= 0:
		return peakInt8Generic(n)
	case level == levelAVX2:
		peakInt8AVX2(n)
		return 12 * 32
	}
	peakInt8AVX512(n)
	return 16 * 64
}

func peakFloat(n int) (perRound int) {
	switch {
	case level == levelGeneric || n <= 0:
		return peakFloatGeneric(n)
	case level == levelAVX2:
		peakFloatAVX2(n)
		return 12 * 8
	}
	peakFloatAVX512(n)
	return 16 * 16
}
