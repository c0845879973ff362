package kernel

import (
	"fmt"
	"unsafe"

	"baton/internal/quant"
)

// Out is one product of a MatMul: Dst[t*LD+r] becomes the sum over the columns c of
// W[r][c] times activation c of token t.
type Out struct {
	Dst []float32
	LD  int // distance between the rows of two tokens in Dst, at least W.Rows
	W   *Matrix
}

// MatMul multiplies the activations with the matrix of each out. All outs share one
// pass over the pool. The result for a token and a row depends on that token and row
// alone, to the last bit: not on the other tokens, the other outs, the number of
// workers or the implementation.
//
// Q8_0, Q4_0, Q4_K and Q6_K weights are multiplied with the activations quantized to
// eight bits in blocks of 32 columns (see quantizeActsGeneric), the sum over a block
// being an exact integer, and the blocks added up in the order of the columns in one
// float32 with fused multiply-adds (see dotQ8_0 and its siblings). F32, F16 and BF16
// weights are multiplied with the activations as they are (see floatRows).
func MatMul(p *Pool, a *Acts, outs ...Out) error {
	needInt8 := false
	for i := range outs {
		if err := a.check(&outs[i]); err != nil {
			return err
		}
		needInt8 = needInt8 || usesInt8(outs[i].W.Type)
	}
	if a.n == 0 {
		return nil
	}
	if needInt8 {
		if err := a.prepare(p); err != nil {
			return err
		}
	}
	if len(a.worker) != p.Workers() {
		a.worker = make([]scratch, p.Workers())
	}
	if a.multiply == nil {
		a.multiply = a.multiplyTask
	}
	a.outs = append(a.outs[:0], outs...)
	a.grids = a.grids[:0]
	tasks := 0
	for i := range outs {
		g := split(outs[i].W, a.n, p.Workers())
		g.first = tasks
		tasks += g.tasks()
		a.grids = append(a.grids, g)
	}
	err := p.Run(tasks, a.multiply)
	clear(a.outs) // they refer to memory that is not ours
	return err
}

// usesInt8 tells which weights are multiplied with quantized activations.
func usesInt8(t quant.Type) bool {
	switch t {
	case quant.Q8_0, quant.Q4_0, quant.Q4_K, quant.Q6_K:
		return true
	}
	return false
}

func (a *Acts) check(o *Out) error {
	w := o.W
	switch {
	case len(a.x) < a.n*a.cols:
		return fmt.Errorf("kernel: %d tokens of %d activations need %d numbers, got %d", a.n, a.cols, a.n*a.cols, len(a.x))
	case w.Cols != a.cols:
		return fmt.Errorf("kernel: matrix has %d columns, the activations have %d", w.Cols, a.cols)
	case o.LD < w.Rows && a.n > 1:
		return fmt.Errorf("kernel: output rows of %d numbers cannot hold %d products", o.LD, w.Rows)
	case a.n > 0 && len(o.Dst) < (a.n-1)*o.LD+w.Rows:
		return fmt.Errorf("kernel: output for %d tokens needs %d numbers, got %d", a.n, (a.n-1)*o.LD+w.Rows, len(o.Dst))
	}
	return nil
}

// A grid is how one product is cut into tasks: pieces of rows times pieces of tokens.
type grid struct {
	first        int // number of its first task
	rows, tokens int // in one task
	nr, nt       int // tasks along the rows and along the tokens
}

func (g *grid) tasks() int { return g.nr * g.nt }

// Limits of the pieces. A task should take some microseconds at least, and a few
// tasks for each worker let the fast ones help the slow ones out.
const (
	rowTile        = 32        // rows that the widest kernel takes at once
	tasksPerWorker = 4         // wanted at least
	minTaskWeights = 32 << 10  // weights in one task's rows
	maxTaskWeights = 512 << 10 // likewise: keeps the end of a pass short
	minTaskTokens  = 96        // unpacking the weights again costs a few tokens
)

func split(w *Matrix, n, workers int) grid {
	g := grid{rows: w.Rows, tokens: n}
	want := 1
	if workers > 1 {
		want = tasksPerWorker * workers
	}
	lo, hi := max(1, minTaskWeights/w.Cols), max(1, maxTaskWeights/w.Cols)
	if n >= rowTile {
		lo = 1 // with that many tokens one tile is work enough
	}
	g.rows = min(max(ceilDiv(w.Rows, want), lo), hi)
	g.rows = ceilDiv(g.rows, rowTile) * rowTile
	g.nr = ceilDiv(w.Rows, g.rows)
	if parts := min(ceilDiv(want, g.nr), n/minTaskTokens); parts > 1 {
		g.tokens = ceilDiv(ceilDiv(n, parts), tokenTile) * tokenTile
	}
	g.nt = ceilDiv(n, g.tokens)
	return g
}

// tokenTile is a number of tokens that every kernel's tile divides.
const tokenTile = 12

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func (a *Acts) multiplyTask(task, worker int) {
	i := 0
	for i+1 < len(a.grids) && task >= a.grids[i+1].first {
		i++
	}
	g, o := &a.grids[i], &a.outs[i]
	task -= g.first
	r0 := task / g.nt * g.rows
	r1 := min(r0+g.rows, o.W.Rows)
	t0 := task % g.nt * g.tokens
	n := min(g.tokens, a.n-t0)
	dst := o.Dst[t0*o.LD:]
	s := &a.worker[worker]
	s.next = r1 + (len(a.worker)-1)*g.rows
	if !usesInt8(o.W.Type) {
		floatRows(dst, o.LD, o.W, a.x[t0*a.cols:], n, r0, r1, s)
		return
	}
	int8Rows(dst, o.LD, o.W, a.q[t0*(a.cols/blockCols):], n, r0, r1, s)
}

// scratch is the memory of one worker. Its buffers grow to what the largest product
// needs and stay.
type scratch struct {
	next int // the row where this worker's next task probably begins
	f    []float32
	tile tileScratch
	_    [64]byte // keeps two workers out of one cache line
}

// floats returns n numbers that may hold anything, valid until the next call.
func (s *scratch) floats(n int) []float32 {
	s.f = sized(s.f, n)
	return s.f
}

// sized returns a slice of n elements that may hold anything, buf's memory if that is
// large enough. New memory is at least 32 KiB, which the allocator aligns to pages.
func sized[T any](buf []T, n int) []T {
	if cap(buf) < n {
		var e T
		buf = make([]T, max(n, 32<<10/int(unsafe.Sizeof(e))))
	}
	return buf[:n]
}
