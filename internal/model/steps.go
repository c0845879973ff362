package model

import (
	"baton/internal/kernel"
)

// each runs fn for every token of the micro-batch: on the pool when there are enough
// of them to be worth waking it.
func (r *Runner) each(fn func(task, worker int)) {
	if r.err != nil {
		return
	}
	if r.n >= 8 {
		r.err = r.pool.Run(r.n, fn)
		return
	}
	for t := range r.n {
		fn(t, 0)
	}
}

// product multiplies the activations with one or more matrices.
func (r *Runner) product(a *kernel.Acts, outs ...kernel.Out) {
	if r.err == nil && r.n > 0 {
		r.err = kernel.MatMul(r.pool, a, outs...)
	}
}

// embed: x[t] = the embedding of token t. Always on the pool, which turns a fault of
// the mapped file into an error.
func (r *Runner) embed() {
	if r.err == nil {
		r.err = r.pool.Run(r.n, r.embedFn)
	}
}

// norm: h = RMSNorm(x) * weight.
func (r *Runner) norm(weight []float32) {
	r.weight = weight
	r.each(r.normFn)
}

// projectQKV: q, k, v = Wq h, Wk h, Wv h, plus biases where there are any.
func (r *Runner) projectQKV(w *layer) {
	c := &r.m.Config
	r.hActs.Set(r.h[:r.n*c.Embd], r.n, c.Embd)
	r.product(&r.hActs,
		kernel.Out{Dst: r.q, LD: c.Heads * c.HeadDim, W: &w.q},
		kernel.Out{Dst: r.k, LD: c.KVHeads * c.HeadDim, W: &w.k},
		kernel.Out{Dst: r.v, LD: c.KVHeads * c.HeadDim, W: &w.v})
	addBias(r.q, w.qb, r.n)
	addBias(r.k, w.kb, r.n)
	addBias(r.v, w.vb, r.n)
}

// addBias adds b to the first n rows of x.
func addBias(x, b []float32, n int) {
	if b == nil {
		return
	}
	for t := range n {
		kernel.Add(x[t*len(b):(t+1)*len(b)], b)
	}
}

// normHeads: every head of q and k is normalized on its own.
func (r *Runner) normHeads(w *layer) {
	r.layer = w
	r.each(r.headFn)
}

// rotate applies the rotary position embedding to every head of q and k.
func (r *Runner) rotate() { r.each(r.ropeFn) }

// storeKV writes the k and v rows, as f16, into their cells of layer i.
func (r *Runner) storeKV(i int) {
	r.layerIndex = i
	r.each(r.storeFn)
}

// attend: att = softmax(q K^T / sqrt(HeadDim)) V over the cells of each sequence. In
// the last layer only the tokens whose logits are wanted go on; when there are none,
// the steps that follow have nothing to do.
func (r *Runner) attend(i int) {
	if r.err != nil {
		return
	}
	c := &r.m.Config
	qDim, kvDim := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	r.spans, r.seqs = r.spans[:0], r.seqs[:0]
	last := i == c.Layers-1
	first, next := 0, 0 // token in the batch; index into wanted
	for ci := range r.chunks {
		ch := &r.chunks[ci]
		n := len(ch.Tokens)
		s0 := len(r.spans)
		for _, run := range ch.Runs {
			r.spans = append(r.spans, kernel.Span{
				K: run.Block.K(i)[run.Cell*kvDim:], V: run.Block.V(i)[run.Cell*kvDim:], Len: run.Len})
		}
		spans := r.spans[s0:len(r.spans):len(r.spans)]
		if !last {
			r.seqs = append(r.seqs, kernel.AttnSeq{
				Q: r.q[first*qDim : (first+n)*qDim], Out: r.att[first*qDim : (first+n)*qDim], N: n, Pos0: ch.Pos0, Spans: spans})
		}
		for ; last && next < len(r.wanted) && r.wanted[next] < first+n; next++ {
			from := r.wanted[next]
			copy(r.q[next*qDim:(next+1)*qDim], r.q[from*qDim:(from+1)*qDim])
			copy(r.x[next*c.Embd:(next+1)*c.Embd], r.x[from*c.Embd:(from+1)*c.Embd])
			r.seqs = append(r.seqs, kernel.AttnSeq{
				Q: r.q[next*qDim : (next+1)*qDim], Out: r.att[next*qDim : (next+1)*qDim],
				N: 1, Pos0: ch.Pos0 + from - first, Spans: spans})
		}
		first += n
	}
	if last {
		r.n = len(r.wanted)
	}
	r.err = r.attn.Run(r.pool, r.seqs)
}

// projectOut: x += Wo att.
func (r *Runner) projectOut(w *layer) {
	c := &r.m.Config
	r.attActs.Set(r.att[:r.n*c.Heads*c.HeadDim], r.n, c.Heads*c.HeadDim)
	r.product(&r.attActs, kernel.Out{Dst: r.h, LD: c.Embd, W: &w.o})
	r.residual()
}

// feedForward: x += Wdown (silu(Wgate h) * (Wup h)) (SwiGLU, 2002.05202).
func (r *Runner) feedForward(w *layer) {
	c := &r.m.Config
	r.hActs.Set(r.h[:r.n*c.Embd], r.n, c.Embd)
	r.product(&r.hActs,
		kernel.Out{Dst: r.gate, LD: c.FF, W: &w.gate},
		kernel.Out{Dst: r.up, LD: c.FF, W: &w.up})
	r.each(r.swiGLUFn)
	r.ffActs.Set(r.gate[:r.n*c.FF], r.n, c.FF)
	r.product(&r.ffActs, kernel.Out{Dst: r.h, LD: c.Embd, W: &w.down})
	r.residual()
}

// residual: x += h.
func (r *Runner) residual() {
	if r.err == nil {
		kernel.Add(r.x[:r.n*r.m.Embd], r.h[:r.n*r.m.Embd])
	}
}

// rope rotates one head the way the architecture does.
func (m *Model) rope() func(x, cos, sin []float32) {
	if m.arch.neox {
		return kernel.RopeNeoX
	}
	return kernel.RopeNorm
}

func newAttention(c Config) kernel.Attention {
	return kernel.Attention{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Scale: attentionScale(c.HeadDim)}
}

// bindSteps makes the bodies of the per-token steps.
func (r *Runner) bindSteps() {
	c := &r.m.Config
	qDim, kvDim, half := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, c.Rope.Dims/2
	r.embedFn = func(t, _ int) {
		if err := r.m.decodeRow(r.x[t*c.Embd:(t+1)*c.Embd], r.tokens[t]); err != nil {
			panic(err) // the pool returns it; the types were checked at load
		}
	}
	r.normFn = func(t, _ int) {
		kernel.RMSNorm(r.h[t*c.Embd:(t+1)*c.Embd], r.x[t*c.Embd:(t+1)*c.Embd], r.weight, c.NormEps)
	}
	r.headFn = func(t, _ int) {
		for o := t * qDim; o < (t+1)*qDim; o += c.HeadDim {
			kernel.RMSNorm(r.q[o:o+c.HeadDim], r.q[o:o+c.HeadDim], r.layer.qNorm, c.NormEps)
		}
		for o := t * kvDim; o < (t+1)*kvDim; o += c.HeadDim {
			kernel.RMSNorm(r.k[o:o+c.HeadDim], r.k[o:o+c.HeadDim], r.layer.kNorm, c.NormEps)
		}
	}
	rope := r.m.rope()
	r.ropeFn = func(t, _ int) {
		cos, sin := r.cos[t*half:(t+1)*half], r.sin[t*half:(t+1)*half]
		for o := t * qDim; o < (t+1)*qDim; o += c.HeadDim {
			rope(r.q[o:o+c.HeadDim], cos, sin)
		}
		for o := t * kvDim; o < (t+1)*kvDim; o += c.HeadDim {
			rope(r.k[o:o+c.HeadDim], cos, sin)
		}
	}
	r.storeFn = func(t, _ int) {
		w := &r.where[t]
		kernel.StoreF16(w.block.K(r.layerIndex)[w.row*kvDim:(w.row+1)*kvDim], r.k[t*kvDim:(t+1)*kvDim])
		kernel.StoreF16(w.block.V(r.layerIndex)[w.row*kvDim:(w.row+1)*kvDim], r.v[t*kvDim:(t+1)*kvDim])
	}
	r.swiGLUFn = func(t, _ int) {
		row := r.gate[t*c.FF : (t+1)*c.FF]
		kernel.SwiGLU(row, row, r.up[t*c.FF:(t+1)*c.FF])
	}
}
