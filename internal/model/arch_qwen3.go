package model

import "fmt"

// loadQwen3 reads a block of the dense Qwen3 models (2505.09388): no biases, each
// head of q and k normalized before it is rotated.
func loadQwen3(l *loader, c Config, i int) (w layer) {
	p := fmt.Sprintf("blk.%d.", i)
	l.attention(&w, c, p)
	w.qNorm = l.vector(p+"attn_q_norm.weight", c.HeadDim)
	w.kNorm = l.vector(p+"attn_k_norm.weight", c.HeadDim)
	l.feedForward(&w, c, p)
	return w
}

func qwen3Block(r *Runner, i int) {
	w := &r.m.layers[i]
	r.norm(w.attnNorm)
	r.projectQKV(w)
	r.normHeads(w)
	r.rotate()
	r.storeKV(i)
	r.attend(i)
	r.projectOut(w)

	r.norm(w.ffnNorm)
	r.feedForward(w)
}
