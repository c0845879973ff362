package model

import (
	"fmt"
	"math"
	"runtime"
	"sync"

	"baton/internal/gguf"
	"baton/internal/kernel"
	"baton/internal/quant"
)

// Reference computes the logits of the last token of a prompt in plain Go: weights
// decoded to float32, activations never quantized, keys and values in float32, no
// kernel, no cache, no batching. It is what the accuracy of the engine is measured
// against, written to be read beside the papers rather than to be fast: it takes
// about a second for each 10^9 multiplications.
func (m *Model) Reference(tokens []int32) ([]float32, error) {
	rows, err := m.reference(tokens, false)
	return rows, err
}

// ReferenceAll is Reference for every token: len(tokens) rows of Vocab logits.
func (m *Model) ReferenceAll(tokens []int32) ([]float32, error) { return m.reference(tokens, true) }

func (m *Model) reference(tokens []int32, all bool) (logits []float32, err error) {
	c := &m.Config
	n := len(tokens)
	x := make([]float32, n*c.Embd)
	for t, id := range tokens {
		if id < 0 || int(id) >= c.Vocab {
			return nil, fmt.Errorf("model: token %d is not in the vocabulary of %d", id, c.Vocab)
		}
		row := x[t*c.Embd : (t+1)*c.Embd]
		if err := gguf.Guard(func() error { return m.decodeRow(row, id) }); err != nil {
			return nil, err
		}
	}
	for i := range m.layers {
		w := &m.layers[i]
		h := refNorm(x, w.attnNorm, c.NormEps)
		q, k, v := refMul(&w.q, h, n), refMul(&w.k, h, n), refMul(&w.v, h, n)
		addBias(q, w.qb, n)
		addBias(k, w.kb, n)
		addBias(v, w.vb, n)
		if w.qNorm != nil {
			q, k = refNorm(q, w.qNorm, c.NormEps), refNorm(k, w.kNorm, c.NormEps)
		}
		m.refRotate(q, c.Heads)
		m.refRotate(k, c.KVHeads)
		refAdd(x, refMul(&w.o, m.refAttend(q, k, v, n), n))

		h = refNorm(x, w.ffnNorm, c.NormEps)
		gate, up := refMul(&w.gate, h, n), refMul(&w.up, h, n)
		for j, g := range gate {
			gate[j] = float32(float64(g)/(1+math.Exp(-float64(g)))) * up[j]
		}
		refAdd(x, refMul(&w.down, gate, n))
	}
	if !all {
		x, n = x[(n-1)*c.Embd:], 1
	}
	return refMul(&m.output, refNorm(x, m.outNorm, c.NormEps), n), nil
}

// refNorm is RMSNorm (1910.07467) of every run of len(w) elements.
func refNorm(x, w []float32, eps float32) []float32 {
	out := make([]float32, len(x))
	for o := 0; o < len(x); o += len(w) {
		sum := 0.0
		for _, v := range x[o : o+len(w)] {
			sum += float64(v) * float64(v)
		}
		scale := 1 / math.Sqrt(sum/float64(len(w))+float64(eps))
		for j, g := range w {
			out[o+j] = float32(float64(x[o+j])*scale) * g
		}
	}
	return out
}

// refMul multiplies n rows of x with w: [n][Rows].
func refMul(w *kernel.Matrix, x []float32, n int) []float32 {
	out := make([]float32, n*w.Rows)
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for p := range workers {
		wg.Go(func() {
			row := make([]float32, w.Cols)
			for r := p; r < w.Rows; r += workers {
				if quant.Decode(w.Type, row, w.Row(r)) != nil {
					return // the sizes were checked when the model was loaded
				}
				for t := range n {
					out[t*w.Rows+r] = refDot(row, x[t*w.Cols:(t+1)*w.Cols])
				}
			}
		})
	}
	wg.Wait()
	return out
}

func refDot(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	b = b[:len(a)]
	for i := 0; i+3 < len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	return s0 + s1 + s2 + s3
}

func refAdd(x, y []float32) {
	for i, v := range y {
		x[i] += v
	}
}

// refRotate applies the rotary embedding to rows of heads; the row is the position.
func (m *Model) refRotate(x []float32, heads int) {
	d := m.HeadDim
	for o := 0; o < len(x); o += d {
		pos := o / (heads * d)
		for i, f := range m.angles.freq {
			a, b := o+2*i, o+2*i+1
			if m.arch.neox {
				a, b = o+i, o+i+d/2
			}
			s, c := math.Sincos(float64(pos) * f)
			s, c = s*m.angles.scale, c*m.angles.scale
			xa, xb := float64(x[a]), float64(x[b])
			x[a], x[b] = float32(xa*c-xb*s), float32(xa*s+xb*c)
		}
	}
}

// refAttend is causal attention of n tokens, one head after the other.
func (m *Model) refAttend(q, k, v []float32, n int) []float32 {
	c := &m.Config
	d, qDim, kvDim := c.HeadDim, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	out := make([]float32, n*qDim)
	var wg sync.WaitGroup
	for h := range c.Heads {
		wg.Go(func() {
			kv := h / (c.Heads / c.KVHeads) * d
			score := make([]float64, n)
			for t := range n {
				row := q[t*qDim+h*d : t*qDim+(h+1)*d]
				best := math.Inf(-1)
				for j := range t + 1 {
					score[j] = float64(refDot(row, k[j*kvDim+kv:j*kvDim+kv+d])) / math.Sqrt(float64(d))
					best = max(best, score[j])
				}
				sum := 0.0
				for j := range t + 1 {
					score[j] = math.Exp(score[j] - best)
					sum += score[j]
				}
				o := out[t*qDim+h*d : t*qDim+(h+1)*d]
				for j := range t + 1 {
					p := float32(score[j] / sum)
					for i, vv := range v[j*kvDim+kv : j*kvDim+kv+d] {
						o[i] += p * vv
					}
				}
			}
		})
	}
	wg.Wait()
	return out
}
