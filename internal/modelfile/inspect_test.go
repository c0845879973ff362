package modelfile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"baton/internal/demo"
	"baton/internal/gguf"
	"baton/internal/gguf/gguftest"
	"baton/internal/modelfile"
	"baton/internal/quant"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func parse(t testing.TB, data []byte, name string) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(data, name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// inspect returns the report on what b builds.
func inspect(t testing.TB, b *gguf.Builder, o modelfile.Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := modelfile.Inspect(&out, parse(t, gguftest.Bytes(b), "m.gguf"), o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestInspectDemoModel(t *testing.T) {
	f := parse(t, demo.GGUF(), "demo.gguf")
	support := modelfile.Support{
		Model:    func(*gguf.File) error { return nil },
		Vocab:    func(*gguf.File) error { return nil },
		Template: func(string) error { return nil },
	}
	for _, c := range []struct {
		golden  string
		options modelfile.Options
	}{
		{"demo.txt", modelfile.Options{Support: support}},
		{"demo-brief.txt", modelfile.Options{Support: support, Brief: true}},
		{"demo.json", modelfile.Options{Support: support, JSON: true}},
	} {
		var out bytes.Buffer
		if err := modelfile.Inspect(&out, f, c.options); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", c.golden)
		if *update {
			if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.golden, diff)
		}
	}
}

// The numbers that the demo model's README gives.
func TestDescribeDemoModel(t *testing.T) {
	m := modelfile.Describe(parse(t, demo.GGUF(), "demo.gguf"), modelfile.Support{}).Model
	want := modelfile.ModelInfo{
		Architecture: "qwen3", Name: m.Name, Description: m.Description, License: "cc0-1.0", Quantization: "Q8_0",
		Parameters: 13_114_624, ContextLength: 2560, Layers: 6, Width: 512, FeedForward: 768,
		Heads: 8, KVHeads: 2, KeyLength: 64, ValueLength: 64, RopeBase: 1e6, KVBytesPerToken: 3 << 10,
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
}

func TestChecks(t *testing.T) {
	no := errors.New("cannot")
	for _, c := range []struct {
		name    string
		change  func(*gguf.Builder)
		support modelfile.Support
		want    []modelfile.Check
	}{
		{"nothing asked", func(b *gguf.Builder) {}, modelfile.Support{}, []modelfile.Check{
			{"tensor types", true, "F32"},
			{"chat template", false, "the file has none: chat requests need one, completions do not"},
		}},
		{"all well", func(b *gguf.Builder) { b.SetString("tokenizer.chat_template", "{{ x }}") }, modelfile.Support{
			Model:    func(*gguf.File) error { return nil },
			Vocab:    func(*gguf.File) error { return nil },
			Template: func(string) error { return nil },
		}, []modelfile.Check{
			{"model", true, "architecture llama is supported"},
			{"tensor types", true, "F32"},
			{"tokenizer", true, "gpt2, gpt-2"},
			{"chat template", true, "can be rendered"},
		}},
		{"nothing works", func(b *gguf.Builder) {
			b.SetString("tokenizer.chat_template", "{{ x }}")
			b.SetUint32("split.count", 3)
			b.SetString("general.type", "adapter")
			b.AddTensor("extra", 11, []uint64{256}, make([]byte, 110)) // Q3_K
		}, modelfile.Support{
			Model: func(*gguf.File) error { return no },
			Vocab: func(*gguf.File) error { return no },
			Template: func(source string) error {
				if source != "{{ x }}" {
					t.Errorf("template %q", source)
				}
				return no
			},
		}, []modelfile.Check{
			{"one file", false, "this is one of 3 parts; join them with llama-gguf-split --merge"},
			{"a model", false, "general.type is adapter, expected model"},
			{"model", false, "cannot"},
			{"tensor types", false, "no kernels for Q3_K; quantize the model to another type"},
			{"tokenizer", false, "cannot"},
			{"chat template", false, "cannot"},
		}},
	} {
		b := gguftest.Tiny()
		c.change(b)
		r := modelfile.Describe(parse(t, gguftest.Bytes(b), "m.gguf"), c.support)
		if diff := cmp.Diff(c.want, r.Checks); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// Every file that parses can be described, also as JSON that decodes to the same report.
func TestDescribeAnything(t *testing.T) {
	b := gguf.NewBuilder()
	b.SetFloat32("nan", float32(math.NaN()))
	b.SetFloat64("inf", math.Inf(1))
	b.SetFloats("list", []float32{1, float32(math.Inf(-1))})
	b.SetStrings("none", nil)
	cases := append(gguftest.BadModels(), gguftest.Case{Name: "odd", Bytes: gguftest.Bytes(b)})
	for _, c := range cases {
		f := parse(t, c.Bytes, c.Name)
		var text, asJSON bytes.Buffer
		if err := modelfile.Inspect(&text, f, modelfile.Options{}); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if err := modelfile.Inspect(&asJSON, f, modelfile.Options{JSON: true}); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		var r modelfile.Report
		dec := json.NewDecoder(&asJSON)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&r); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if r.File.Bytes != f.Size || len(r.Tensors) != len(f.Tensors()) || len(r.Metadata) != len(f.Keys()) {
			t.Errorf("%s: report does not fit the file: %+v", c.Name, r.File)
		}
	}
}

func TestProblemsAreListed(t *testing.T) {
	b := gguftest.Tiny()
	b.SetString("llama.attention.head_count", "8")
	b.SetInts("llama.attention.head_count_kv", []int32{1, 2})
	out := inspect(t, b, modelfile.Options{Brief: true})
	for _, want := range []string{
		"\nProblems\n",
		`  key "llama.attention.head_count" is string, wanted a non-negative integer`,
		`  key "llama.attention.head_count_kv" is array of 2 int32, wanted a non-negative integer`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "KV cache") {
		t.Errorf("a cache size out of nothing:\n%s", out)
	}
}

// Text out of a file cannot send control sequences to the terminal.
func TestControlCharactersAreEscaped(t *testing.T) {
	evil := "a\x1b[2Jb\x07\r\u202e\xffc"
	b := gguftest.Tiny()
	b.SetString("general.name", evil)
	b.SetString("general.architecture", evil)
	b.SetString("tokenizer.chat_template", evil)
	b.SetString("tokenizer.ggml.model", evil)
	b.SetString("general.type", evil)
	b.SetBool("key\x1b", true)
	b.SetStrings("list", []string{evil})
	b.AddTensor("tensor\x1b", quant.F32, []uint64{1}, make([]byte, 4))
	out := inspect(t, b, modelfile.Options{})
	for _, r := range out {
		if r < ' ' && r != '\n' || r == '\u202e' || r == '\uFFFD' {
			t.Fatalf("output holds %q", r)
		}
	}
	if want := `a\x1b[2Jb\a\r\u202e\xffc`; !strings.Contains(out, want) {
		t.Errorf("no %s in:\n%s", want, out)
	}
}

func TestQuantization(t *testing.T) {
	b := gguftest.Tiny()
	if got := modelfile.Quantization(parse(t, gguftest.Bytes(b), "m")); got != "F32" {
		t.Errorf("by tensors: %q", got)
	}
	b.SetUint32("general.file_type", 15)
	if got := modelfile.Quantization(parse(t, gguftest.Bytes(b), "m")); got != "Q4_K_M" {
		t.Errorf("by file type: %q", got)
	}
	b.SetUint32("general.file_type", 9999)
	if got := modelfile.Quantization(parse(t, gguftest.Bytes(b), "m")); got != "F32" {
		t.Errorf("by tensors, as the file type is unknown: %q", got)
	}
	if got := modelfile.Quantization(parse(t, gguftest.Bytes(gguf.NewBuilder()), "m")); got != "" {
		t.Errorf("without tensors: %q", got)
	}
}
