package modelfile

import (
	"fmt"
	"math"
	"math/bits"

	"baton/internal/gguf"
	"baton/internal/quant"
)

// metadata is what the reports need of a file's metadata. What is missing is zero; what
// has a wrong type is zero and listed in problems.
type metadata struct {
	f        *gguf.File
	arch     string
	problems []string

	context, layers, width, feedForward uint64
	heads, kvHeads                      uint64
	keyLength, valueLength              uint64
	experts, tokens                     uint64
	ropeBase                            float64
	ropeScaling                         string
}

func readMetadata(f *gguf.File) *metadata {
	m := &metadata{f: f}
	m.arch = m.text("general.architecture")
	m.context = m.number("context_length", 0)
	m.layers = m.number("block_count", 0)
	m.width = m.number("embedding_length", 0)
	m.feedForward = m.number("feed_forward_length", 0)
	m.heads = m.number("attention.head_count", 0)
	m.kvHeads = m.number("attention.head_count_kv", m.heads)
	head := uint64(0)
	if m.heads > 0 {
		head = m.width / m.heads
	}
	m.keyLength = m.number("attention.key_length", head)
	m.valueLength = m.number("attention.value_length", head)
	m.experts = m.number("expert_count", 0)
	m.ropeBase = m.float("rope.freq_base")
	m.ropeScaling = m.readRopeScaling()
	m.float("attention.layer_norm_rms_epsilon") // for its problem, if it has one
	if v, ok := f.Value("tokenizer.ggml.tokens"); ok && v.Type() == gguf.Array {
		m.tokens = uint64(v.Len())
	}
	return m
}

// problem notes an error of package gguf without the file's name, which the report has.
func (m *metadata) problem(err error) {
	if err == nil {
		return
	}
	text := err.Error()
	if prefix := "gguf: " + m.f.Name + ": "; len(text) > len(prefix) && text[:len(prefix)] == prefix {
		text = text[len(prefix):]
	}
	m.problems = append(m.problems, text)
}

func (m *metadata) text(key string) string {
	s, err := m.f.StringOr(key, "")
	m.problem(err)
	return s
}

// number and float read keys of the architecture.
func (m *metadata) number(name string, def uint64) uint64 {
	n, err := m.f.UintOr(m.arch+"."+name, def)
	m.problem(err)
	return n
}

func (m *metadata) float(name string) float64 {
	x, err := m.f.FloatOr(m.arch+"."+name, 0)
	m.problem(err)
	return x
}

// tokenID returns the id of a special token, nil if the file names none.
func (m *metadata) tokenID(name string) *int64 {
	id, ok, err := m.f.Uint("tokenizer.ggml." + name + "_token_id")
	m.problem(err)
	if !ok || err != nil || id > math.MaxInt32 {
		return nil
	}
	n := int64(id)
	return &n
}

func (m *metadata) readRopeScaling() string {
	kind := m.text(m.arch + ".rope.scaling.type")
	factor := m.float("rope.scaling.factor")
	switch {
	case kind == "" && factor == 0:
		return ""
	case factor == 0:
		return kind
	case kind == "":
		kind = "linear"
	}
	return fmt.Sprintf("%s, factor %g", kind, factor)
}

// kvBytesPerToken is the size of one token's K and V rows in all layers at two bytes an
// element, zero if that is unknown.
func (m *metadata) kvBytesPerToken() uint64 {
	n := saturatingMul(m.layers, m.kvHeads)
	n = saturatingMul(n, saturatingAdd(m.keyLength, m.valueLength))
	return saturatingMul(n, 2)
}

// Metadata can hold any numbers: the arithmetic on them ends at the largest one.

func saturatingMul(a, b uint64) uint64 {
	if hi, lo := bits.Mul64(a, b); hi == 0 {
		return lo
	}
	return math.MaxUint64
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// fileTypes names the values of general.file_type (llama.h, enum llama_ftype).
var fileTypes = map[uint64]string{
	0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1",
	10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M",
	16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S",
	22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M",
	28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0",
	37: "TQ2_0", 38: "MXFP4",
}

// Quantization names the scheme of a model as people call it: general.file_type if it
// is there and known, else the type that takes most bytes, else nothing.
func Quantization(f *gguf.File) string {
	if n, ok, err := f.Uint("general.file_type"); ok && err == nil && fileTypes[n] != "" {
		return fileTypes[n]
	}
	var best quant.Type
	var most uint64
	sums := map[quant.Type]uint64{}
	for _, t := range f.Tensors() {
		sums[t.Type] += uint64(len(t.Data))
		if sums[t.Type] > most {
			best, most = t.Type, sums[t.Type]
		}
	}
	if most == 0 {
		return ""
	}
	return best.String()
}
