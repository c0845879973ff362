package kernel

import (
	"fmt"
	"math"
)

// Attention computes softmax(scale * Q K^T) V, causal and with grouped queries, over
// K and V rows that lie in pieces (FlashAttention, 2205.14135, on the CPU). The zero
// value with the four exported fields set is ready; it must not be copied after its first
// use. One call of Run at a time.
//
// The order of the arithmetic, for one query row and one head, is fixed and the same
// on every path:
//
//   - q is multiplied with Scale/ln 2 first: scores are powers of two.
//   - A score has 4 lanes, lane d mod 4: lane = fma(q[d], k[d], lane) in the order of
//     d, from 0; score = (lane 0 + lane 2) + (lane 1 + lane 3).
//   - Positions go in tiles of 256, counted from position 0. In a tile, m is the
//     largest score, p[j] = 2^(score[j] - m), l the sum of p in 16 lanes j mod 16 as in
//     the vector kernels, o[d] = fma(p[j], v[j][d], o[d]) in the order of j, from 0.
//   - Tiles are merged in their order: with M = max of both m, a = 2^(m - M) and
//     b = 2^(mtile - M): l = l*a + ltile*b, o = fma(o, a, otile*b).
//   - At the end, out = o * (1/l).
//
// So the result does not depend on where a span ends, on what else is in the batch, or
// on how the work was split. K and V of all positions must be finite numbers.
type Attention struct {
	Heads, KVHeads, HeadDim int
	Scale                   float32

	seqs    []AttnSeq
	tasks   []attnTask
	merges  []attnMerge
	work    []*attnWork
	partO   []float32 // unnormalized outputs of tiles, one row of HeadDim each
	partML  []float32 // their m and l
	taskFn  func(task, worker int)
	mergeFn func(task, worker int)
}

// Span is a run of consecutive positions that lie together.
type Span struct {
	K, V []uint16 // [Len][KVHeads*HeadDim] f16, first position first
	Len  int
}

// AttnSeq is the part of one sequence in a call: the queries of N consecutive
// positions. Their own K and V rows are stored already.
type AttnSeq struct {
	Q, Out []float32 // [N][Heads*HeadDim], not overlapping
	N      int
	Pos0   int    // position of the first query; it attends to positions 0 to Pos0
	Spans  []Span // positions from 0 on, at least to Pos0+N-1
}

// attnTileLen is the number of positions in a tile.
const attnTileLen = 256

// In a small group K and V are widened in registers, as they come from memory; else a
// tile is unpacked to float32 first and shared by all query rows. smallRows is the number
// of them up to which the first is faster. It keeps a result for each tile: smallParts
// bounds the numbers of all these, but for a single token.
const (
	smallRows  = 32
	smallParts = 4 << 20
)

// attnTask is a piece of work for one worker. Of a small group it is one tile, whose
// result goes to the rows from part on; else all the tiles of a run of query rows.
type attnTask struct {
	seq        int
	head, last int // KV heads head to last-1
	row, rows  int // query rows: token*group + head in the group
	tile       int // -1: all
	part       int
}

// attnMerge is one output row whose tiles are in the rows part, part+stride, ...
type attnMerge struct {
	seq, row, head      int // row as in attnTask; KV head
	part, stride, tiles int
}

// Run computes the attention of all sequences.
func (a *Attention) Run(p *Pool, seqs []AttnSeq) error {
	if err := a.check(seqs); err != nil {
		return err
	}
	if a.taskFn == nil {
		a.taskFn, a.mergeFn = a.runTask, a.runMerge
	}
	for len(a.work) < p.Workers() {
		a.work = append(a.work, new(attnWork))
	}
	a.seqs = seqs
	a.plan(p.Workers())
	for _, w := range a.work {
		for i := range a.tasks {
			w.reserve(&a.tasks[i], a.HeadDim)
		}
	}
	err := p.Run(len(a.tasks), a.taskFn)
	if err == nil {
		err = p.Run(len(a.merges), a.mergeFn)
	}
	a.seqs = nil
	return err
}

func (a *Attention) check(seqs []AttnSeq) error {
	if a.Heads <= 0 || a.KVHeads <= 0 || a.Heads%a.KVHeads != 0 {
		return fmt.Errorf("kernel: attention with %d heads over %d KV heads: the first must be a multiple of the second", a.Heads, a.KVHeads)
	}
	if a.HeadDim <= 0 || a.HeadDim%8 != 0 || a.HeadDim > 512 {
		return fmt.Errorf("kernel: attention with heads of %d elements: want a multiple of 8, at most 512", a.HeadDim)
	}
	row := a.KVHeads * a.HeadDim
	for i := range seqs {
		s := &seqs[i]
		if s.N <= 0 || s.Pos0 < 0 {
			return fmt.Errorf("kernel: attention sequence %d has %d queries from position %d", i, s.N, s.Pos0)
		}
		if need := s.N * a.Heads * a.HeadDim; len(s.Q) < need || len(s.Out) < need {
			return fmt.Errorf("kernel: attention sequence %d: %d queries need %d elements, Q has %d, Out %d", i, s.N, need, len(s.Q), len(s.Out))
		}
		have := 0
		for j := range s.Spans {
			sp := &s.Spans[j]
			if sp.Len < 0 || len(sp.K) < sp.Len*row || len(sp.V) < sp.Len*row {
				return fmt.Errorf("kernel: attention sequence %d: span %d of %d rows of %d elements has %d of K and %d of V", i, j, sp.Len, row, len(sp.K), len(sp.V))
			}
			have += sp.Len
		}
		if have < s.Pos0+s.N {
			return fmt.Errorf("kernel: attention sequence %d: spans hold %d positions, the last query is at %d", i, have, s.Pos0+s.N-1)
		}
	}
	return nil
}

// plan cuts the work into tasks, several for each worker where there is enough.
func (a *Attention) plan(workers int) {
	a.tasks, a.merges = a.tasks[:0], a.merges[:0]
	group := a.Heads / a.KVHeads
	parts := 0
	for i := range a.seqs {
		s := &a.seqs[i]
		rows := s.N * group
		tiles := ceilDiv(s.Pos0+s.N, attnTileLen)
		if s.N > 1 && (rows > smallRows || tiles*rows*a.KVHeads*a.HeadDim > smallParts) {
			// A chunk of rows unpacks all of K and V: few large chunks are cheaper,
			// many small ones spread better.
			chunks := max(ceilDiv(4*workers, a.KVHeads), ceilDiv(rows, maxChunkRows))
			chunks = max(1, min(chunks, rows/(4*blockRows)))
			chunk := ceilDiv(ceilDiv(rows, chunks), blockRows) * blockRows
			for row := (rows - 1) / chunk * chunk; row >= 0; row -= chunk { // longest first
				for h := range a.KVHeads {
					a.tasks = append(a.tasks, attnTask{seq: i, head: h, last: h + 1, row: row, rows: min(chunk, rows-row), tile: -1})
				}
			}
			continue
		}
		// Whole rows of K and V are contiguous in memory: heads are split only where
		// there are too few tiles for all workers, or to even them out.
		split := ceilDiv(workers, tiles)
		if split == 1 && tiles%workers != 0 && tiles < 4*workers {
			split = 2
		}
		split = min(split, a.KVHeads)
		for t := range tiles {
			for k := range split {
				a.tasks = append(a.tasks, attnTask{seq: i, head: k * a.KVHeads / split, last: (k + 1) * a.KVHeads / split,
					rows: rows, tile: t, part: parts + t*rows*a.KVHeads})
			}
		}
		for h := range a.KVHeads {
			for r := range rows {
				a.merges = append(a.merges, attnMerge{seq: i, row: r, head: h, part: parts + h*rows + r, stride: rows * a.KVHeads,
					tiles: (s.Pos0 + r/group + attnTileLen) / attnTileLen}) // not those that only later queries see
			}
		}
		parts += tiles * rows * a.KVHeads
	}
	if need := parts * a.HeadDim; len(a.partO) < need {
		a.partO = make([]float32, need+need/2)
		a.partML = make([]float32, 2*(parts+parts/2))
	}
}

func (a *Attention) runTask(task, worker int) {
	t, w := &a.tasks[task], a.work[worker]
	if t.tile < 0 {
		a.runRows(t, w)
	} else {
		a.runTile(t, w)
	}
}

// query copies the scaled queries of the task's rows, for KV head h, to dst.
func (a *Attention) query(dst []float32, s *AttnSeq, row, rows, h int) {
	group := a.Heads / a.KVHeads
	scale := float32(float64(a.Scale) / math.Ln2)
	for i := range rows {
		token, g := (row+i)/group, (row+i)%group
		from := s.Q[(token*a.Heads+h*group+g)*a.HeadDim:][:a.HeadDim]
		scaleRow(dst[i*a.HeadDim:][:a.HeadDim], from, scale)
	}
}

// scaleRow writes x*s to dst, which may be x.
func scaleRow(dst, x []float32, s float32) {
	n := len(x) &^ 15
	scale(dst[:n], x[:n], s)
	scaleGeneric(dst[n:], x[n:], s)
}

// output is the row of Out for a query row.
func (a *Attention) output(s *AttnSeq, row, h int) []float32 {
	group := a.Heads / a.KVHeads
	return s.Out[(row/group*a.Heads+h*group+row%group)*a.HeadDim:][:a.HeadDim]
}

// visible is the number of positions of a tile that a query row attends to.
func (a *Attention) visible(s *AttnSeq, row, tile int) int {
	pos := s.Pos0 + row/(a.Heads/a.KVHeads)
	return max(0, min(attnTileLen, pos+1-tile*attnTileLen))
}

// merge adds a tile with maximum mt and sum lt to m and l and returns the factors of
// the outputs of both. One of them is 1.
func merge(m, l *float32, mt, lt float32) (fa, fb float32) {
	fa, fb = 1, 1
	if mt > *m {
		fa = exp2neg(*m - mt)
		*m = mt
	} else {
		fb = exp2neg(mt - *m)
	}
	*l = float32(*l*fa) + float32(lt*fb)
	return fa, fb
}

// runMerge joins the tiles of one row of a small group.
func (a *Attention) runMerge(task, _ int) {
	mg := &a.merges[task]
	out := a.output(&a.seqs[mg.seq], mg.row, mg.head)
	clear(out)
	m, l := float32(math.Inf(-1)), float32(0)
	for t := range mg.tiles {
		part := mg.part + t*mg.stride
		fa, fb := merge(&m, &l, a.partML[2*part], a.partML[2*part+1])
		mergeRow(out, a.partO[part*a.HeadDim:][:a.HeadDim], fa, fb)
	}
	scaleRow(out, out, 1/l)
}
