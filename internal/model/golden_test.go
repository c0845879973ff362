package model_test

import (
	"math"
	"slices"
	"testing"

	"baton/internal/demo"
	"baton/internal/gguf"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/model"
)

func demoModel(t testing.TB) *model.Model {
	t.Helper()
	f, err := gguf.Parse(demo.GGUF(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// changedDemo is the demo model with one byte of its weights changed.
func changedDemo(t testing.TB) *model.Model {
	t.Helper()
	data := slices.Clone(demo.GGUF())
	f, err := gguf.Parse(data, "changed")
	if err != nil {
		t.Fatal(err)
	}
	w, ok := f.Tensor("blk.0.attn_q.weight")
	if !ok {
		t.Fatal("no attn_q")
	}
	data[w.Offset+2]++ // a weight of the first block, behind its scale
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// rig runs a model over sequences of a pool of its own.
type rig struct {
	m      *model.Model
	runner *model.Runner
	blocks *kv.Pool
}

func newRig(t testing.TB, m *model.Model, threads, microBatch, cells int) *rig {
	t.Helper()
	layout, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim, CellsPerBlock: cells})
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := kv.NewPool(layout, kv.Options{MaxBlocks: 64})
	if err != nil {
		t.Fatal(err)
	}
	pool := kernel.NewPool(threads)
	t.Cleanup(func() {
		pool.Close()
		if err := blocks.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{m: m, runner: model.NewRunner(m, pool, microBatch), blocks: blocks}
}

// feed appends tokens to seq, in pieces of at most n, and returns the last logits.
func (r *rig) feed(t testing.TB, seq *kv.Sequence, tokens []int32, n int) []float32 {
	t.Helper()
	var logits []float32
	for len(tokens) > 0 {
		piece := tokens[:min(n, len(tokens))]
		tokens = tokens[len(piece):]
		c := chunk(t, seq, piece)
		c.Logits = len(tokens) == 0
		var err error
		if logits, err = r.runner.Forward([]model.Chunk{c}); err != nil {
			t.Fatal(err)
		}
	}
	return logits
}

func chunk(t testing.TB, seq *kv.Sequence, tokens []int32) model.Chunk {
	t.Helper()
	pos := seq.Len()
	if err := seq.Append(tokens...); err != nil {
		t.Fatal(err)
	}
	return model.Chunk{Tokens: tokens, Pos0: pos, Runs: seq.Runs(0, seq.Len(), nil)}
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

func golden(t testing.TB) []demo.Prompt {
	t.Helper()
	g, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// references holds the float path's logits by prompt: some take seconds.
var references = map[string][]float32{}

func reference(t testing.TB, m *model.Model, g demo.Prompt) []float32 {
	t.Helper()
	if references[g.Name] == nil {
		logits, err := m.Reference(g.Tokens)
		if err != nil {
			t.Fatal(err)
		}
		references[g.Name] = logits
	}
	return references[g.Name]
}

// The float path, which quantizes nothing, agrees with PyTorch to within 1e-3 of the
// largest logit.
func TestReferenceAgainstGolden(t *testing.T) {
	m := demoModel(t)
	for _, g := range golden(t) {
		t.Run(g.Name, func(t *testing.T) {
			if testing.Short() && len(g.Tokens) > 400 {
				t.Skip("takes seconds; run without -short")
			}
			logits := reference(t, m, g)
			largest := 0.0
			for _, v := range logits {
				largest = max(largest, math.Abs(float64(v)))
			}
			for i, want := range g.Logits {
				if d := math.Abs(float64(logits[i]) - want); d > 1e-3*largest {
					t.Errorf("logit %d is %g, want %g", i, logits[i], want)
				}
			}
			if got := argmax(logits); got != g.Argmax {
				t.Errorf("argmax %d, want %d", got, g.Argmax)
			}
			sum := 0.0
			for _, v := range logits {
				sum += math.Exp(float64(v))
			}
			if got := math.Log(sum); math.Abs(got-g.LogSumExp) > 1e-3*largest {
				t.Errorf("logsumexp %g, want %g", got, g.LogSumExp)
			}
		})
	}
}

// The engine, with its quantized activations and f16 cache, stays within a normalized
// mean square error of 1e-3 of the float path, and says the same 32 tokens.
func TestEngineAgainstGolden(t *testing.T) {
	m := demoModel(t)
	for _, name := range kernel.Implementations() {
		t.Run(name, func(t *testing.T) {
			useKernels(t, name)
			r := newRig(t, m, 2, 256, 0)
			for _, g := range golden(t) {
				if (testing.Short() || name == "generic") && len(g.Tokens) > 400 {
					continue // plain Go takes seconds a prompt; the others cover them
				}
				seq := r.blocks.NewSequence()
				defer seq.Free()
				logits := r.feed(t, seq, g.Tokens, 256)
				if e := nmse(logits, reference(t, m, g)); e > 1e-3 {
					t.Errorf("%s: normalized mean square error %.2e, at most 1e-3", g.Name, e)
				}
				for i, id := range g.Greedy {
					if got := argmax(logits); got != id {
						t.Fatalf("%s: token %d is %d, want %d (margin %g)", g.Name, i, got, id, g.Margin[i])
					}
					logits = r.feed(t, seq, []int32{id}, 1)
				}
			}
		})
	}
}

func useKernels(t testing.TB, name string) {
	t.Helper()
	before := kernel.Active()
	if err := kernel.Use(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kernel.Use(before); err != nil {
			t.Fatal(err)
		}
	})
}

func nmse(got, want []float32) float64 {
	var diff, norm float64
	for i, w := range want {
		d := float64(got[i] - w)
		diff += d * d
		norm += float64(w) * float64(w)
	}
	return diff / norm
}
