//go:build !purego

package kernel

//go:generate go -C _gen run .

// rowsArgs are the arguments of the kernels that read K or V rows in place. The
// assembly knows the order of the fields.
type rowsArgs struct {
	s    *float32 // scores or weights, rows attnTileLen apart; packK: the panel
	q    *float32 // queries or outputs, rows dim apart
	rows int
	ptrs **uint16
	n    int // rows of V; of K always 16
	off  int // bytes from the start of a row to the head
	dim  int
	next ahead
}

// panelArgs are the arguments of the kernels on an unpacked tile.
type panelArgs struct {
	s      *float32 // scores or weights, rows attnTileLen apart
	q      *float32 // queries or outputs, rows dim apart
	kv     *float32
	n      int // rows of V
	dim    int
	fa, fb *[blockRows]float32
}

// The assembly is unrolled for blocks of 16 elements of a head, six query rows and 32
// positions.
var _ = [1]struct{}{}[blockRows-6+panelCols-32+attnTileLen-256]

//go:noescape
func scoresRowsAVX512(a *rowsArgs)

//go:noescape
func scoresRowsAVX2(a *rowsArgs)

//go:noescape
func weightedRowsAVX512(a *rowsArgs)

//go:noescape
func weightedRowsAVX2(a *rowsArgs)

//go:noescape
func packKAVX512(a *rowsArgs)

//go:noescape
func packKAVX2(a *rowsArgs)

//go:noescape
func scoresPanelAVX512(a *panelArgs)

//go:noescape
func scoresPanelAVX2(a *panelArgs)

//go:noescape
func weightedPanelAVX512(a *panelArgs)

//go:noescape
func weightedPanelAVX2(a *panelArgs)

//go:noescape
func exp2SumAVX512(s *float32, n int) (m, l float32)

//go:noescape
func exp2SumAVX2(s *float32, n int) (m, l float32)

//go:noescape
func mergeRowAVX2(o, tile *float32, n int, fa, fb float32)

func scoresRows(s, q []float32, rows int, k []*uint16, off, dim int, next ahead) {
	if level == levelGeneric || dim&15 != 0 {
		scoresRowsGeneric(s, q, rows, k, off, dim)
		return
	}
	a := rowsArgs{ptrs: &k[:16][0], off: 2 * off, dim: dim, next: next}
	step := 4
	if level == levelAVX2 {
		step = 2
	}
	for r := 0; r < rows; r += a.rows {
		a.s, a.q, a.rows = &s[r*attnTileLen], &q[r*dim], min(step, rows-r)
		if level == levelAVX512 {
			scoresRowsAVX512(&a)
		} else {
			scoresRowsAVX2(&a)
		}
		a.next = ahead{k[0], 0} // once is enough
	}
}

func weightedRows(o, p []float32, rows int, v []*uint16, off, dim int, next ahead) {
	if level == levelGeneric || dim&15 != 0 {
		weightedRowsGeneric(o, p, rows, v, off, dim)
		return
	}
	a := rowsArgs{ptrs: &v[0], n: len(v), off: 2 * off, dim: dim, next: next}
	step := 4
	if level == levelAVX2 {
		step = 2
	}
	for r := 0; r < rows; r += a.rows {
		a.s, a.q, a.rows = &p[r*attnTileLen], &o[r*dim], min(step, rows-r)
		if level == levelAVX512 {
			weightedRowsAVX512(&a)
		} else {
			weightedRowsAVX2(&a)
		}
		a.next = ahead{v[0], 0} // once is enough
	}
}

func packK(kp []float32, k []*uint16, off, dim int) {
	if level == levelGeneric || dim&15 != 0 {
		packKGeneric(kp, k, off, dim)
		return
	}
	for j := 0; j < len(k); j += 16 {
		a := rowsArgs{s: &kp[j/panelCols*panelCols*dim+j%panelCols], ptrs: &k[j : j+16][0], off: 2 * off, dim: dim}
		if level == levelAVX512 {
			packKAVX512(&a)
		} else {
			packKAVX2(&a)
		}
	}
}

func packV(vp []float32, v []*uint16, off, dim int) {
	if level == levelGeneric || dim&15 != 0 {
		packVGeneric(vp, v, off, dim)
		return
	}
	for j, row := range v {
		loadF16(vp[j*dim:][:dim], rowPart(row, off, dim))
	}
}

func scoresPanel(s, q, kp []float32, dim int) {
	if level == levelGeneric || dim&15 != 0 {
		scoresPanelGeneric(s, q, kp, dim)
		return
	}
	a := panelArgs{s: &s[:(blockRows-1)*attnTileLen+panelCols][0], q: &q[:blockRows*dim][0], kv: &kp[:panelCols*dim][0], dim: dim}
	if level == levelAVX512 {
		scoresPanelAVX512(&a)
	} else {
		scoresPanelAVX2(&a)
	}
}

func weightedPanel(o, p, vp []float32, n, dim int, fa, fb *[blockRows]float32) {
	if level == levelGeneric || dim&15 != 0 {
		weightedPanelGeneric(o, p, vp, n, dim, fa, fb)
		return
	}
	a := panelArgs{s: &p[:(blockRows-1)*attnTileLen+n][0], q: &o[:blockRows*dim][0], kv: &vp[:n*dim][0], n: n, dim: dim, fa: fa, fb: fb}
	if level == levelAVX512 {
		weightedPanelAVX512(&a)
	} else {
		weightedPanelAVX2(&a)
	}
}

func exp2Sum(s []float32) (m, l float32) {
	switch level {
	case levelAVX512:
		return exp2SumAVX512(&s[0], len(s))
	case levelAVX2:
		return exp2SumAVX2(&s[0], len(s))
	}
	return exp2SumGeneric(s)
}

func mergeRow(o, tile []float32, fa, fb float32) {
	if level == levelGeneric || len(tile)&15 != 0 {
		mergeRowGeneric(o, tile, fa, fb)
		return
	}
	mergeRowAVX2(&o[:len(tile)][0], &tile[0], len(tile), fa, fb)
}
