package vocab_test

import (
	"fmt"
	"testing"

	"baton/internal/demo"
	"baton/internal/gguf"
	"baton/internal/vocab"

	"github.com/google/go-cmp/cmp"
)

// The metadata of a GGUF file is what New reads.
var _ vocab.Metadata = (*gguf.File)(nil)

// metadata is a vocab.Metadata in memory.
type metadata map[string]any

func get[T any](md metadata, key string, def T) (T, error) {
	v, ok := md[key]
	if !ok {
		return def, nil
	}
	t, ok := v.(T)
	if !ok {
		return def, fmt.Errorf("%s is %T, expected %T", key, v, def)
	}
	return t, nil
}

func (md metadata) NeedString(key string) (string, error) {
	if _, ok := md[key]; !ok {
		return "", fmt.Errorf("%s is missing", key)
	}
	return get(md, key, "")
}
func (md metadata) StringOr(key, def string) (string, error)      { return get(md, key, def) }
func (md metadata) UintOr(key string, def uint64) (uint64, error) { return get(md, key, def) }
func (md metadata) BoolOr(key string, def bool) (bool, error)     { return get(md, key, def) }
func (md metadata) Strings(key string) ([]string, bool, error)    { return array[string](md, key) }
func (md metadata) Floats(key string) ([]float32, bool, error)    { return array[float32](md, key) }
func (md metadata) Ints(key string) ([]int32, bool, error)        { return array[int32](md, key) }

func array[T any](md metadata, key string) ([]T, bool, error) {
	_, ok := md[key]
	v, err := get(md, key, []T(nil))
	return v, ok, err
}

// demoFile is the demo model's GGUF file.
func demoFile(t testing.TB) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(demo.GGUF(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newDemo(t testing.TB) *vocab.Vocab {
	t.Helper()
	v, err := vocab.New(demoFile(t))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDemoPrompts(t *testing.T) {
	v := newDemo(t)
	prompts, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	if len(prompts) < 6 {
		t.Fatalf("%d golden prompts, expected at least 6", len(prompts))
	}
	for _, p := range prompts {
		ids := v.Encode(nil, p.Text, vocab.EncodeOptions{ParseSpecial: true})
		if d := cmp.Diff(p.Tokens, ids); d != "" {
			t.Errorf("%s: ids differ (-want +got):\n%s", p.Name, d)
		}
		if got := string(v.Decode(p.Tokens, true)); got != p.Text {
			t.Errorf("%s: decoded to %q, want %q", p.Name, got, p.Text)
		}
		d := vocab.NewDetokenizer(v, true)
		text := ""
		for _, id := range p.Greedy {
			text += d.Push(id)
		}
		if text += d.Flush(); text != p.GreedyText {
			t.Errorf("%s: streamed %q, want %q", p.Name, text, p.GreedyText)
		}
	}
}

func TestDemoSpecial(t *testing.T) {
	v := newDemo(t)
	if v.Size() != 4096 || v.Model() != "gpt2" || v.Pre() != "qwen2" {
		t.Errorf("size %d, model %s, pre %s: want 4096, gpt2, qwen2", v.Size(), v.Model(), v.Pre())
	}
	if d := cmp.Diff([]int32{4093, 4095}, v.EOG()); d != "" {
		t.Errorf("end-of-generation tokens (-want +got):\n%s", d)
	}
	for id, want := range map[int32]string{4093: "<|endoftext|>", 4094: "<|im_start|>", 4095: "<|im_end|>"} {
		if got := v.Text(id); got != want || !v.IsControl(id) {
			t.Errorf("token %d is %q, control %t: want %q, true", id, got, v.IsControl(id), want)
		}
	}
	if eos, ok := v.EOS(); !ok || !v.IsEOG(eos) {
		t.Errorf("eos is %d, %t; is it end of generation: %t", eos, ok, v.IsEOG(eos))
	}
	if v.AddBOS() {
		t.Error("the demo model wants no BOS, AddBOS is true")
	}
}
