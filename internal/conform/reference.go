package conform

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"

	"baton/internal/handoff"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/model"
	"baton/internal/quant"
)

// reference computes what the rows of a prompt have to be.
type reference struct {
	layout *kv.Layout
	params map[string]string
	vocab  int
	cells  *kv.Pool
	pool   *kernel.Pool
	runner *model.Runner
}

func newReference(o *Options) (*reference, error) {
	params, err := o.Model.HandoffParams()
	if err != nil {
		return nil, err
	}
	layout, err := kv.NewLayout(kv.Config{Layers: o.Model.Layers, KVHeads: o.Model.KVHeads, HeadDim: o.Model.HeadDim})
	if err != nil {
		return nil, err
	}
	cells, err := kv.NewPool(layout, kv.Options{MaxBlocks: 8})
	if err != nil {
		return nil, err
	}
	pool := kernel.NewPool(o.Threads)
	return &reference{
		layout: layout, params: params, vocab: o.Model.Vocab, cells: cells, pool: pool, runner: model.NewRunner(o.Model, pool, 64),
	}, nil
}

func (r *reference) close() error {
	r.pool.Close()
	return r.cells.Close()
}

// message is the layout as it goes over the wire.
func (r *reference) message() handoff.Layout {
	l := r.layout
	return handoff.Layout{
		Layers: l.Layers, KVHeads: l.KVHeads, HeadDim: l.HeadDim, KType: l.KType.String(), VType: l.VType.String(),
		Cells: l.CellsPerBlock, KRowBytes: l.KRowBytes, VRowBytes: l.VRowBytes, KOffsets: l.KOffset, VOffsets: l.VOffset,
		BlockBytes: l.BlockBytes, LayoutDigest: l.Hash(r.params),
	}
}

// prompt is n token ids, different for every seed.
func (r *reference) prompt(seed, n int) []int32 {
	random := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = random.Int32N(int32(r.vocab))
	}
	return tokens
}

// rows are the K and V rows of a prompt in all layers.
type rows struct {
	seq   *kv.Sequence
	where []kv.Run // one for each position
}

// compute returns the rows of a prompt; the caller frees them.
func (r *reference) compute(tokens []int32) (_ *rows, err error) {
	seq := r.cells.NewSequence()
	defer func() {
		if err != nil {
			seq.Free()
		}
	}()
	if err := seq.Append(tokens...); err != nil {
		return nil, err
	}
	for from := 0; from < len(tokens); from += r.runner.Max() {
		to := min(from+r.runner.Max(), len(tokens))
		if _, err := r.runner.Forward([]model.Chunk{{Tokens: tokens[from:to], Pos0: from, Runs: seq.Runs(0, to, nil)}}); err != nil {
			return nil, err
		}
	}
	w := &rows{seq: seq}
	for pos := range tokens {
		w.where = seq.Runs(pos, pos+1, w.where)
	}
	return w, nil
}

func (w *rows) free() { w.seq.Free() }

// at is the K row, or the V row, of a position.
func (w *rows) at(layer, v, pos int) []uint16 {
	if v == 1 {
		return w.where[pos].V(layer)
	}
	return w.where[pos].K(layer)
}

// differ is the relative error of a row in f16, as L2 norms; NaN where that is.
func differ(got, want []uint16) float64 {
	var d, n float64
	for i := range got {
		g, w := float64(quant.F16ToF32(got[i])), float64(quant.F16ToF32(want[i]))
		d += (g - w) * (g - w)
		n += w * w
	}
	if d == 0 {
		return 0
	}
	return math.Sqrt(d / n)
}

// strictly is json.Unmarshal without unknown members, and with nothing behind.
func strictly(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows")
	}
	return nil
}
