package kernel

import (
	"math"
	"unsafe"
)

const (
	// blockRows is the number of query rows that the panel kernels take at once, and
	// panelCols the number of positions whose scores they compute at once.
	blockRows = 6
	panelCols = 32

	// maxChunkRows bounds the query rows of one task and so a worker's memory.
	maxChunkRows = 1024

	// rowStep is the number of K or V rows that a small group works on before it goes
	// on to the next head: the registers of the score kernel, and few enough that
	// memory is read nearly in order.
	rowStep = 16
)

// attnWork is what one worker needs.
type attnWork struct {
	k, v   [attnTileLen + 16]*uint16 // first element of each row of the tile
	q      []float32                 // [rows][HeadDim] scaled queries
	s      []float32                 // [rows][attnTileLen] scores, then weights
	o      []float32                 // [rows][HeadDim] unnormalized outputs
	kp     []float32                 // [tile/panelCols][HeadDim][panelCols] K, transposed
	vp     []float32                 // [tile][HeadDim] V
	m, l   []float32                 // [rows]
	fa, fb [blockRows]float32
}

// reserve makes the memory for a task. Every worker has it for every task, since any may
// get it, and so a call like an earlier one allocates nothing.
func (w *attnWork) reserve(t *attnTask, dim int) {
	if t.tile >= 0 {
		rows := (t.last - t.head) * padRows(t.rows)
		w.q, w.o, w.s = grow(w.q, rows*dim), grow(w.o, rows*dim), grow(w.s, rows*attnTileLen)
		return
	}
	rows := ceilDiv(t.rows, blockRows) * blockRows
	w.q, w.o, w.s = grow(w.q, rows*dim), grow(w.o, rows*dim), grow(w.s, blockRows*attnTileLen)
	w.kp, w.vp = grow(w.kp, attnTileLen*dim), grow(w.vp, attnTileLen*dim)
	w.m, w.l = grow(w.m, rows), grow(w.l, rows)
}

// grow returns x with length n; what it held may be lost.
func grow(x []float32, n int) []float32 {
	if cap(x) < n {
		x = make([]float32, n)
	}
	return x[:n]
}

// padRows is the number of rows that the row kernels compute for n of them.
func padRows(n int) int {
	if n <= 2 {
		return n
	}
	return (n + 3) &^ 3
}

// locate enters the rows of positions first to first+n-1, and repeats the last K row
// up to a multiple of 16.
func (w *attnWork) locate(spans []Span, first, n, row int) {
	pos, at := 0, 0 // position at the start of the span; rows found
	for i := range spans {
		sp := &spans[i]
		for j := first + at - pos; j < sp.Len && at < n; j++ {
			w.k[at], w.v[at] = &sp.K[j*row], &sp.V[j*row]
			at++
		}
		if at == n {
			break
		}
		pos += sp.Len
	}
	for ; at&15 != 0; at++ {
		w.k[at] = w.k[n-1]
	}
}

// forget drops the row pointers: their memory may be unmapped after the call.
func (w *attnWork) forget() {
	clear(w.k[:])
	clear(w.v[:])
}

// runTile computes one tile of a small group, for the KV heads of the task.
func (a *Attention) runTile(t *attnTask, w *attnWork) {
	s := &a.seqs[t.seq]
	dim, rows, heads := a.HeadDim, padRows(t.rows), t.last-t.head
	n := a.visible(s, t.rows-1, t.tile)
	w.locate(s.Spans, t.tile*attnTileLen, n, a.KVHeads*dim)
	defer w.forget()

	w.reserve(t, dim)
	clear(w.o)
	for h := range heads {
		q := w.q[h*rows*dim:][:rows*dim]
		a.query(q, s, 0, t.rows, t.head+h)
		clear(q[t.rows*dim:])
	}
	for j := 0; j < n; j += rowStep {
		for h := range heads {
			scoresRows(w.s[h*rows*attnTileLen+j:], w.q[h*rows*dim:], rows, w.k[j:j+rowStep], (t.head+h)*dim, dim, a.ahead(w, t, j, n, h, false))
		}
	}
	for h := range heads {
		for r := range t.rows {
			part := t.part + (t.head+h)*t.rows + r
			p := w.s[(h*rows+r)*attnTileLen:][:attnTileLen]
			a.partML[2*part], a.partML[2*part+1] = softmaxTile(p, a.visible(s, r, t.tile), n)
		}
	}
	for j := 0; j < n; j += rowStep {
		for h := range heads {
			weightedRows(w.o[h*rows*dim:], w.s[h*rows*attnTileLen+j:], rows, w.v[j:min(j+rowStep, n)], (t.head+h)*dim, dim, a.ahead(w, t, j, n, h, true))
		}
	}
	for h := range heads {
		part := t.part + (t.head+h)*t.rows
		copy(a.partO[part*dim:][:t.rows*dim], w.o[h*rows*dim:])
	}
}

// ahead is memory that a kernel asks for while it works: next, then, 256 bytes each time,
// what lies step bytes further.
type ahead struct {
	next *uint16
	step int
}

// ahead is what the work on head h of rows j to j+rowStep should ask for: its share of
// the next rowStep rows, V following K.
func (a *Attention) ahead(w *attnWork, t *attnTask, j, n, h int, inV bool) ahead {
	rows, next := w.k[:n], j+rowStep
	if inV || next >= n {
		rows = w.v[:n]
		if !inV {
			next = 0
		}
	}
	heads := t.last - t.head
	switch {
	case next >= n:
		return ahead{rows[j], 0} // at the end: nothing new
	case heads < a.KVHeads:
		// The part of this head in every row.
		part := unsafe.Slice(rows[next], (t.head+h+1)*a.HeadDim)
		return ahead{&part[(t.head+h)*a.HeadDim], 2 * a.KVHeads * a.HeadDim}
	default:
		// All of the rows is needed: some rows as a whole, in the order of memory.
		return ahead{rows[next+min(h*rowStep/heads, n-next-1)], 256}
	}
}

// runRows computes all the tiles of a run of query rows of one KV head.
func (a *Attention) runRows(t *attnTask, w *attnWork) {
	s := &a.seqs[t.seq]
	dim := a.HeadDim
	w.reserve(t, dim)
	a.query(w.q, s, t.row, t.rows, t.head)
	clear(w.q[t.rows*dim:])
	clear(w.o)
	clear(w.s)
	clear(w.l)
	for i := range w.m {
		w.m[i] = float32(math.Inf(-1))
	}
	defer w.forget()

	for tile := 0; ; tile++ {
		n := a.visible(s, t.row+t.rows-1, tile)
		if n == 0 {
			break
		}
		w.locate(s.Spans, tile*attnTileLen, n, a.KVHeads*dim)
		packK(w.kp, w.k[:(n+15)&^15], t.head*dim, dim)
		packV(w.vp, w.v[:n], t.head*dim, dim)
		for r := 0; r < t.rows; r += blockRows {
			a.runBlock(t, w, r, tile)
		}
	}
	for r := range t.rows {
		scaleRow(a.output(s, t.row+r, t.head), w.o[r*dim:][:dim], 1/w.l[r])
	}
}

// runBlock adds a tile to the block of query rows from r on.
func (a *Attention) runBlock(t *attnTask, w *attnWork, r, tile int) {
	s := &a.seqs[t.seq]
	dim, rows := a.HeadDim, min(blockRows, t.rows-r)
	n := a.visible(s, t.row+r+rows-1, tile)
	if n == 0 {
		return
	}
	for j := 0; j < n; j += panelCols {
		scoresPanel(w.s[j:], w.q[r*dim:], w.kp[j*dim:], dim)
	}
	for i := range rows {
		p := w.s[i*attnTileLen:][:attnTileLen]
		mt, lt := softmaxTile(p, a.visible(s, t.row+r+i, tile), n)
		w.fa[i], w.fb[i] = merge(&w.m[r+i], &w.l[r+i], mt, lt)
	}
	weightedPanel(w.o[r*dim:], w.s, w.vp, n, dim, &w.fa, &w.fb)
}

// softmaxTile turns the scores of the first vis positions of a tile into weights
// 2^(score - max), sets those up to n to 0, and returns the maximum and the sum. A query
// that comes before the tile sees none of its positions: merging -Inf and 0 changes
// nothing.
func softmaxTile(s []float32, vis, n int) (m, l float32) {
	end := (vis + 15) &^ 15
	if vis == 0 {
		clear(s[:n])
		return float32(math.Inf(-1)), 0
	}
	for i := vis; i < end; i++ {
		s[i] = float32(math.Inf(-1))
	}
	m, l = exp2Sum(s[:end])
	if end < n {
		clear(s[end:n])
	}
	return m, l
}
