package statefile

import (
	"testing"

	"baton/internal/kv"
)

// The cells of a 0.6B model (28 layers, 8 heads of 128) at 3,189 tokens: 366 MB.
func benchState(b *testing.B) (*kv.Pool, *kv.Sequence) {
	l, err := kv.NewLayout(kv.Config{Layers: 28, KVHeads: 8, HeadDim: 128})
	if err != nil {
		b.Fatal(err)
	}
	p, err := kv.NewPool(l, kv.Options{MaxBlocks: 14})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	})
	s := p.NewSequence()
	b.Cleanup(s.Free)
	if err := s.Append(make([]int32, 3189)...); err != nil {
		b.Fatal(err)
	}
	return p, s
}

func BenchmarkSave(b *testing.B) {
	p, s := benchState(b)
	st, _ := newStore(b)
	b.SetBytes(fileBytes(p.Layout(), s.Len()))
	for b.Loop() {
		mustSave(b, st, "a", p, s)
	}
}

func BenchmarkRestore(b *testing.B) {
	p, s := benchState(b)
	st, _ := newStore(b)
	mustSave(b, st, "a", p, s)
	b.SetBytes(fileBytes(p.Layout(), s.Len()))
	fit := fitOf(p)
	fit.MaxTokens = s.Len()
	runs := s.Runs(0, s.Len(), nil)
	for b.Loop() {
		if _, err := st.Restore(b.Context(), "a", fit, func([]int32) ([]kv.Run, error) { return runs, nil }); err != nil {
			b.Fatal(err)
		}
	}
}
