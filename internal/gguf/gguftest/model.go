package gguftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"baton/internal/gguf"
	"baton/internal/quant"
)

// Sizes of the tiny model.
const (
	TinyVocab   = 260
	TinyEmbd    = 32
	TinyFF      = 64
	TinyHeads   = 2
	TinyKVHeads = 1
	TinyHeadDim = 32 // so that heads x head size is not the width
	TinyLayers  = 1
	TinyContext = 64
)

// Tiny returns a llama model of one layer with random F32 weights, about 80 KiB, and a
// byte-level tokenizer. It loads and runs; what it says means nothing. It is always the
// same.
func Tiny() *gguf.Builder {
	b := gguf.NewBuilder()
	b.SetString("general.architecture", "llama")
	b.SetString("general.name", "Tiny")
	b.SetUint32("llama.block_count", TinyLayers)
	b.SetUint32("llama.context_length", TinyContext)
	b.SetUint32("llama.embedding_length", TinyEmbd)
	b.SetUint32("llama.feed_forward_length", TinyFF)
	b.SetUint32("llama.attention.head_count", TinyHeads)
	b.SetUint32("llama.attention.head_count_kv", TinyKVHeads)
	b.SetUint32("llama.attention.key_length", TinyHeadDim)
	b.SetUint32("llama.attention.value_length", TinyHeadDim)
	b.SetUint32("llama.rope.dimension_count", TinyHeadDim)
	b.SetFloat32("llama.rope.freq_base", 10000)
	b.SetFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5)

	tokens, types := tinyVocabulary()
	b.SetString("tokenizer.ggml.model", "gpt2")
	b.SetString("tokenizer.ggml.pre", "gpt-2")
	b.SetStrings("tokenizer.ggml.tokens", tokens)
	b.SetInts("tokenizer.ggml.token_type", types)
	b.SetStrings("tokenizer.ggml.merges", []string{"t h", "th e"})
	b.SetUint32("tokenizer.ggml.bos_token_id", 258)
	b.SetUint32("tokenizer.ggml.eos_token_id", 259)
	b.SetBool("tokenizer.ggml.add_bos_token", false)

	rng := rand.New(rand.NewPCG(1, 2))
	add := func(name string, dims ...uint64) {
		b.AddTensor(name, quant.F32, dims, randomF32(rng, dims))
	}
	add("token_embd.weight", TinyEmbd, TinyVocab)
	for i := range TinyLayers {
		blk := fmt.Sprintf("blk.%d.", i)
		add(blk+"attn_norm.weight", TinyEmbd)
		add(blk+"attn_q.weight", TinyEmbd, TinyHeads*TinyHeadDim)
		add(blk+"attn_k.weight", TinyEmbd, TinyKVHeads*TinyHeadDim)
		add(blk+"attn_v.weight", TinyEmbd, TinyKVHeads*TinyHeadDim)
		add(blk+"attn_output.weight", TinyHeads*TinyHeadDim, TinyEmbd)
		add(blk+"ffn_norm.weight", TinyEmbd)
		add(blk+"ffn_gate.weight", TinyEmbd, TinyFF)
		add(blk+"ffn_up.weight", TinyEmbd, TinyFF)
		add(blk+"ffn_down.weight", TinyFF, TinyEmbd)
	}
	add("output_norm.weight", TinyEmbd)
	return b
}

// tinyVocabulary is the 256 bytes as GPT-2 spells them, two merges and two control
// tokens.
func tinyVocabulary() (tokens []string, types []int32) {
	const normal, control = 1, 3
	next := rune(256)
	for c := range rune(256) {
		// GPT-2 shows the printable characters of Latin-1 as they are, and the other
		// bytes as the characters from U+0100 on.
		if c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae {
			tokens = append(tokens, string(c))
		} else {
			tokens = append(tokens, string(next))
			next++
		}
	}
	tokens = append(tokens, "th", "the", "<s>", "</s>")
	for range TinyVocab - 2 {
		types = append(types, normal)
	}
	return tokens, append(types, control, control)
}

func randomF32(rng *rand.Rand, dims []uint64) []byte {
	n := gguf.Tensor{Dims: dims}.Elems()
	data := make([]byte, 0, 4*n)
	for range n {
		x := float32(rng.NormFloat64() / math.Sqrt(float64(dims[0])))
		if len(dims) == 1 {
			x = 1 // the norms
		}
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return data
}

// Bytes returns the file that b builds.
func Bytes(b *gguf.Builder) []byte {
	var buf bytes.Buffer
	if _, err := b.WriteTo(&buf); err != nil {
		panic(err) // a mistake in the test
	}
	return buf.Bytes()
}

// BadModels returns variants of the tiny model that are proper GGUF files, so that the
// parser accepts them, and that cannot be loaded as a model. WantError is the least that
// the error must mention.
func BadModels() []Case {
	tiny, err := gguf.Parse(Bytes(Tiny()), "tiny")
	if err != nil {
		panic(err)
	}
	const arch = "llama."
	edit := func(name, want string, change func(*gguf.Builder)) Case {
		b := Tiny()
		change(b)
		return Case{name, Bytes(b), want}
	}
	uint32s := func(name, key string, v uint32) Case {
		return edit(name, key, func(b *gguf.Builder) { b.SetUint32(arch+key, v) })
	}
	noKey := func(key string) Case {
		return Case{"no-" + key, Bytes(without(tiny, key, "")), key}
	}
	noTensor := func(name string) Case {
		return Case{"no-" + name, Bytes(without(tiny, "", name)), name}
	}

	return []Case{
		edit("architecture-unknown", "mamba", func(b *gguf.Builder) { b.SetString("general.architecture", "mamba") }),
		edit("architecture-number", "general.architecture", func(b *gguf.Builder) { b.SetUint32("general.architecture", 1) }),
		noKey("general.architecture"),
		noKey(arch + "block_count"),
		noKey(arch + "embedding_length"),
		noKey(arch + "attention.head_count"),
		noKey("tokenizer.ggml.model"),
		noKey("tokenizer.ggml.tokens"),
		uint32s("block-count-0", "block_count", 0),
		uint32s("block-count-max", "block_count", math.MaxUint32),
		uint32s("embedding-length-0", "embedding_length", 0),
		edit("embedding-length-other", "token_embd.weight", func(b *gguf.Builder) { b.SetUint32(arch+"embedding_length", 2*TinyEmbd) }),
		uint32s("feed-forward-length-0", "feed_forward_length", 0),
		uint32s("context-length-0", "context_length", 0),
		uint32s("head-count-0", "attention.head_count", 0),
		uint32s("head-count-max", "attention.head_count", math.MaxUint32),
		uint32s("head-count-kv-0", "attention.head_count_kv", 0),
		edit("head-count-kv-3", "heads", func(b *gguf.Builder) { b.SetUint32(arch+"attention.head_count_kv", 3) }),
		uint32s("key-length-0", "attention.key_length", 0),
		uint32s("key-length-max", "attention.key_length", math.MaxUint32),
		edit("head-count-negative", "attention.head_count", func(b *gguf.Builder) { b.SetInt32(arch+"attention.head_count", -8) }),
		edit("head-count-string", "attention.head_count", func(b *gguf.Builder) { b.SetString(arch+"attention.head_count", "8") }),
		edit("epsilon-nan", "epsilon", func(b *gguf.Builder) {
			b.SetFloat32(arch+"attention.layer_norm_rms_epsilon", float32(math.NaN()))
		}),
		edit("freq-base-infinite", "freq_base", func(b *gguf.Builder) { b.SetFloat32(arch+"rope.freq_base", float32(math.Inf(1))) }),
		edit("tokens-numbers", "tokenizer.ggml.tokens", func(b *gguf.Builder) { b.SetInts("tokenizer.ggml.tokens", make([]int32, TinyVocab)) }),
		edit("tokens-too-few", "token", func(b *gguf.Builder) { b.SetStrings("tokenizer.ggml.tokens", []string{"a", "b"}) }),
		edit("tokenizer-unknown", "abacus", func(b *gguf.Builder) { b.SetString("tokenizer.ggml.model", "abacus") }),
		noTensor("token_embd.weight"),
		noTensor("output_norm.weight"),
		noTensor("blk.0.attn_q.weight"),
		noTensor("blk.0.ffn_down.weight"),
		{"no-tensors", Bytes(without(tiny, "", "*")), "token_embd.weight"},
	}
}

// without copies f less the key and the tensor named; "*" names every tensor.
func without(f *gguf.File, key, tensor string) *gguf.Builder {
	b := gguf.NewBuilder()
	for _, k := range f.Keys() {
		if v, ok := f.Value(k); ok && k != key {
			b.Set(k, v)
		}
	}
	for _, t := range f.Tensors() {
		if t.Name != tensor && tensor != "*" {
			b.AddTensor(t.Name, t.Type, t.Dims, t.Data)
		}
	}
	return b
}
