package peer

import (
	"slices"
	"testing"

	"baton/internal/gguf"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/model"
)

// microBatch is small, so that a prompt of 64 tokens takes several steps.
const microBatch = 24

// sequence is one sequence of tokens in a model of Baton's.
type sequence struct {
	model  *model.Model
	runner *model.Runner
	cells  *kv.Sequence
}

func openSequence(t *testing.T, path string) *sequence {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim})
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := kv.NewPool(layout, kv.Options{MaxBlocks: 16})
	if err != nil {
		t.Fatal(err)
	}
	threads := kernel.NewPool(2)
	s := &sequence{model: m, runner: model.NewRunner(m, threads, microBatch), cells: blocks.NewSequence()}
	t.Cleanup(func() {
		s.cells.Free()
		threads.Close()
		if err := blocks.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// feed runs tokens behind those before and returns one row of logits a token.
func (s *sequence) feed(t *testing.T, tokens []int32) (rows [][]float32) {
	t.Helper()
	for len(tokens) > 0 {
		piece := tokens[:min(microBatch, len(tokens))]
		tokens = tokens[len(piece):]
		c := model.Chunk{Tokens: piece, Pos0: s.cells.Len(), All: true}
		if err := s.cells.Append(piece...); err != nil {
			t.Fatal(err)
		}
		c.Runs = s.cells.Runs(0, s.cells.Len(), nil)
		logits, err := s.runner.Forward([]model.Chunk{c})
		if err != nil {
			t.Fatal(err)
		}
		for i := range piece {
			row := make([]float32, s.model.Vocab)
			copy(row, logits[i*s.model.Vocab:])
			rows = append(rows, row)
		}
	}
	return rows
}

// float32 is the plain reference: no kernels, nothing quantized but the weights.
func (s *sequence) float32(t *testing.T, tokens []int32) [][]float32 {
	t.Helper()
	logits, err := s.model.ReferenceAll(tokens)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(slices.Chunk(logits, s.model.Vocab))
}

// batonGreedy continues tokens by the n most likely ones, past end tokens too.
func batonGreedy(t *testing.T, path string, tokens []int32, n int) []int32 {
	t.Helper()
	s := openSequence(t, path)
	rows := s.feed(t, tokens)
	var out []int32
	for {
		out = append(out, int32(argmax(rows[len(rows)-1])))
		if len(out) == n {
			return out
		}
		rows = s.feed(t, out[len(out)-1:])
	}
}
