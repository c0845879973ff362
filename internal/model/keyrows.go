package model

import (
	"fmt"
	"sync"

	"baton/internal/kernel"
)

// KeyRows computes K rows of the first layer from token ids alone, which it can because
// nothing has been attended to before them. The rows are those of Forward to the last
// bit, so that cells which another process has filled can be checked against them. It
// is safe for concurrent use; calls take turns.
type KeyRows struct {
	mu   sync.Mutex
	r    *Runner
	pool *kernel.Pool
}

// keyRowsBatch is how many rows are computed at once.
const keyRowsBatch = 16

// NewKeyRows returns a KeyRows that computes on the caller's goroutine. Close it.
func NewKeyRows(m *Model) *KeyRows {
	pool := kernel.NewPool(1)
	return &KeyRows{r: newRunner(m, pool, keyRowsBatch), pool: pool}
}

// Close ends what NewKeyRows started.
func (k *KeyRows) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pool.Close()
}

// Compute writes the K row of tokens[i] at positions[i] into dst, f16
// [len(tokens)][KVHeads*HeadDim].
func (k *KeyRows) Compute(tokens []int32, positions []int, dst []uint16) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.r.m
	kvDim := m.KVHeads * m.HeadDim
	if len(positions) != len(tokens) || len(dst) < len(tokens)*kvDim {
		return fmt.Errorf("model: key rows of %d tokens at %d positions into %d elements, want %d", len(tokens), len(positions), len(dst), len(tokens)*kvDim)
	}
	for first := 0; first < len(tokens); first += keyRowsBatch {
		n := min(keyRowsBatch, len(tokens)-first)
		if err := k.batch(tokens[first:first+n], positions[first:first+n]); err != nil {
			return err
		}
		kernel.StoreF16(dst[first*kvDim:(first+n)*kvDim], k.r.k[:n*kvDim])
	}
	return nil
}

func (k *KeyRows) batch(tokens []int32, positions []int) error {
	r, half := k.r, k.r.m.Rope.Dims/2
	r.err, r.n = nil, len(tokens)
	for i, t := range tokens {
		if t < 0 || int(t) >= r.m.Vocab {
			return fmt.Errorf("model: token %d is not in the vocabulary of %d", t, r.m.Vocab)
		}
		r.tokens[i] = t
		r.m.angles.fill(r.cos[i*half:(i+1)*half], r.sin[i*half:(i+1)*half], positions[i])
	}
	c, w := &r.m.Config, &r.m.layers[0]
	kvDim := c.KVHeads * c.HeadDim
	r.embed()
	r.norm(w.attnNorm)
	r.hActs.Set(r.h[:r.n*c.Embd], r.n, c.Embd)
	r.product(&r.hActs, kernel.Out{Dst: r.k, LD: kvDim, W: &w.k})
	addBias(r.k, w.kb, r.n)
	rope := r.m.rope()
	for t := range r.n {
		cos, sin := r.cos[t*half:(t+1)*half], r.sin[t*half:(t+1)*half]
		for o := t * kvDim; o < (t+1)*kvDim; o += c.HeadDim {
			head := r.k[o : o+c.HeadDim]
			if w.kNorm != nil {
				kernel.RMSNorm(head, head, w.kNorm, c.NormEps)
			}
			rope(head, cos, sin)
		}
	}
	return r.err
}
