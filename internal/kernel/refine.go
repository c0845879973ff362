package kernel

import (
	"cmp"
	"slices"
	"unsafe"

	"baton/internal/quant"
)

// refineWithin is how far below the largest logit a row is refined. A product with
// quantized activations is off by some hundredths on logits of usual size, so that a
// row further away cannot be the best.
const refineWithin = 1

// refineMost is the most rows that are refined for a token.
const refineMost = 64

// refineChunk is the number of logits that are looked at together.
const refineChunk = 4096

// Refiner makes the largest logits of a row exact: it multiplies the weights of these
// few rows with the activations as they are, not with the quantized ones. Near equal
// candidates are then told apart by the model and not by rounding, at the cost of a few
// rows of the output matrix. Like every product, what it does to a token depends on
// that token alone.
//
// The zero value is ready. One caller at a time.
type Refiner struct {
	best   []candidate
	rows   []float32 // [refineMost][cols] decoded
	exact  []float32
	of     [refineMost]Matrix // each of one decoded row
	worker []scratch
	x      []float32 // of the token
	w      *Matrix
	decode func(task, worker int)
}

type candidate struct {
	row   int
	logit float32
}

// Refine changes o.Dst, which MatMul has computed from the n rows of cols activations in
// x. With float weights there is nothing to do.
func (f *Refiner) Refine(p *Pool, x []float32, n, cols int, o Out) error {
	if !usesInt8(o.W.Type) {
		return nil
	}
	if f.decode == nil {
		f.decode = f.decodeTask
	}
	f.rows, f.exact = sized(f.rows, refineMost*cols), sized(f.exact, refineMost)
	if len(f.worker) < p.Workers() {
		f.worker = make([]scratch, p.Workers())
	}
	for t := range n {
		logits := o.Dst[t*o.LD : t*o.LD+o.W.Rows]
		f.find(logits)
		f.x, f.w = x[t*cols:(t+1)*cols], o.W
		if err := p.Run(len(f.best), f.decode); err != nil {
			return err
		}
		for i, c := range f.best {
			logits[c.row] = f.exact[i]
		}
	}
	f.x, f.w = nil, nil // not ours
	return nil
}

// find collects the rows to refine, the best ones if there are too many.
func (f *Refiner) find(logits []float32) {
	f.best = f.best[:0]
	least := Max(logits) - refineWithin
	for i := 0; i < len(logits); i += refineChunk {
		chunk := logits[i:min(i+refineChunk, len(logits))]
		if !(Max(chunk) >= least) {
			continue
		}
		for j, l := range chunk {
			if l >= least {
				f.best = append(f.best, candidate{i + j, l})
			}
		}
	}
	if len(f.best) > refineMost {
		slices.SortFunc(f.best, func(a, b candidate) int {
			if c := cmp.Compare(b.logit, a.logit); c != 0 {
				return c
			}
			return cmp.Compare(a.row, b.row)
		})
		f.best = f.best[:refineMost]
	}
}

// decodeTask computes one exact logit. Tasks write to places of their own.
func (f *Refiner) decodeTask(task, worker int) {
	cols := f.w.Cols
	row := f.rows[task*cols : (task+1)*cols]
	if err := quant.Decode(f.w.Type, row, f.w.Row(f.best[task].row)); err != nil {
		panic(err) // the pool returns it; the sizes were checked when the matrix was made
	}
	f.of[task] = Matrix{Type: quant.F32, Rows: 1, Cols: cols, RowBytes: 4 * cols,
		Data: unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 4*cols)}
	floatRows(f.exact[task:task+1], 1, &f.of[task], f.x, 1, 0, 1, &f.worker[worker])
}
