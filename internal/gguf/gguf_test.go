package gguf_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"baton/internal/gguf"
	"baton/internal/gguf/gguftest"
	"baton/internal/quant"
)

// build returns the bytes of what fill builds.
func build(t testing.TB, fill func(*gguf.Builder)) []byte {
	t.Helper()
	b := gguf.NewBuilder()
	fill(b)
	var buf bytes.Buffer
	n, err := b.WriteTo(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if int(n) != buf.Len() {
		t.Fatalf("WriteTo returned %d, wrote %d bytes", n, buf.Len())
	}
	return buf.Bytes()
}

func sample(b *gguf.Builder) {
	b.SetString("general.architecture", "llama")
	b.SetUint32("u32", 7)
	b.SetUint64("u64", 1<<40)
	b.SetInt32("i32", -3)
	b.SetFloat32("f32", 0.5)
	b.SetFloat64("f64", -1e300)
	b.SetBool("yes", true)
	b.SetBool("no", false)
	b.SetStrings("words", []string{"", "a", "\xff\x00"})
	b.SetInts("ints", []int32{1, -2})
	b.SetFloats("floats", []float32{1.5, -2})
	b.SetStrings("none", nil)
	b.AddTensor("a", quant.F32, []uint64{2, 2}, []byte("0123456789abcdef"))
	b.AddTensor("b", quant.Q8_0, []uint64{32}, bytes.Repeat([]byte{9}, 34))
	b.AddTensor("c", quant.F16, []uint64{1, 2, 1, 3}, []byte("0123456789ab"))
}

func TestParse(t *testing.T) {
	f, err := gguf.Parse(build(t, sample), "mem")
	if err != nil {
		t.Fatal(err)
	}
	if f.Version != 3 || f.Alignment != 32 || f.Name != "mem" {
		t.Errorf("got version %d, alignment %d, name %q", f.Version, f.Alignment, f.Name)
	}
	wantKeys := strings.Fields("general.architecture u32 u64 i32 f32 f64 yes no words ints floats none")
	if diff := cmp.Diff(wantKeys, f.Keys()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}

	tensors := f.Tensors()
	var names []string
	for _, x := range tensors {
		names = append(names, x.Name)
		if x.Offset%32 != 0 || !bytes.Equal(x.Data, f.Bytes()[x.Offset:x.Offset+uint64(len(x.Data))]) {
			t.Errorf("tensor %s: data is not at its offset %d", x.Name, x.Offset)
		}
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("tensors %v", names)
	}
	c, ok := f.Tensor("c")
	if !ok || c.Type != quant.F16 || c.Elems() != 6 || string(c.Data) != "0123456789ab" || !slices.Equal(c.Dims, []uint64{1, 2, 1, 3}) {
		t.Errorf("tensor c: %v %+v", ok, c)
	}
	if f.DataOffset != tensors[0].Offset || f.Size != c.Offset+12 {
		t.Errorf("data offset %d, size %d", f.DataOffset, f.Size)
	}
	if _, ok := f.Tensor("d"); ok {
		t.Error("found a tensor that is not there")
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	b := gguf.NewBuilder()
	sample(b)
	if err := b.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	check := func(f *gguf.File, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := f.Tensor("a"); !ok || string(a.Data) != "0123456789abcdef" {
			t.Errorf("tensor a: %v %q", ok, a.Data)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		// Metadata outlives the mapping.
		if s, err := f.NeedString("general.architecture"); s != "llama" || err != nil {
			t.Errorf("architecture %q, %v", s, err)
		}
	}
	check(gguf.Open(path))

	osf, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer osf.Close()
	check(gguf.OpenFd(int(osf.Fd()), "inherited"))
	if _, err := osf.Stat(); err != nil {
		t.Errorf("OpenFd closed the caller's descriptor: %v", err)
	}
}

// contents is all that a file says, in a form that can be compared.
type contents struct {
	Version   uint32
	Alignment uint64
	Keys      []string
	Values    []any
	Tensors   []gguf.Tensor
}

func diffFiles(a, b *gguf.File) string {
	read := func(f *gguf.File) contents {
		c := contents{Version: f.Version, Alignment: f.Alignment, Keys: f.Keys(), Tensors: slices.Clone(f.Tensors())}
		for _, key := range c.Keys {
			v, _ := f.Value(key)
			c.Values = append(c.Values, flatten(v))
		}
		for i := range c.Tensors {
			c.Tensors[i].Offset = 0 // gaps in a are not kept in b
		}
		return c
	}
	return cmp.Diff(read(a), read(b), cmpopts.EquateNaNs())
}

func flatten(v gguf.Value) []any {
	list := []any{v.Kind()}
	if v.Type() != gguf.Array {
		return append(list, v.Any())
	}
	for e := range v.All() {
		list = append(list, flatten(e)...)
	}
	return list
}

func TestRewrite(t *testing.T) {
	for _, data := range [][]byte{build(t, sample), []byte(widths), gguftest.Bytes(gguftest.Tiny())} {
		f, err := gguf.Parse(data, "m.gguf")
		if err != nil {
			t.Fatal(err)
		}
		checkRewritten(t, f)
	}
}
