package bench

import (
	"fmt"
	"unsafe"

	"baton/internal/kernel"
	"baton/internal/quant"
)

// beyondCaches is more memory than the caches of common CPUs hold.
const beyondCaches = 192 << 20

// The shape of a layer of Qwen3-0.6B, which most cases use.
const (
	heads, kvHeads, headDim = 16, 8, 128
	embd, ff                = 1024, 3072
	vectorTokens            = 512
)

// weights is a random matrix, copied until it fills more than the caches.
type weights struct {
	t      quant.Type
	copies []kernel.Matrix
	pieces [][][]byte // by copy
}

func newWeights(t quant.Type, rows, cols int) (*weights, error) {
	size, err := quant.RowBytes(t, cols)
	if err != nil {
		return nil, err
	}
	if rows < 1 || cols < 1 {
		return nil, fmt.Errorf("bench: a matrix of %d x %d has no elements", rows, cols)
	}
	// Some rows, repeated: encoding takes long, and speed does not depend on values.
	some := min(rows, 64)
	data := make([]byte, rows*size)
	x := randomFloats(some * cols)
	for i := range some {
		if err := quant.Encode(t, data[i*size:(i+1)*size], x[i*cols:(i+1)*cols]); err != nil {
			return nil, err
		}
	}
	for i := some * size; i < len(data); i += copy(data[i:], data[:some*size]) {
	}
	w := &weights{t: t}
	for range max(1, beyondCaches/len(data)) {
		d := append([]byte(nil), data...)
		m, err := kernel.NewMatrix(t, rows, cols, d)
		if err != nil {
			return nil, err
		}
		w.copies = append(w.copies, m)
		w.pieces = append(w.pieces, pieces(d))
	}
	return w, nil
}

// product multiplies the weights with n tokens; "output" is what the output
// matrix takes: the best rows are computed again, exactly.
func (w *weights) product(p *kernel.Pool, name string, n int) *kernelCase {
	rows, cols := w.copies[0].Rows, w.copies[0].Cols
	x, dst := randomFloats(n*cols), make([]float32, n*rows)
	var a kernel.Acts
	var refiner kernel.Refiner
	c := &kernelCase{turns: len(w.copies), macs: n * rows * cols, peak: kernel.PeakInt8}
	if w.t == quant.F32 || w.t == quant.F16 || w.t == quant.BF16 {
		c.peak = kernel.PeakFloat
	}
	c.result = KernelResult{Kernel: name, Type: w.t.String(), Shape: fmt.Sprintf("%dx%d", rows, cols), Tokens: n}
	c.read = func(turn int) [][]byte { return w.pieces[turn] }
	c.run = func(turn int) error {
		o := kernel.Out{Dst: dst, LD: rows, W: &w.copies[turn]}
		a.Set(x, n, cols)
		err := kernel.MatMul(p, &a, o)
		if err == nil && name == "output" {
			err = refiner.Refine(p, x, n, cols, o)
		}
		return err
	}
	return c
}

// attentionCase is attention of n tokens behind depth cells.
func attentionCase(p *kernel.Pool, n, depth int) *kernelCase {
	const block, row = 256, kvHeads * headDim
	cells := depth + n
	a := kernel.Attention{Heads: heads, KVHeads: kvHeads, HeadDim: headDim, Scale: 0.088}
	seq := kernel.AttnSeq{Q: randomFloats(n * heads * headDim), Out: make([]float32, n*heads*headDim), N: n, Pos0: depth}
	some := make([]uint16, block*row)
	kernel.StoreF16(some, randomFloats(len(some)))
	copies := max(1, min(64, beyondCaches/(cells*row*4)))
	spans := make([][]kernel.Span, copies)
	read := make([][][]byte, copies)
	for i := range spans {
		for at := 0; at < cells; at += block {
			m := min(block, cells-at)
			k, v := append([]uint16(nil), some[:m*row]...), append([]uint16(nil), some[:m*row]...)
			spans[i] = append(spans[i], kernel.Span{K: k, V: v, Len: m})
			read[i] = append(read[i], pieces(bytesOf(k), bytesOf(v))...)
		}
	}
	c := &kernelCase{turns: copies, peak: kernel.PeakFloat}
	for t := range n {
		c.macs += 2 * heads * headDim * (depth + t + 1)
	}
	c.result = KernelResult{Kernel: "attention", Shape: fmt.Sprintf("%d/%dx%d", heads, kvHeads, headDim), Tokens: n, Depth: depth}
	c.read = func(turn int) [][]byte { return read[turn] }
	c.run = func(turn int) error {
		seq.Spans = spans[turn]
		return a.Run(p, []kernel.AttnSeq{seq})
	}
	return c
}

// vectorCases are the operations between the products, on the activations of a prompt,
// row by row on the pool as in a model. Their floor is reading what they read.
func vectorCases(p *kernel.Pool) []*kernelCase {
	const n = vectorTokens
	x, y := randomFloats(n*ff), randomFloats(n*ff)
	dst := make([]float32, n*ff)
	w := randomFloats(ff)
	var acts kernel.Acts
	rows := func(name string, width int, inputs [][]float32, fn func(t, _ int)) *kernelCase {
		var in [][]byte
		for _, v := range inputs {
			in = append(in, pieces(floatBytes(v[:n*width]))...)
		}
		return &kernelCase{
			result: KernelResult{Kernel: name, Shape: fmt.Sprint(width), Tokens: n},
			turns:  1,
			read:   func(int) [][]byte { return in },
			run:    func(int) error { return p.Run(n, fn) },
		}
	}
	row := func(v []float32, t, width int) []float32 { return v[t*width : (t+1)*width] }
	norm := rows("rmsnorm", embd, [][]float32{x}, func(t, _ int) {
		kernel.RMSNorm(row(dst, t, embd), row(x, t, embd), w[:embd], 1e-6)
	})
	swiglu := rows("swiglu", ff, [][]float32{x, y}, func(t, _ int) {
		kernel.SwiGLU(row(dst, t, ff), row(x, t, ff), row(y, t, ff))
	})
	turned := randomFloats(n * heads * headDim)
	rope := rows("rope", heads*headDim, [][]float32{turned}, func(t, _ int) {
		for h := range heads {
			kernel.RopeNeoX(row(row(turned, t, heads*headDim), h, headDim), w[:headDim/2], y[:headDim/2])
		}
	})
	// The rotation must not make the numbers grow: an angle's cosine and sine.
	for i := range headDim / 2 {
		w[i], y[i] = 0.6, 0.8
	}
	// Softmax of its own result is a softmax as well, and takes as long.
	soft := rows("softmax", ff, [][]float32{dst}, func(t, _ int) { kernel.Softmax(row(dst, t, ff)) })
	quantize := rows("quantize", ff, [][]float32{x}, nil)
	quantize.run = func(int) error {
		acts.Set(x, n, ff)
		return acts.Quantize(p)
	}
	return []*kernelCase{quantize, norm, swiglu, rope, soft}
}

func floatBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
