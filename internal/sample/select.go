package sample

import (
	"cmp"
	"math"
	"slices"

	"baton/internal/engine"
	"baton/internal/kernel"
)

// byLogit orders candidates from the most likely down, ties by token id, so that the
// order never depends on how they were found.
func byLogit(a, b candidate) int {
	if c := cmp.Compare(b.logit, a.logit); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

// stretch is the number of logits that topK looks at together.
const stretch = 256

// argmax returns the first of the largest logits; ok is false when there is none
// above -Inf.
func argmax(logits []float32) (id int32, ok bool) {
	at := kernel.ArgMax(logits)
	if at < 0 || math.IsInf(float64(logits[at]), -1) {
		return -1, false
	}
	return int32(at), true
}

// topK appends the k best tokens with a logit of at least floor (and above -Inf) to
// dst, best first. A heap of the k best so far lets one pass over the vocabulary do, and
// once it is full, most stretches of the vocabulary have nothing that could enter it.
func topK(dst []candidate, logits []float32, k int, floor float32) []candidate {
	if k >= len(logits) {
		for i, l := range logits {
			if l >= floor && l > float32(math.Inf(-1)) {
				dst = append(dst, candidate{id: int32(i), logit: l})
			}
		}
		slices.SortFunc(dst, byLogit)
		return dst
	}
	for i := 0; i < len(logits); i += stretch {
		s := logits[i:min(i+stretch, len(logits))]
		if len(dst) == k && !(kernel.Max(s) > dst[0].logit) {
			continue
		}
		for j, l := range s {
			if !(l >= floor) || math.IsInf(float64(l), -1) {
				continue
			}
			c := candidate{id: int32(i + j), logit: l}
			if len(dst) < k {
				dst = append(dst, c)
				up(dst)
			} else if l > dst[0].logit { // on a tie the earlier id stays
				dst[0] = c
				down(dst)
			}
		}
	}
	slices.SortFunc(dst, byLogit)
	return dst
}

// worse reports whether a is dropped before b: the root of the heap is the worst.
func worse(a, b candidate) bool { return byLogit(a, b) > 0 }

func up(h []candidate) {
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !worse(h[i], h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func down(h []candidate) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && worse(h[c+1], h[c]) {
			c++
		}
		if !worse(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// Logprobs returns the natural logarithm of the probability of id, and of the n most
// likely tokens, under a softmax of the whole row of logits, as they are before the
// sampler chain changes them.
func Logprobs(logits []float32, id int32, n int) (engine.TokenLogprob, []engine.TokenLogprob) {
	top := topK(nil, logits, max(n, 1), float32(math.Inf(-1)))
	if len(top) == 0 {
		return engine.TokenLogprob{Token: id, Logprob: float32(math.Inf(-1))}, nil
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l - top[0].logit))
	}
	norm := float64(top[0].logit) + math.Log(sum)
	best := make([]engine.TokenLogprob, 0, n)
	for _, c := range top[:min(n, len(top))] {
		best = append(best, engine.TokenLogprob{Token: c.id, Logprob: float32(float64(c.logit) - norm)})
	}
	return engine.TokenLogprob{Token: id, Logprob: float32(float64(logits[id]) - norm)}, best
}
