package model

import "fmt"

// loadLlama reads a block of the Llama family (2302.13971), to which Llama 3, Mistral
// and SmolLM2 belong. Their GGUF files hold q and k permuted so that rotary pairs are
// neighbours.
func loadLlama(l *loader, c Config, i int) (w layer) {
	p := fmt.Sprintf("blk.%d.", i)
	l.attention(&w, c, p)
	l.biases(&w, c, p)
	l.feedForward(&w, c, p)
	return w
}

func llamaBlock(r *Runner, i int) {
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
