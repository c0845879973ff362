//go:build ignore

// mkgguf writes GGUF models with random weights, for measuring and comparing
// runtimes where no real model can be had. The same flags give the same bytes.
//
//	go run mkgguf.go -preset qwen3-0.6b -type f16 -o m.gguf
//	go run mkgguf.go -arch llama -layers 2 -embd 64 -ff 128 -heads 4 -kv-heads 2 -vocab 600 -o tiny.gguf
//	go run mkgguf.go -arch llama -rope llama3 -rope-factor 8 -rope-orig-ctx 64 -o long.gguf
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/fnv"
	"log"
	"math"
	"os"
	"sort"
	"strings"
)

// GGUF value types and tensor types.
const (
	tU32, tI32, tF32, tBool, tStr, tArr = 4, 5, 6, 7, 8, 9
	dF32, dF16, dBF16                   = 0, 1, 30
	align                               = 32
)

type buf struct{ b []byte }

func (w *buf) u32(v uint32) { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *buf) u64(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }
func (w *buf) str(s string) { w.u64(uint64(len(s))); w.b = append(w.b, s...) }

type header struct {
	kv buf
	n  uint64
}

func (h *header) key(k string, t uint32) { h.kv.str(k); h.kv.u32(t); h.n++ }
func (h *header) u32(k string, v int)    { h.key(k, tU32); h.kv.u32(uint32(v)) }
func (h *header) f32(k string, v float64) {
	h.key(k, tF32)
	h.kv.u32(math.Float32bits(float32(v)))
}
func (h *header) str(k, v string) { h.key(k, tStr); h.kv.str(v) }
func (h *header) bool(k string, v bool) {
	h.key(k, tBool)
	if v {
		h.kv.b = append(h.kv.b, 1)
	} else {
		h.kv.b = append(h.kv.b, 0)
	}
}
func (h *header) strs(k string, v []string) {
	h.key(k, tArr)
	h.kv.u32(tStr)
	h.kv.u64(uint64(len(v)))
	for _, s := range v {
		h.kv.str(s)
	}
}
func (h *header) i32s(k string, v []int32) {
	h.key(k, tArr)
	h.kv.u32(tI32)
	h.kv.u64(uint64(len(v)))
	for _, x := range v {
		h.kv.u32(uint32(x))
	}
}

type tensor struct {
	name string
	dims []int // dims[0] is the contiguous one
	typ  uint32
	mean float64
	std  float64
	data []float32 // nil: random, by mean and std
	off  uint64
}

func (t *tensor) count() int {
	n := 1
	for _, d := range t.dims {
		n *= d
	}
	return n
}

func (t *tensor) bytes() int {
	if t.typ == dF32 {
		return 4 * t.count()
	}
	return 2 * t.count()
}

func f16(f float32) uint16 {
	b := math.Float32bits(f)
	s := uint16(b>>16) & 0x8000
	e := int(b>>23&0xff) - 127
	m := b & 0x7fffff
	switch {
	case e > 15:
		return s | 0x7c00
	case e >= -14:
		v := uint32(e+15)<<10 | m>>13
		if r := m & 0x1fff; r > 0x1000 || r == 0x1000 && v&1 == 1 {
			v++
		}
		return s | uint16(v)
	case e >= -25:
		m |= 0x800000
		sh := uint(-e - 1)
		v := m >> sh
		if r, half := m&(1<<sh-1), uint32(1)<<(sh-1); r > half || r == half && v&1 == 1 {
			v++
		}
		return s | uint16(v)
	}
	return s
}

func bf16(f float32) uint16 {
	b := math.Float32bits(f)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// normal holds 65536 equally likely values of the standard normal distribution.
var normal [65536]float32

func init() {
	for i := range normal {
		normal[i] = float32(math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/65536-1))
	}
}

func (t *tensor) write(w *bufio.Writer, seed uint64) {
	if t.data != nil {
		if err := binary.Write(w, binary.LittleEndian, t.data); err != nil {
			log.Fatal(err)
		}
		return
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s", seed, t.name)
	x := h.Sum64() | 1
	next := func() uint64 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		return x * 0x2545f4914f6cdd1d
	}
	n := t.count()
	var tab [65536][4]byte
	size := 4
	for i, v := range normal {
		f := float32(t.mean + t.std*float64(v))
		switch t.typ {
		case dF32:
			binary.LittleEndian.PutUint32(tab[i][:], math.Float32bits(f))
		case dF16:
			binary.LittleEndian.PutUint16(tab[i][:], f16(f))
			size = 2
		default:
			binary.LittleEndian.PutUint16(tab[i][:], bf16(f))
			size = 2
		}
	}
	chunk := make([]byte, 0, 1<<16)
	for i := 0; i < n; {
		r := next()
		for j := 0; j < 4 && i < n; j, i = j+1, i+1 {
			chunk = append(chunk, tab[uint16(r>>(16*j))][:size]...)
		}
		if len(chunk) > 1<<16-16 || i >= n {
			if _, err := w.Write(chunk); err != nil {
				log.Fatal(err)
			}
			chunk = chunk[:0]
		}
	}
}

const sample = `The keeper of the harbour light wrote down the weather every evening, and
every morning the boats read what the keeper had written. When the wind was from the
north there were few boats, and when it was from the south there were many of them.
A cache that is written once and read many times should be small on the disk and quick
to bring back into memory; what was computed for one request is there for the next one.
func main() { for i := 0; i < 10; i++ { fmt.Println("hello, world", i) } return nil }
In 2024 and 2025 the number of tokens in a prompt went from 512 to 32768 and more.
`

// byteRune is the printable stand-in for a byte in byte-level BPE vocabularies.
func byteRunes() (out [256]rune) {
	next := rune(256)
	for b := 0; b < 256; b++ {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			out[b] = rune(b)
		} else {
			out[b] = next
			next++
		}
	}
	return
}

// bpe learns merges from the sample text, words taken with their leading space.
func bpe(want int) (tokens, merges []string) {
	runes := byteRunes()
	order := make([]rune, 0, 256)
	order = append(order, runes[:]...)
	sort.Slice(order, func(i, j int) bool { return order[i] < order[j] })
	have := map[string]bool{}
	for _, r := range order {
		tokens = append(tokens, string(r))
		have[string(r)] = true
	}
	var words [][]string
	for _, line := range strings.Split(sample, "\n") {
		for i, f := range strings.Fields(line) {
			if i > 0 {
				f = " " + f
			}
			var w []string
			alpha := func(c byte) bool { return c|32 >= 'a' && c|32 <= 'z' }
			for j := 0; j < len(f); j++ {
				if j > 0 && alpha(f[j]) != alpha(f[j-1]) && !(j == 1 && f[0] == ' ') {
					words = append(words, w)
					w = nil
				}
				w = append(w, string(runes[f[j]]))
			}
			words = append(words, w)
		}
	}
	for len(merges) < want {
		n := map[[2]string]int{}
		for _, w := range words {
			for j := 1; j < len(w); j++ {
				if c := w[j-1][0]; c >= '0' && c <= '9' {
					continue // digits stay single, as the qwen2 splitter has them
				}
				n[[2]string{w[j-1], w[j]}]++
			}
		}
		var best [2]string
		for p, c := range n {
			if b := n[best]; c > b || c == b && (p[0] < best[0] || p[0] == best[0] && p[1] < best[1]) {
				best = p
			}
		}
		if n[best] < 1 {
			break
		}
		merges = append(merges, best[0]+" "+best[1])
		if s := best[0] + best[1]; !have[s] {
			have[s] = true
			tokens = append(tokens, s)
		}
		for i, w := range words {
			var v []string
			for j := 0; j < len(w); j++ {
				if j+1 < len(w) && w[j] == best[0] && w[j+1] == best[1] {
					v = append(v, w[j]+w[j+1])
					j++
				} else {
					v = append(v, w[j])
				}
			}
			words[i] = v
		}
	}
	return
}

// llama3Factors are the divisors of the rotation frequencies, one a pair of elements, as
// Llama 3.1 has them (rope_type llama3, low_freq_factor 1, high_freq_factor 4): 1 for the
// short waves, factor for the long ones, in between a linear blend of the frequencies.
func llama3Factors(headDim int, base, factor float64, origCtx int) []float32 {
	const low, high = 1, 4
	f := make([]float32, headDim/2)
	for i := range f {
		wave := 2 * math.Pi * math.Pow(base, float64(2*i)/float64(headDim))
		turns := float64(origCtx) / wave
		switch {
		case turns > high:
			f[i] = 1
		case turns < low:
			f[i] = float32(factor)
		default:
			smooth := (turns - low) / (high - low)
			f[i] = float32(1 / ((1-smooth)/factor + smooth))
		}
	}
	return f
}

const chatml = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

func main() {
	log.SetFlags(0)
	var (
		out     = flag.String("o", "model.gguf", "output file")
		preset  = flag.String("preset", "", "qwen3-0.6b or qwen3-1.7b: that model's shape")
		arch    = flag.String("arch", "qwen3", "llama, qwen2, qwen3 or qwen3moe")
		typ     = flag.String("type", "f16", "type of the matrices: f32, f16 or bf16")
		layers  = flag.Int("layers", 2, "")
		embd    = flag.Int("embd", 64, "")
		ff      = flag.Int("ff", 128, "")
		heads   = flag.Int("heads", 4, "")
		kvHeads = flag.Int("kv-heads", 2, "")
		headDim = flag.Int("head-dim", 0, "0: embd/heads")
		vocab   = flag.Int("vocab", 600, "")
		tied    = flag.Bool("tied", false, "no output matrix of its own")
		base    = flag.Float64("rope-base", 1e6, "")
		eps     = flag.Float64("eps", 1e-6, "")
		ctx     = flag.Int("ctx", 40960, "")
		experts = flag.Int("experts", 4, "qwen3moe")
		used    = flag.Int("experts-used", 2, "qwen3moe")
		ffExp   = flag.Int("ff-exp", 0, "qwen3moe; 0: ff")
		merges  = flag.Int("merges", 300, "at most so many BPE merges")
		scaling = flag.String("rope", "none", "frequency scaling: none, linear, yarn or llama3")
		factor  = flag.Float64("rope-factor", 4, "by what -rope stretches the context")
		origCtx = flag.Int("rope-orig-ctx", 32, "yarn, llama3: the context before stretching")
		spread  = flag.Float64("logit-std", 2.5, "about the standard deviation of the logits")
		seed    = flag.Uint64("seed", 1, "")
	)
	flag.Parse()
	switch *preset {
	case "":
	case "qwen3-0.6b":
		*arch, *layers, *embd, *ff, *heads, *kvHeads, *headDim = "qwen3", 28, 1024, 3072, 16, 8, 128
		*vocab, *tied, *base, *ctx = 151936, true, 1e6, 40960
	case "qwen3-1.7b":
		*arch, *layers, *embd, *ff, *heads, *kvHeads, *headDim = "qwen3", 28, 2048, 6144, 16, 8, 128
		*vocab, *tied, *base, *ctx = 151936, true, 1e6, 40960
	default:
		log.Fatalf("unknown preset %q", *preset)
	}
	if *headDim == 0 {
		*headDim = *embd / *heads
	}
	if *ffExp == 0 {
		*ffExp = *ff
	}
	if *heads%*kvHeads != 0 {
		log.Fatal("heads must be a multiple of kv-heads")
	}
	moe := *arch == "qwen3moe"
	qkNorm := moe || *arch == "qwen3"
	bias := *arch == "qwen2"
	switch *arch {
	case "llama", "qwen3", "qwen3moe":
	case "qwen2":
		if *headDim**heads != *embd {
			log.Fatal("qwen2 has head-dim = embd/heads")
		}
	default:
		log.Fatalf("unknown architecture %q", *arch)
	}
	mat, ok := map[string]uint32{"f32": dF32, "f16": dF16, "bf16": dBF16}[*typ]
	if !ok {
		log.Fatalf("unknown type %q", *typ)
	}

	tokens, mrg := bpe(*merges)
	if room := *vocab - 3; len(tokens) > room {
		if room < 256 {
			log.Fatal("vocab must be at least 259")
		}
		mrg = mrg[:room-256]
		tokens = tokens[:room]
	}
	kinds := make([]int32, 0, *vocab)
	for range tokens {
		kinds = append(kinds, 1)
	}
	eot := len(tokens)
	tokens = append(tokens, "<|endoftext|>", "<|im_start|>", "<|im_end|>")
	kinds = append(kinds, 3, 3, 3)
	for i := len(tokens); i < *vocab; i++ {
		tokens = append(tokens, fmt.Sprintf("[PAD%d]", i))
		kinds = append(kinds, 5)
	}

	var h header
	a := *arch
	h.str("general.architecture", a)
	h.str("general.type", "model")
	h.str("general.name", fmt.Sprintf("random %s %d layers x %d", a, *layers, *embd))
	h.u32("general.file_type", map[uint32]int{dF32: 0, dF16: 1, dBF16: 32}[mat])
	h.u32("general.quantization_version", 2)
	h.u32(a+".block_count", *layers)
	h.u32(a+".context_length", *ctx)
	h.u32(a+".embedding_length", *embd)
	h.u32(a+".feed_forward_length", *ff)
	h.u32(a+".attention.head_count", *heads)
	h.u32(a+".attention.head_count_kv", *kvHeads)
	h.u32(a+".attention.key_length", *headDim)
	h.u32(a+".attention.value_length", *headDim)
	h.f32(a+".attention.layer_norm_rms_epsilon", *eps)
	h.f32(a+".rope.freq_base", *base)
	switch *scaling {
	case "none", "llama3": // llama3: by a tensor, no key
	case "yarn":
		h.u32(a+".rope.scaling.original_context_length", *origCtx)
		fallthrough
	case "linear":
		h.str(a+".rope.scaling.type", *scaling)
		h.f32(a+".rope.scaling.factor", *factor)
	default:
		log.Fatalf("unknown rope scaling %q", *scaling)
	}
	if a == "llama" {
		h.u32("llama.rope.dimension_count", *headDim)
		h.u32("llama.vocab_size", *vocab)
	}
	if moe {
		h.u32(a+".expert_count", *experts)
		h.u32(a+".expert_used_count", *used)
		h.u32(a+".expert_feed_forward_length", *ffExp)
	}
	h.str("tokenizer.ggml.model", "gpt2")
	h.str("tokenizer.ggml.pre", "qwen2")
	h.strs("tokenizer.ggml.tokens", tokens)
	h.i32s("tokenizer.ggml.token_type", kinds)
	h.strs("tokenizer.ggml.merges", mrg)
	h.u32("tokenizer.ggml.bos_token_id", eot)
	h.u32("tokenizer.ggml.eos_token_id", eot+2)
	h.u32("tokenizer.ggml.padding_token_id", eot)
	h.bool("tokenizer.ggml.add_bos_token", false)
	h.str("tokenizer.chat_template", chatml)

	var ts []*tensor
	matrix := func(name string, scale float64, dims ...int) {
		ts = append(ts, &tensor{name: name, dims: dims, typ: mat, std: scale / math.Sqrt(float64(dims[0]))})
	}
	vec := func(name string, mean, std float64, n int) {
		ts = append(ts, &tensor{name: name, dims: []int{n}, typ: dF32, mean: mean, std: std})
	}
	q, kv := *heads**headDim, *kvHeads**headDim
	matrix("token_embd.weight", *spread, *embd, *vocab)
	if *scaling == "llama3" {
		ts = append(ts, &tensor{name: "rope_freqs.weight", dims: []int{*headDim / 2}, typ: dF32, data: llama3Factors(*headDim, *base, *factor, *origCtx)})
	}
	for i := 0; i < *layers; i++ {
		p := fmt.Sprintf("blk.%d.", i)
		vec(p+"attn_norm.weight", 1, 0.1, *embd)
		matrix(p+"attn_q.weight", 1, *embd, q)
		matrix(p+"attn_k.weight", 1, *embd, kv)
		matrix(p+"attn_v.weight", 1, *embd, kv)
		matrix(p+"attn_output.weight", 1, q, *embd)
		if bias {
			vec(p+"attn_q.bias", 0, 0.3, q)
			vec(p+"attn_k.bias", 0, 0.3, kv)
			vec(p+"attn_v.bias", 0, 0.1, kv)
		}
		if qkNorm {
			vec(p+"attn_q_norm.weight", 1.5, 0.15, *headDim)
			vec(p+"attn_k_norm.weight", 1, 0.1, *headDim)
		}
		vec(p+"ffn_norm.weight", 1, 0.1, *embd)
		if moe {
			ts = append(ts, &tensor{name: p + "ffn_gate_inp.weight", dims: []int{*embd, *experts}, typ: dF32, std: 1 / math.Sqrt(float64(*embd))})
			matrix(p+"ffn_gate_exps.weight", 1, *embd, *ffExp, *experts)
			matrix(p+"ffn_up_exps.weight", 1, *embd, *ffExp, *experts)
			matrix(p+"ffn_down_exps.weight", 1, *ffExp, *embd, *experts)
		} else {
			matrix(p+"ffn_gate.weight", 1, *embd, *ff)
			matrix(p+"ffn_up.weight", 1, *embd, *ff)
			matrix(p+"ffn_down.weight", 1, *ff, *embd)
		}
	}
	vec("output_norm.weight", 1, 0.1, *embd)
	if !*tied {
		matrix("output.weight", *spread, *embd, *vocab)
	}

	var w buf
	w.b = append(w.b, "GGUF"...)
	w.u32(3)
	w.u64(uint64(len(ts)))
	w.u64(h.n)
	w.b = append(w.b, h.kv.b...)
	var off uint64
	params := 0
	pad := func(n uint64) uint64 { return (n + align - 1) / align * align }
	for _, t := range ts {
		t.off = off
		w.str(t.name)
		w.u32(uint32(len(t.dims)))
		for _, d := range t.dims {
			w.u64(uint64(d))
		}
		w.u32(t.typ)
		w.u64(t.off)
		off = pad(off + uint64(t.bytes()))
		params += t.count()
	}
	w.b = append(w.b, make([]byte, pad(uint64(len(w.b)))-uint64(len(w.b)))...)

	f, err := os.Create(*out)
	if err != nil {
		log.Fatal(err)
	}
	bw := bufio.NewWriterSize(f, 1<<20)
	bw.Write(w.b)
	for _, t := range ts {
		t.write(bw, *seed)
		n := uint64(t.bytes())
		bw.Write(make([]byte, pad(n)-n))
	}
	if err := bw.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s, %d tensors, %.1f M parameters, %d merges, %d bytes\n", *out, a, len(ts), float64(params)/1e6, len(mrg), uint64(len(w.b))+off)
}
