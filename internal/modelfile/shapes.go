package modelfile

import (
	"fmt"
	"slices"
	"strings"

	"baton/internal/gguf"
)

// expected is a tensor that an architecture asks for.
type expected struct {
	name     string
	dims     []uint64
	optional bool
}

// traits are what an architecture has beyond the tensors that all known ones share.
type traits struct {
	biases    bool // of Q, K and V; elsewhere they are optional
	headNorms bool // of Q and K
}

// architectures are those whose shapes we know, with the tensor names of llama.cpp.
var architectures = map[string]traits{
	"llama": {},
	"qwen2": {biases: true},
	"qwen3": {headNorms: true},
}

// shapes lists the tensors that a dense model of a known architecture has.
func shapes(m *metadata, a traits) []expected {
	var list []expected
	need := func(name string, dims ...uint64) { list = append(list, expected{name, dims, false}) }
	may := func(name string, dims ...uint64) { list = append(list, expected{name, dims, true}) }
	q := saturatingMul(m.heads, m.keyLength)
	k := saturatingMul(m.kvHeads, m.keyLength)
	v := saturatingMul(m.kvHeads, m.valueLength)
	out := saturatingMul(m.heads, m.valueLength)

	need("token_embd.weight", m.width, m.tokens)
	need("output_norm.weight", m.width)
	may("output.weight", m.width, m.tokens) // absent: the embeddings serve
	for i := range m.layers {
		p := fmt.Sprintf("blk.%d.", i)
		need(p+"attn_norm.weight", m.width)
		need(p+"attn_q.weight", m.width, q)
		need(p+"attn_k.weight", m.width, k)
		need(p+"attn_v.weight", m.width, v)
		need(p+"attn_output.weight", out, m.width)
		bias := may
		if a.biases {
			bias = need
		}
		bias(p+"attn_q.bias", q)
		bias(p+"attn_k.bias", k)
		bias(p+"attn_v.bias", v)
		may(p+"attn_output.bias", m.width)
		if a.headNorms {
			need(p+"attn_q_norm.weight", m.keyLength)
			need(p+"attn_k_norm.weight", m.keyLength)
		}
		need(p+"ffn_norm.weight", m.width)
		need(p+"ffn_gate.weight", m.width, m.feedForward)
		need(p+"ffn_up.weight", m.width, m.feedForward)
		need(p+"ffn_down.weight", m.feedForward, m.width)
	}
	return list
}

// checkShapes compares the tensors with what the metadata ask for.
func (v *verifier) checkShapes(m *metadata) {
	for _, text := range m.problems {
		v.errorf("%s", text)
	}
	if m.arch == "" {
		v.errorf("general.architecture is missing: names and shapes of the tensors cannot be checked")
		return
	}
	arch, known := architectures[m.arch]
	if !known || m.experts > 0 {
		v.warnf("names and shapes of the tensors are not checked: Baton knows those of llama, qwen2 and qwen3 without experts, this is %s", shorten(m.arch, 40))
		return
	}
	if !v.checkCounts(m) {
		return
	}
	list := shapes(m, arch)
	wanted := make(map[string]bool, len(list))
	for _, e := range list {
		wanted[e.name] = true
		t, ok := v.f.Tensor(e.name)
		switch {
		case !ok && !e.optional:
			v.errorf("tensor %s is missing, expected dimensions %s", e.name, dimsText(e.dims))
		case ok && !slices.Equal(t.Dims, e.dims):
			v.tensorf(v.index[t.Name], Error, "dimensions are %s, the metadata ask for %s", dimsText(t.Dims), dimsText(e.dims))
		}
	}
	for i, t := range v.f.Tensors() {
		// The factors of long contexts have one number for each pair of rotated
		// dimensions, which the metadata do not always say.
		if !wanted[t.Name] && !strings.HasPrefix(t.Name, "rope_") {
			v.tensorf(i, Warning, "%s has no tensor of this name", m.arch)
		}
	}
}

// checkCounts checks numbers of the metadata against each other; false means that they
// make no sense as shapes.
func (v *verifier) checkCounts(m *metadata) bool {
	ok := true
	for _, n := range []struct {
		name     string
		value    uint64
		optional bool // its default follows from the others
	}{
		{"block_count", m.layers, false}, {"context_length", m.context, false},
		{"embedding_length", m.width, false}, {"feed_forward_length", m.feedForward, false},
		{"attention.head_count", m.heads, false}, {"attention.head_count_kv", m.kvHeads, true},
		{"attention.key_length", m.keyLength, true}, {"attention.value_length", m.valueLength, true},
	} {
		if n.value > 0 {
			continue
		}
		ok = false
		_, there, err := v.f.Uint(m.arch + "." + n.name)
		switch {
		case err != nil: // has been reported
		case there:
			v.errorf("%s.%s is 0, must be at least 1", m.arch, n.name)
		case !n.optional:
			v.errorf("%s.%s is missing", m.arch, n.name)
		}
	}
	if m.kvHeads > 0 && m.heads%m.kvHeads != 0 {
		v.errorf("%s.attention.head_count %d is not a multiple of head_count_kv %d", m.arch, m.heads, m.kvHeads)
		ok = false
	}
	if n := uint64(len(v.f.Tensors())); m.layers > n {
		v.errorf("%s.block_count is %d, but the file has only %d tensors", m.arch, m.layers, n)
		ok = false
	}
	return ok
}

// checkVocabulary checks that the tokenizer's arrays have one entry for each token, and
// that special tokens exist.
func (v *verifier) checkVocabulary(m *metadata) {
	if _, ok, err := v.f.Strings("tokenizer.ggml.tokens"); !ok || err != nil {
		v.errorf("tokenizer.ggml.tokens is missing or no array of strings: there is no vocabulary")
		return
	}
	if _, err := v.f.NeedString("tokenizer.ggml.model"); err != nil {
		v.errorf("tokenizer.ggml.model is missing or no string: the vocabulary cannot be used")
	}
	for _, key := range []string{"tokenizer.ggml.scores", "tokenizer.ggml.token_type"} {
		if a, ok := v.f.Value(key); ok && (a.Type() != gguf.Array || uint64(a.Len()) != m.tokens) {
			v.errorf("%s is %s, expected one entry for each of the %d tokens", key, a.Kind(), m.tokens)
		}
	}
	for _, name := range []string{"bos", "eos", "eot", "eom", "unknown", "padding"} {
		key := "tokenizer.ggml." + name + "_token_id"
		if id, ok, err := v.f.Uint(key); ok && (err != nil || id >= m.tokens) {
			v.warnf("%s is not one of the %d tokens", key, m.tokens)
		}
	}
}

func dimsText(dims []uint64) string { return strings.ReplaceAll(fmt.Sprint(dims), " ", " x ") }
