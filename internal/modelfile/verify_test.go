package modelfile_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"baton/internal/demo"
	"baton/internal/gguf"
	"baton/internal/gguf/gguftest"
	"baton/internal/modelfile"
	"baton/internal/quant"
)

func verify(t testing.TB, data []byte) *modelfile.Verification {
	t.Helper()
	v, err := modelfile.Verify(context.Background(), parse(t, data, "m.gguf"), nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if v.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("sha256 is %s, want %x", v.SHA256, sum)
	}
	return v
}

func TestVerifyDemoModel(t *testing.T) {
	v := verify(t, demo.GGUF())
	want := &modelfile.Verification{
		File: "m.gguf", Bytes: 14_089_312, Tensors: 68, Findings: []modelfile.Finding{},
		SHA256: "a589ad6dfed919b9f60e62877f832f15b9fb085e5455ff9f5b7df3b395752220", // by sha256sum
	}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// change returns the tiny model with some of its bytes changed: fn gets the data of the
// named tensor.
func change(t *testing.T, name string, fn func(data []byte)) []byte {
	t.Helper()
	whole := gguftest.Bytes(gguftest.Tiny())
	x, ok := parse(t, whole, "tiny").Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	fn(x.Data)
	return whole
}

func edited(fn func(b *gguf.Builder)) []byte {
	b := gguftest.Tiny()
	fn(b)
	return gguftest.Bytes(b)
}

func putF32(data []byte, i int, x float64) {
	binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(x)))
}

func TestVerifyFinds(t *testing.T) {
	whole := gguftest.Bytes(gguftest.Tiny())
	tiny := parse(t, whole, "tiny")
	at := func(name string) uint64 {
		x, ok := tiny.Tensor(name)
		if !ok {
			t.Fatalf("no tensor %s", name)
		}
		return x.Offset
	}
	const e, w = modelfile.Error, modelfile.Warning

	for _, c := range []struct {
		name string
		data []byte
		want []modelfile.Finding
	}{
		{"nothing", whole, []modelfile.Finding{}},
		{"NaN and infinities", change(t, "blk.0.ffn_up.weight", func(data []byte) {
			putF32(data, 700, math.NaN())
			putF32(data, 600, math.Inf(-1))
			putF32(data, 2047, math.Inf(1))
		}), []modelfile.Finding{{e, "blk.0.ffn_up.weight", 8, at("blk.0.ffn_up.weight") + 2400,
			"1 values are NaN and 2 infinite, the first is element 600"}}},
		{"zeros", change(t, "blk.0.attn_k.weight", func(data []byte) { clear(data) }),
			[]modelfile.Finding{{w, "blk.0.attn_k.weight", 3, at("blk.0.attn_k.weight"),
				"all 4096 bytes are zero; the download of the file may be incomplete"}}},
		{"trailing bytes", append(slices.Clone(whole), make([]byte, 100)...),
			[]modelfile.Finding{{w, "", -1, uint64(len(whole)), "100 bytes from here on belong to no tensor"}}},
		{"padding at the end", append(slices.Clone(whole), make([]byte, 31)...), []modelfile.Finding{}},
		{"padding not zero", append(slices.Clone(whole), 0, 0, 1),
			[]modelfile.Finding{{w, "", -1, uint64(len(whole)), "the 3 bytes of padding are not zero"}}},
		{"unknown tensor", edited(func(b *gguf.Builder) { b.AddTensor("blk.1.extra", quant.F32, []uint64{1}, make([]byte, 4)) }),
			[]modelfile.Finding{{w, "blk.1.extra", 11, 0, "llama has no tensor of this name"}}},
		{"rope factors", edited(func(b *gguf.Builder) { b.AddTensor("rope_freqs.weight", quant.F32, []uint64{2}, []byte("12345678")) }),
			[]modelfile.Finding{}},
		{"other width", edited(func(b *gguf.Builder) { b.SetUint32("llama.feed_forward_length", 96) }), []modelfile.Finding{
			{e, "blk.0.ffn_gate.weight", 7, at("blk.0.ffn_gate.weight"), "dimensions are [32 x 64], the metadata ask for [32 x 96]"},
			{e, "blk.0.ffn_up.weight", 8, at("blk.0.ffn_up.weight"), "dimensions are [32 x 64], the metadata ask for [32 x 96]"},
			{e, "blk.0.ffn_down.weight", 9, at("blk.0.ffn_down.weight"), "dimensions are [64 x 32], the metadata ask for [96 x 32]"},
		}},
		{"missing biases", edited(func(b *gguf.Builder) { renameArch(b, tiny, "qwen2") }), []modelfile.Finding{
			{e, "", -1, 0, "tensor blk.0.attn_q.bias is missing, expected dimensions [64]"},
			{e, "", -1, 0, "tensor blk.0.attn_k.bias is missing, expected dimensions [32]"},
			{e, "", -1, 0, "tensor blk.0.attn_v.bias is missing, expected dimensions [32]"},
		}},
		{"missing head norms", edited(func(b *gguf.Builder) { renameArch(b, tiny, "qwen3") }), []modelfile.Finding{
			{e, "", -1, 0, "tensor blk.0.attn_q_norm.weight is missing, expected dimensions [32]"},
			{e, "", -1, 0, "tensor blk.0.attn_k_norm.weight is missing, expected dimensions [32]"},
		}},
		{"too many layers", edited(func(b *gguf.Builder) { b.SetUint32("llama.block_count", math.MaxUint32) }),
			[]modelfile.Finding{{e, "", -1, 0, "llama.block_count is 4294967295, but the file has only 11 tensors"}}},
		{"no heads", edited(func(b *gguf.Builder) { b.SetUint32("llama.attention.head_count", 0) }),
			[]modelfile.Finding{{e, "", -1, 0, "llama.attention.head_count is 0, must be at least 1"}}},
		{"heads do not divide", edited(func(b *gguf.Builder) { b.SetUint32("llama.attention.head_count_kv", 3) }),
			[]modelfile.Finding{{e, "", -1, 0, "llama.attention.head_count 2 is not a multiple of head_count_kv 3"}}},
		{"wrong type", edited(func(b *gguf.Builder) { b.SetString("llama.block_count", "1") }),
			[]modelfile.Finding{{e, "", -1, 0, `key "llama.block_count" is string, wanted a non-negative integer`}}},
		{"unknown architecture", edited(func(b *gguf.Builder) { b.SetString("general.architecture", "mamba") }),
			[]modelfile.Finding{{w, "", -1, 0, "names and shapes of the tensors are not checked: Baton knows those of llama, qwen2 and qwen3 without experts, this is mamba"}}},
		{"vocabulary arrays", edited(func(b *gguf.Builder) {
			b.SetInts("tokenizer.ggml.token_type", []int32{1})
			b.SetFloats("tokenizer.ggml.scores", make([]float32, gguftest.TinyVocab))
			b.SetUint32("tokenizer.ggml.eos_token_id", gguftest.TinyVocab)
		}), []modelfile.Finding{
			{e, "", -1, 0, "tokenizer.ggml.token_type is array of 1 int32, expected one entry for each of the 260 tokens"},
			{w, "", -1, 0, "tokenizer.ggml.eos_token_id is not one of the 260 tokens"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := verify(t, c.data)
			for i := range v.Findings {
				if strings.HasPrefix(c.name, "unknown tensor") {
					v.Findings[i].Offset = 0 // moved by the edit
				}
			}
			if diff := cmp.Diff(c.want, v.Findings); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			errs := 0
			for _, f := range c.want {
				if f.Severity == e {
					errs++
				}
			}
			if v.Errors != errs || v.Warnings != len(c.want)-errs || v.OK() != (errs == 0) {
				t.Errorf("%d errors, %d warnings, OK %v", v.Errors, v.Warnings, v.OK())
			}
		})
	}
}

// renameArch makes b a model of another architecture with the same numbers.
func renameArch(b *gguf.Builder, from *gguf.File, arch string) {
	b.SetString("general.architecture", arch)
	for _, key := range from.Keys() {
		if name, ok := strings.CutPrefix(key, "llama."); ok {
			v, _ := from.Value(key)
			b.Set(arch+"."+name, v)
		}
	}
}

func TestVerifyBadModels(t *testing.T) {
	for _, c := range gguftest.BadModels() {
		v := verify(t, c.Bytes)
		switch c.Name {
		case "architecture-unknown": // a warning: it may be a good model of another kind
			if v.Warnings == 0 {
				t.Errorf("%s: no warning", c.Name)
			}
		case "tokenizer-unknown", "key-length-max": // for inspect to say
		default:
			if v.OK() {
				t.Errorf("%s: no error", c.Name)
			}
		}
	}
}

// TestVerifyScales puts a NaN, then an infinity, into each floating-point field of the
// middle block of three. The offsets are sums of the struct members in ggml-common.h.
func TestVerifyScales(t *testing.T) {
	const k = 256 // QK_K
	for _, c := range []struct {
		typ     quant.Type
		offsets []int
	}{
		{quant.F16, []int{0}}, {quant.BF16, []int{0}},
		{quant.Q4_0, []int{0}}, {3, []int{0, 2}}, {6, []int{0}}, {7, []int{0, 2}},
		{quant.Q8_0, []int{0}}, {9, []int{0, 2}},
		{10, []int{k/16 + k/4, k/16 + k/4 + 2}}, {11, []int{k/8 + k/4 + 12}},
		{quant.Q4_K, []int{0, 2}}, {13, []int{0, 2}}, {quant.Q6_K, []int{k/2 + k/4 + k/16}},
		{16, []int{0}}, {17, []int{0}}, {18, []int{0}}, {19, []int{0}}, {20, []int{0}},
		{21, []int{0}}, {22, []int{0}}, {23, []int{0}},
		{34, []int{(k-4*k/64)/5 + k/64}}, {35, []int{k / 4}},
	} {
		nan, inf := uint16(0x7e01), uint16(0xfc00)
		if c.typ == quant.BF16 {
			nan, inf = 0x7fc0, 0xff80
		}
		for _, offset := range c.offsets {
			for _, x := range []struct {
				bits uint16
				want string
			}{{nan, "1 block scales are NaN and 0 infinite"}, {inf, "0 block scales are NaN and 1 infinite"}} {
				checkScale(t, c.typ, x.want, func(block []byte) { binary.LittleEndian.PutUint16(block[offset:], x.bits) })
			}
		}
	}
	checkScale(t, 28, "0 block scales are NaN and 1 infinite", func(block []byte) { // F64
		binary.LittleEndian.PutUint64(block, math.Float64bits(math.Inf(-1)))
	})
	checkScale(t, 15, "1 block scales are NaN and 0 infinite", func(block []byte) { putF32(block, 0, math.NaN()) }) // Q8_K
	checkScale(t, 39, "1 block scales are NaN and 0 infinite", func(block []byte) { block[0] = 0xff })              // MXFP4
	checkScale(t, 29, "0 block scales are NaN and 1 infinite", func(block []byte) {                                 // IQ1_M: 0x7c00, a digit a word
		for i, digit := range []byte{0x0, 0x0, 0xc, 0x7} {
			high := &block[k/8+k/16+2*i+1]
			*high = *high&0x0f | digit<<4
		}
	})
}

func checkScale(t *testing.T, typ quant.Type, want string, spoil func(block []byte)) {
	t.Helper()
	format, ok := typ.Format()
	if !ok {
		t.Fatalf("type %d is unknown", typ)
	}
	// Finite in every kind of float, wherever it lies.
	data := bytes.Repeat([]byte{0x3b}, 3*format.Bytes)
	build := func() []byte {
		b := gguf.NewBuilder()
		b.AddTensor("x", typ, []uint64{uint64(3 * format.Elems)}, data)
		return gguftest.Bytes(b)
	}
	ofTensor := func(v *modelfile.Verification) []modelfile.Finding {
		return slices.DeleteFunc(v.Findings, func(f modelfile.Finding) bool { return f.Tensor == "" })
	}
	if f := ofTensor(verify(t, build())); len(f) > 0 {
		t.Errorf("%s: sound data: %v", format.Name, f)
	}
	spoil(data[format.Bytes : 2*format.Bytes])
	whole := build()
	x, _ := parse(t, whole, "m").Tensor("x")
	f := ofTensor(verify(t, whole))
	if format.Elems == 1 {
		want = strings.Replace(want, "block scales", "values", 1)
	}
	if len(f) != 1 || !strings.HasPrefix(f[0].Message, want) || f[0].Offset != x.Offset+uint64(format.Bytes) {
		t.Errorf("%s: got %v, want %s at offset %d", format.Name, f, want, x.Offset+uint64(format.Bytes))
	}
}

// A tensor of several windows: indices count from its start.
func TestVerifyLargeTensor(t *testing.T) {
	data := bytes.Repeat([]byte{0x11}, 34*200_000) // Q8_0, 6.8 MB
	binary.LittleEndian.PutUint16(data[34*150_000:], 0x7c00)
	b := gguf.NewBuilder()
	b.AddTensor("x", quant.Q8_0, []uint64{32, 200_000}, data)
	f := parse(t, gguftest.Bytes(b), "m.gguf")
	var steps []uint64
	v, err := modelfile.Verify(context.Background(), f, func(done, total uint64) {
		if total != f.Size {
			t.Errorf("total %d, want %d", total, f.Size)
		}
		steps = append(steps, done)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(steps) || len(steps) < 3 || steps[len(steps)-1] != f.Size {
		t.Errorf("progress %v", steps)
	}
	want := "0 block scales are NaN and 1 infinite, the first is in block 150000 (elements 4800000 to 4800031)"
	if i := slices.IndexFunc(v.Findings, func(f modelfile.Finding) bool { return f.Message == want }); i < 0 {
		t.Errorf("findings: %v", v.Findings)
	}
}

func TestVerifyStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := gguftest.Tiny().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := modelfile.Verify(ctx, f, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := modelfile.Verify(context.Background(), f, nil); !errors.Is(err, gguf.ErrFault) {
		t.Errorf("truncated under it: %v", err)
	}
}

func TestVerificationOutput(t *testing.T) {
	v := verify(t, edited(func(b *gguf.Builder) {
		b.SetUint32("llama.attention.head_count_kv", 3)
		b.SetUint32("tokenizer.ggml.eos_token_id", 5000)
	}))
	var text, asJSON bytes.Buffer
	if err := errors.Join(v.Write(&text, false), v.Write(&asJSON, true)); err != nil {
		t.Fatal(err)
	}
	want := "m.gguf: 87.9 kB (" // the size is that of the tiny model
	if !strings.HasPrefix(text.String(), want) {
		t.Errorf("got\n%s\nwant it to begin with %s", text.String(), want)
	}
	_, rest, _ := strings.Cut(text.String(), "\nsha256 "+v.SHA256+"\n")
	if diff := cmp.Diff(`error: llama.attention.head_count 2 is not a multiple of head_count_kv 3
warning: tokenizer.ggml.eos_token_id is not one of the 260 tokens
1 error, 1 warning: the file is damaged or not usable
`, rest); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var again modelfile.Verification
	if err := json.Unmarshal(asJSON.Bytes(), &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*v, again); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// The list of findings is bounded, the counts are not.
func TestManyFindings(t *testing.T) {
	v := verify(t, edited(func(b *gguf.Builder) {
		for i := range 250 {
			b.AddTensor("x"+strings.Repeat("y", i%50)+string(rune('a'+i/50)), quant.F32, []uint64{1}, make([]byte, 4))
		}
	}))
	if v.Warnings != 250 || len(v.Findings) != 100 {
		t.Errorf("%d warnings, %d findings", v.Warnings, len(v.Findings))
	}
	var text bytes.Buffer
	if err := v.Write(&text, false); err != nil || !strings.Contains(text.String(), "and 150 more\n") {
		t.Errorf("%v, %s", err, text.String())
	}
}

func BenchmarkVerify(b *testing.B) {
	f := parse(b, demo.GGUF(), "demo")
	b.SetBytes(int64(f.Size))
	for b.Loop() {
		if _, err := modelfile.Verify(context.Background(), f, nil); err != nil {
			b.Fatal(err)
		}
	}
}
