package model

import (
	"fmt"
	"sort"
	"strings"

	"baton/internal/gguf"
	"baton/internal/kernel"
	"baton/internal/quant"
)

// layer holds the weights of one transformer block. What an architecture does not
// have is empty.
type layer struct {
	attnNorm     []float32     // [Embd]
	q, k, v      kernel.Matrix // [Heads*HeadDim | KVHeads*HeadDim][Embd]
	qb, kb, vb   []float32     // biases
	qNorm, kNorm []float32     // [HeadDim]
	o            kernel.Matrix // [Embd][Heads*HeadDim]
	ffnNorm      []float32     // [Embd]
	gate, up     kernel.Matrix // [FF][Embd]
	down         kernel.Matrix // [Embd][FF]
}

// Model is a loaded model. It is immutable and safe for concurrent use; Runners do
// the computing.
type Model struct {
	Config
	file    *gguf.File
	arch    arch
	angles  angles
	embd    kernel.Matrix // [Vocab][Embd], one row a token
	outNorm []float32     // [Embd]
	output  kernel.Matrix // [Vocab][Embd]; the embedding again where the file has none
	layers  []layer
}

// arch is what differs between architectures.
type arch struct {
	load  func(l *loader, c Config, i int) layer
	block func(r *Runner, i int)
	neox  bool // rotates halves of a head instead of neighbours
}

var architectures = map[string]arch{
	"llama": {load: loadLlama, block: llamaBlock},
	"qwen2": {load: loadQwen2, block: qwen2Block, neox: true},
	"qwen3": {load: loadQwen3, block: qwen3Block, neox: true},
}

// Architectures lists the supported values of general.architecture.
func Architectures() []string {
	var names []string
	for n := range architectures {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// SupportsArch returns an error that names the supported architectures when name is
// none of them.
func SupportsArch(name string) error {
	if _, ok := architectures[name]; ok {
		return nil
	}
	return fmt.Errorf("model: architecture %q is not supported; supported are %s", name, strings.Join(Architectures(), ", "))
}

// Load checks the tensors of f against its metadata and returns the model. Weights
// stay in f's mapping: f must stay open as long as the model is used. A tensor that
// is missing, has another shape than the metadata say, a type without kernels, or no
// use, is an error.
func Load(f *gguf.File) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	m := &Model{file: f, arch: architectures[c.Arch]}
	l := &loader{f: f, used: make(map[string]bool)}
	embd, ok := f.Tensor("token_embd.weight")
	if !ok || len(embd.Dims) != 2 || embd.Dims[1] > maxVocab {
		return nil, fmt.Errorf("model: tensor token_embd.weight is missing or not a matrix of at most %d rows", maxVocab)
	}
	c.Vocab = int(embd.Dims[1])
	m.Config = c
	m.embd = l.matrix("token_embd.weight", c.Vocab, c.Embd)
	m.outNorm = l.vector("output_norm.weight", c.Embd)
	m.output = m.embd
	if _, ok := f.Tensor("output.weight"); ok {
		m.output = l.matrix("output.weight", c.Vocab, c.Embd)
	}
	var factors []float32
	if _, ok := f.Tensor("rope_freqs.weight"); ok {
		factors = l.vector("rope_freqs.weight", c.Rope.Dims/2)
		for i, v := range factors {
			if !(v > 0 && v < 1e12) {
				return nil, fmt.Errorf("model: rope_freqs.weight[%d] is %g, expected a positive number", i, v)
			}
		}
	}
	for i := range c.Layers {
		m.layers = append(m.layers, m.arch.load(l, c, i))
		if l.err != nil {
			return nil, l.err
		}
	}
	if err := l.unused(); err != nil {
		return nil, err
	}
	m.angles = newAngles(c.Rope, factors)
	return m, nil
}

// ModelBytes is the size of all tensors, and Params the number of their elements.
func (m *Model) ModelBytes() (size, params uint64) {
	for _, t := range m.file.Tensors() {
		size += uint64(len(t.Data))
		params += t.Elems()
	}
	return size, params
}

// Quant names the type that most weight bytes have.
func (m *Model) Quant() string {
	bytes := map[quant.Type]int{}
	best := quant.F32
	for _, t := range m.file.Tensors() {
		bytes[t.Type] += len(t.Data)
		if bytes[t.Type] > bytes[best] {
			best = t.Type
		}
	}
	return best.String()
}

// loader takes tensors out of a file and remembers the first error.
type loader struct {
	f    *gguf.File
	used map[string]bool
	err  error
}

func (l *loader) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("model: "+format, args...)
	}
}

// take returns a tensor whose dimensions must be dims, the contiguous one first.
func (l *loader) take(name string, dims ...int) (gguf.Tensor, bool) {
	if l.err != nil {
		return gguf.Tensor{}, false
	}
	t, ok := l.f.Tensor(name)
	if !ok {
		l.fail("tensor %s is missing", name)
		return t, false
	}
	l.used[name] = true
	same := len(t.Dims) == len(dims)
	for i := 0; same && i < len(dims); i++ {
		same = t.Dims[i] == uint64(dims[i])
	}
	if !same {
		l.fail("tensor %s has dimensions %v, the metadata ask for %v", name, t.Dims, dims)
	}
	return t, same
}

func (l *loader) matrix(name string, rows, cols int) kernel.Matrix {
	t, ok := l.take(name, cols, rows)
	if !ok {
		return kernel.Matrix{}
	}
	m, err := kernel.NewMatrix(t.Type, rows, cols, t.Data)
	if err != nil {
		l.fail("tensor %s: %w", name, err)
	}
	return m
}

// vector copies a small tensor (norms, biases) out of the mapping as float32.
func (l *loader) vector(name string, n int) []float32 {
	t, ok := l.take(name, n)
	if !ok {
		return nil
	}
	v := make([]float32, n)
	err := gguf.Guard(func() error { return quant.Decode(t.Type, v, t.Data) })
	if err != nil {
		l.fail("tensor %s: %w", name, err)
	}
	return v
}

// optional is vector for a tensor that may be missing.
func (l *loader) optional(name string, n int) []float32 {
	if _, ok := l.f.Tensor(name); !ok {
		return nil
	}
	return l.vector(name, n)
}

// unused reports a tensor that no step reads: the result would not be the model's.
func (l *loader) unused() error {
	for _, t := range l.f.Tensors() {
		if !l.used[t.Name] {
			return fmt.Errorf("model: tensor %s is not known for this architecture, so its answers would be wrong without it", t.Name)
		}
	}
	return nil
}

// attention and feedForward load what the supported architectures share.
func (l *loader) attention(w *layer, c Config, p string) {
	w.attnNorm = l.vector(p+"attn_norm.weight", c.Embd)
	w.q = l.matrix(p+"attn_q.weight", c.Heads*c.HeadDim, c.Embd)
	w.k = l.matrix(p+"attn_k.weight", c.KVHeads*c.HeadDim, c.Embd)
	w.v = l.matrix(p+"attn_v.weight", c.KVHeads*c.HeadDim, c.Embd)
	w.o = l.matrix(p+"attn_output.weight", c.Embd, c.Heads*c.HeadDim)
}

func (l *loader) biases(w *layer, c Config, p string) {
	w.qb = l.optional(p+"attn_q.bias", c.Heads*c.HeadDim)
	w.kb = l.optional(p+"attn_k.bias", c.KVHeads*c.HeadDim)
	w.vb = l.optional(p+"attn_v.bias", c.KVHeads*c.HeadDim)
}

func (l *loader) feedForward(w *layer, c Config, p string) {
	w.ffnNorm = l.vector(p+"ffn_norm.weight", c.Embd)
	w.gate = l.matrix(p+"ffn_gate.weight", c.FF, c.Embd)
	w.up = l.matrix(p+"ffn_up.weight", c.FF, c.Embd)
	w.down = l.matrix(p+"ffn_down.weight", c.Embd, c.FF)
}
