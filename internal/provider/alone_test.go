package provider

import (
	"context"
	"errors"
	"slices"
	"testing"

	"baton/internal/demo"
	"baton/internal/gguf"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/model"
)

// rows is a copy of all K and V rows of runs, layer by layer.
func rows(l *kv.Layout, runs []kv.Run) (all []uint16) {
	for i := range l.Layers {
		for _, r := range runs {
			from, to := r.Cell*l.RowElems, (r.Cell+r.Len)*l.RowElems
			all = append(append(all, r.Block.K(i)[from:to]...), r.Block.V(i)[from:to]...)
		}
	}
	return all
}

// The cells are those of a forward pass over all tokens at once, bit for bit.
func TestAloneComputesTheCells(t *testing.T) {
	f, err := gguf.Parse(demo.GGUF(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	tokens := golden[2].Tokens

	var got []uint16
	err = Alone(t.Context(), m, tokens, Options{Threads: 2, MicroBatch: 64}, func(l *kv.Layout, runs []kv.Run) error {
		got = rows(l, runs)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	l, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim})
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := kv.NewPool(l, kv.Options{MaxBlocks: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer blocks.Close()
	pool := kernel.NewPool(1)
	defer pool.Close()
	seq := blocks.NewSequence()
	defer seq.Free()
	if err := seq.Append(tokens...); err != nil {
		t.Fatal(err)
	}
	runs := seq.Runs(0, len(tokens), nil)
	if _, err := model.NewRunner(m, pool, 512).Forward([]model.Chunk{{Tokens: tokens, Runs: runs}}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, rows(l, runs)) {
		t.Error("the cells differ")
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = Alone(ctx, m, tokens, Options{}, func(*kv.Layout, []kv.Run) error {
		t.Error("a stopped prompt was used")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}
