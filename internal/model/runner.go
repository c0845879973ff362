package model

import (
	"fmt"

	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/quant"
)

// Chunk is a run of consecutive tokens of one sequence in a micro-batch.
type Chunk struct {
	Tokens []int32
	Pos0   int      // position of the first token
	Runs   []kv.Run // cells of positions 0 to Pos0+len(Tokens)-1, in order
	Logits bool     // compute the logits of the last token
	All    bool     // compute the logits of every token
}

// Runner computes micro-batches on one pool of threads. It owns the buffers between
// the steps and nothing else. One caller at a time.
type Runner struct {
	m    *Model
	pool *kernel.Pool
	max  int // tokens a micro-batch
	err  error

	n      int // tokens in the steps' buffers now
	chunks []Chunk
	tokens []int32
	where  []cell // where the K and V rows of each token go
	wanted []int  // tokens whose logits are asked for

	// Activations, one row a token.
	x        []float32 // [max][Embd] residual stream
	h        []float32 // [max][Embd] normalized input of a step, or output to be added
	q        []float32 // [max][Heads*HeadDim]
	k, v     []float32 // [max][KVHeads*HeadDim]
	att      []float32 // [max][Heads*HeadDim]
	gate, up []float32 // [max][FF]
	cos, sin []float32 // [max][Rope.Dims/2]
	logits   []float32 // [wanted][Vocab]

	hActs, attActs, ffActs kernel.Acts
	refiner                kernel.Refiner
	attn                   kernel.Attention
	seqs                   []kernel.AttnSeq
	spans                  []kernel.Span

	// Step bodies, made once so that a step allocates nothing, and their arguments.
	weight                                             []float32
	layer                                              *layer
	layerIndex                                         int
	embedFn, normFn, headFn, ropeFn, storeFn, swiGLUFn func(task, worker int)
}

// cell is a place in the KV cache.
type cell struct {
	block *kv.Block
	row   int
}

// NewRunner returns a Runner for micro-batches of at most maxTokens tokens.
func NewRunner(m *Model, pool *kernel.Pool, maxTokens int) *Runner {
	r := newRunner(m, pool, maxTokens)
	c := m.Config
	r.att = make([]float32, maxTokens*c.Heads*c.HeadDim)
	r.gate = make([]float32, maxTokens*c.FF)
	r.up = make([]float32, maxTokens*c.FF)
	r.attn = newAttention(c)
	return r
}

// newRunner makes what is needed up to a layer's q, k and v.
func newRunner(m *Model, pool *kernel.Pool, maxTokens int) *Runner {
	c := m.Config
	r := &Runner{m: m, pool: pool, max: maxTokens}
	qDim, kvDim := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	r.tokens = make([]int32, maxTokens)
	r.where = make([]cell, maxTokens)
	r.x = make([]float32, maxTokens*c.Embd)
	r.h = make([]float32, maxTokens*c.Embd)
	r.q = make([]float32, maxTokens*qDim)
	r.k = make([]float32, maxTokens*kvDim)
	r.v = make([]float32, maxTokens*kvDim)
	r.cos = make([]float32, maxTokens*c.Rope.Dims/2)
	r.sin = make([]float32, maxTokens*c.Rope.Dims/2)
	r.bindSteps()
	return r
}

// Max is the number of tokens that fit in one micro-batch.
func (r *Runner) Max() int { return r.max }

// Forward runs one micro-batch: it writes the K and V rows of every token into the
// cells that the chunks name, and returns the logits asked for, one row of Vocab a
// token, in the order of the chunks. The rows are valid until the next call.
//
// The result for a token depends on nothing but the token and the cells before it.
func (r *Runner) Forward(chunks []Chunk) ([]float32, error) {
	if err := r.begin(chunks); err != nil {
		return nil, err
	}
	r.embed()
	for i := range r.m.Layers {
		r.m.arch.block(r, i)
	}
	out := r.head()
	return out, r.err
}

// begin checks the chunks and lays the micro-batch out.
func (r *Runner) begin(chunks []Chunk) error {
	r.err, r.n = nil, 0
	r.chunks, r.wanted = chunks, r.wanted[:0]
	for i := range chunks {
		c := &chunks[i]
		if len(c.Tokens) == 0 {
			return fmt.Errorf("model: chunk %d of the micro-batch has no tokens", i)
		}
		if r.n+len(c.Tokens) > r.max {
			return fmt.Errorf("model: micro-batch of more than %d tokens", r.max)
		}
		cells := 0
		for _, run := range c.Runs {
			cells += run.Len
		}
		if want := c.Pos0 + len(c.Tokens); cells != want || c.Pos0 < 0 {
			return fmt.Errorf("model: chunk %d has %d cells for positions 0 to %d", i, cells, want-1)
		}
		if err := r.place(c); err != nil {
			return err
		}
	}
	return nil
}

// place enters one chunk: its tokens, their cells, their rotations.
func (r *Runner) place(c *Chunk) error {
	half := r.m.Rope.Dims / 2
	first, n := r.n, len(c.Tokens)
	for j, t := range c.Tokens {
		if t < 0 || int(t) >= r.m.Vocab {
			return fmt.Errorf("model: token %d is not in the vocabulary of %d", t, r.m.Vocab)
		}
		r.tokens[first+j] = t
		r.m.angles.fill(r.cos[(first+j)*half:][:half], r.sin[(first+j)*half:][:half], c.Pos0+j)
		if c.All || c.Logits && j == n-1 {
			r.wanted = append(r.wanted, first+j)
		}
	}
	pos := 0
	for _, run := range c.Runs {
		for j := max(pos, c.Pos0); j < pos+run.Len; j++ {
			r.where[first+j-c.Pos0] = cell{run.Block, run.Cell + j - pos}
		}
		pos += run.Len
	}
	r.n += n
	return nil
}

// head normalizes the wanted tokens and multiplies them with the output matrix, the
// candidates for the next token exactly.
func (r *Runner) head() []float32 {
	if len(r.wanted) == 0 || r.err != nil {
		return nil
	}
	r.norm(r.m.outNorm)
	if need := len(r.wanted) * r.m.Vocab; cap(r.logits) < need {
		r.logits = make([]float32, need)
	}
	r.logits = r.logits[:len(r.wanted)*r.m.Vocab]
	out := kernel.Out{Dst: r.logits, LD: r.m.Vocab, W: &r.m.output}
	r.hActs.Set(r.h[:r.n*r.m.Embd], r.n, r.m.Embd)
	r.product(&r.hActs, out)
	if r.err == nil {
		r.err = r.refiner.Refine(r.pool, r.h[:r.n*r.m.Embd], r.n, r.m.Embd, out)
	}
	return r.logits
}

// decodeRow writes the embedding of token t.
func (m *Model) decodeRow(dst []float32, t int32) error {
	return quant.Decode(m.embd.Type, dst, m.embd.Row(int(t)))
}
