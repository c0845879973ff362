//go:build !purego

package kernel

import (
	"unsafe"

	"baton/internal/quant"
)

// dotArgs are the arguments of the kernels that multiply four rows with a few tokens.
// The assembly knows the order of the fields.
type dotArgs struct {
	w       unsafe.Pointer // the first row
	wStride int            // bytes to the next; a panel has its rows interleaved
	x       *float32
	xStride int // bytes
	n       int // columns / 16, even
	dst     *float32
	ld      int // bytes between the results of two tokens
	sums    *float32
	tokens  int
	// A panel kernel takes its lanes from sums, and leaves them there instead of
	// results, where these are not 0.
	carryIn, carryOut int
}

//go:noescape
func dotF32AVX512(a *dotArgs)

//go:noescape
func dotF16AVX512(a *dotArgs)

//go:noescape
func dotBF16AVX512(a *dotArgs)

//go:noescape
func dotPanelAVX512(a *dotArgs)

//go:noescape
func dotF32AVX2(a *dotArgs)

//go:noescape
func dotF16AVX2(a *dotArgs)

//go:noescape
func dotBF16AVX2(a *dotArgs)

//go:noescape
func dotPanelAVX2(a *dotArgs)

//go:noescape
func widenF32AVX2(dst *float32, src unsafe.Pointer, n int)

//go:noescape
func widenF16AVX2(dst *float32, src unsafe.Pointer, n int)

//go:noescape
func widenBF16AVX2(dst *float32, src unsafe.Pointer, n int)

const (
	dotRows = 4 // rows of one kernel call

	// Weights are widened once into a panel where more tokens than these share them;
	// before that, widening them for each few tokens costs less than the panel.
	directTokens = 24

	panelRows = 32 // rows widened at once, for cols up to maxPanel/panelRows
	maxPanel  = 96 << 10

	// The lanes of four rows and as many tokens as any kernel takes.
	groupSums = dotRows * 6 * 16
)

func floatRows(dst []float32, ld int, w *Matrix, x []float32, n, r0, r1 int, s *scratch) {
	switch {
	case n == 0 || r0 == r1:
	case level == levelGeneric:
		floatRowsGeneric(dst, ld, w, x, n, r0, r1, s)
	case n <= directTokens:
		floatRowsDirect(dst, ld, w, x, n, r0, r1)
	default:
		floatRowsPanel(dst, ld, w, x, n, r0, r1, s)
	}
}

// maxTokens is the number of tokens that the active kernels take at once.
func maxTokens() int {
	if level == levelAVX512 {
		return 6
	}
	return 3
}

// panelDepth is the number of columns of a panel that are multiplied at once. Fewer keep
// more of the activations and weights in the L1 cache, but the lanes wait in memory
// between the parts. The narrower kernels load more for each product.
func panelDepth() int {
	if level == levelAVX512 {
		return 1024
	}
	return 512
}

// floatRowsDirect reads the weights as they lie, once for each maxTokens tokens.
func floatRowsDirect(dst []float32, ld int, w *Matrix, x []float32, n, r0, r1 int) {
	a := dotArgs{wStride: w.RowBytes, xStride: 4 * w.Cols, n: w.Cols / 16, ld: 4 * ld}
	dot := func(to []float32) {
		for t := 0; t < n; t += a.tokens {
			a.tokens = min(maxTokens(), n-t)
			a.x = &x[t*w.Cols : (t+a.tokens)*w.Cols][0]
			a.dst = &to[t*a.ld/4]
			dotDirect(w.Type, &a)
		}
	}
	r := r0
	for ; r+dotRows <= r1; r += dotRows {
		a.w = unsafe.Pointer(&w.Data[r*w.RowBytes : (r+dotRows)*w.RowBytes][0])
		dot(dst[r:])
	}
	// The rest one by one, as four times the same row.
	var results [directTokens * dotRows]float32
	a.wStride, a.ld = 0, 4*dotRows
	for ; r < r1; r++ {
		a.w = unsafe.Pointer(&w.Data[r*w.RowBytes : (r+1)*w.RowBytes][0])
		dot(results[:])
		for t := range n {
			dst[t*ld+r] = results[t*dotRows]
		}
	}
}

func dotDirect(t quant.Type, a *dotArgs) {
	switch {
	case t == quant.F32 && level == levelAVX512:
		dotF32AVX512(a)
	case t == quant.F32:
		dotF32AVX2(a)
	case t == quant.F16 && level == levelAVX512:
		dotF16AVX512(a)
	case t == quant.F16:
		dotF16AVX2(a)
	case t == quant.BF16 && level == levelAVX512:
		dotBF16AVX512(a)
	case t == quant.BF16:
		dotBF16AVX2(a)
	}
}

// floatRowsPanel widens some rows into a panel, four rows interleaved in runs of 16
// columns, and multiplies it with all tokens before it goes on.
func floatRowsPanel(dst []float32, ld int, w *Matrix, x []float32, n, r0, r1 int, s *scratch) {
	cols := w.Cols
	height := max(dotRows, min(panelRows, maxPanel/cols/dotRows*dotRows))
	buf := s.floats(height*cols + height/dotRows*groupSums)
	panel, sums := buf[:height*cols], buf[height*cols:]
	for r := r0; r < r1; r += height {
		rows := min(height, r1-r)
		for i := range rows {
			group := panel[i/dotRows*dotRows*cols+i%dotRows*16:]
			widenPanel(group, w.Type, w.Row(r+i))
		}
		step := maxTokens()
		for t := 0; t < n; t += step {
			m := min(step, n-t)
			panelTokens(dst[t*ld+r:], ld, panel, x[t*cols:(t+m)*cols], m, rows, cols, sums)
		}
	}
}

// widenPanel writes a row, 16 columns at a time, dotRows*16 elements apart.
func widenPanel(dst []float32, t quant.Type, row []byte) {
	f, _ := t.Format()
	n := len(row) / f.Bytes
	to, from := &dst[:(n/16-1)*dotRows*16+16][0], unsafe.Pointer(&row[0])
	switch t {
	case quant.F32:
		widenF32AVX2(to, from, n)
	case quant.F16:
		widenF16AVX2(to, from, n)
	case quant.BF16:
		widenBF16AVX2(to, from, n)
	}
}

// panelTokens multiplies the rows of a panel with m tokens. The columns go in parts,
// the lanes of all rows waiting in sums meanwhile.
func panelTokens(dst []float32, ld int, panel, x []float32, m, rows, cols int, sums []float32) {
	var rest [6 * dotRows]float32
	a := dotArgs{xStride: 4 * cols, tokens: m}
	step := panelDepth()
	for c := 0; c < cols; c += step {
		depth := min(step, cols-c)
		a.n, a.carryIn, a.carryOut = depth/16, c, cols-c-depth
		a.x = &x[c]
		for r := 0; r < rows; r += dotRows {
			a.w = unsafe.Pointer(&panel[r*cols+c*dotRows])
			a.sums = &sums[r/dotRows*groupSums]
			if r+dotRows <= rows {
				a.dst, a.ld = &dst[r], 4*ld
			} else {
				a.dst, a.ld = &rest[0], 4*dotRows
			}
			if level == levelAVX512 {
				dotPanelAVX512(&a)
			} else {
				dotPanelAVX2(&a)
			}
		}
	}
	if r := rows &^ (dotRows - 1); r < rows {
		for t := range m {
			copy(dst[t*ld+r:t*ld+rows], rest[t*dotRows:])
		}
	}
}
