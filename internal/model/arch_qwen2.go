package model

import "fmt"

// loadQwen2 reads a block of Qwen2 and Qwen2.5 (2407.10671): Llama's, with biases on
// q, k and v, and rotary pairs half a head apart.
func loadQwen2(l *loader, c Config, i int) (w layer) {
	p := fmt.Sprintf("blk.%d.", i)
	l.attention(&w, c, p)
	w.qb = l.vector(p+"attn_q.bias", c.Heads*c.HeadDim)
	w.kb = l.vector(p+"attn_k.bias", c.KVHeads*c.HeadDim)
	w.vb = l.vector(p+"attn_v.bias", c.KVHeads*c.HeadDim)
	l.feedForward(&w, c, p)
	return w
}

func qwen2Block(r *Runner, i int) {
	w := &r.m.layers[i]
	r.norm(w.attnNorm)
	r.projectQKV(w)
	r.rotate()
	r.storeKV(i)
	r.attend(i)
	r.projectOut(w)

	r.norm(w.ffnNorm)
	r.feedForward(w)
}
