package model

import (
	"fmt"
	"math"

	"baton/internal/gguf"
)

// Config is the shape of a model, out of its GGUF metadata.
type Config struct {
	Arch     string
	Name     string
	Layers   int
	Embd     int // width of the residual stream
	FF       int // width of the feed-forward layer
	Heads    int // query heads
	KVHeads  int // key and value heads; Heads is a multiple
	HeadDim  int
	Vocab    int
	CtxTrain int     // context length that the model was made for
	NormEps  float32 // RMSNorm epsilon
	Rope     RopeConfig
}

// limits keep a hostile file from asking for absurd amounts of memory or time before
// its tensors are looked at. Real models stay far below.
const (
	maxLayers = 1 << 10
	maxWidth  = 1 << 20
	maxHeads  = 1 << 12
	maxVocab  = 1 << 22
	maxCtx    = 1 << 28
)

// ReadConfig reads and checks the metadata of a model of one of the Architectures.
func ReadConfig(f *gguf.File) (Config, error) {
	arch, err := f.NeedString("general.architecture")
	if err != nil {
		return Config{}, fmt.Errorf("model: %w", err)
	}
	if err := SupportsArch(arch); err != nil {
		return Config{}, err
	}
	r := reader{f: f, arch: arch}
	c := Config{
		Arch:     arch,
		Name:     r.str("general.name", ""),
		Layers:   r.count("block_count", maxLayers),
		Embd:     r.count("embedding_length", maxWidth),
		FF:       r.count("feed_forward_length", maxWidth),
		Heads:    r.count("attention.head_count", maxHeads),
		CtxTrain: r.count("context_length", maxCtx),
		NormEps:  float32(r.float("attention.layer_norm_rms_epsilon", math.NaN())),
	}
	c.KVHeads = r.countOr("attention.head_count_kv", c.Heads, maxHeads)
	if r.err != nil {
		return Config{}, r.err
	}
	c.HeadDim = r.countOr("attention.key_length", c.Embd/c.Heads, 1024)
	valueDim := r.countOr("attention.value_length", c.HeadDim, 1024)
	c.Rope = r.rope(c)
	experts := r.countOr("expert_count", 0, 1<<16)
	if r.err != nil {
		return Config{}, r.err
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return Config{}, fmt.Errorf("model: %d query heads are not a multiple of %d key/value heads", c.Heads, c.KVHeads)
	case c.HeadDim%16 != 0 || c.HeadDim == 0 || c.HeadDim > 256:
		return Config{}, fmt.Errorf("model: head dimension %d: supported are multiples of 16 up to 256", c.HeadDim)
	case valueDim != c.HeadDim:
		return Config{}, fmt.Errorf("model: key heads of %d and value heads of %d: only equal dimensions are supported", c.HeadDim, valueDim)
	case !(c.NormEps > 0 && c.NormEps < 1):
		return Config{}, fmt.Errorf("model: %s.attention.layer_norm_rms_epsilon is %g, expected a number between 0 and 1", arch, c.NormEps)
	case experts > 0:
		return Config{}, fmt.Errorf("model: a mixture of %d experts: only dense models are supported", experts)
	}
	return c, nil
}

// reader reads keys of the form ARCH.NAME and remembers the first error.
type reader struct {
	f    *gguf.File
	arch string
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil && err != nil {
		r.err = fmt.Errorf("model: %w", err)
	}
}

// count reads an integer from 1 to limit that must be there.
func (r *reader) count(name string, limit uint64) int {
	key := r.arch + "." + name
	v, err := r.f.NeedUint(key)
	r.fail(err)
	return r.inRange(key, v, 1, limit)
}

// countOr reads an integer from 0 to limit; def where the key is missing.
func (r *reader) countOr(name string, def int, limit uint64) int {
	key := r.arch + "." + name
	v, err := r.f.UintOr(key, uint64(def))
	r.fail(err)
	low := uint64(1)
	if def == 0 {
		low = 0
	}
	return r.inRange(key, v, low, limit)
}

func (r *reader) inRange(key string, v, low, high uint64) int {
	if r.err != nil {
		return 1
	}
	if v < low || v > high {
		r.fail(fmt.Errorf("%s is %d, expected %d to %d", key, v, low, high))
		return 1
	}
	return int(v)
}

func (r *reader) float(name string, def float64) float64 {
	v, err := r.f.FloatOr(r.arch+"."+name, def)
	r.fail(err)
	return v
}

func (r *reader) str(key, def string) string {
	v, err := r.f.StringOr(key, def)
	r.fail(err)
	return v
}
