package gguf_test

import (
	"path/filepath"
	"strings"
	"testing"

	"baton/internal/gguf"
	"baton/internal/quant"
)

func TestBuilderRefuses(t *testing.T) {
	data := make([]byte, 4096)
	for _, c := range []struct {
		want string
		fill func(*gguf.Builder)
	}{
		{`key "" must be valid UTF-8`, func(b *gguf.Builder) { b.SetBool("", true) }},
		{`key "a\xff" must be valid UTF-8`, func(b *gguf.Builder) { b.SetBool("a\xff", true) }},
		{"the zero Value cannot be written", func(b *gguf.Builder) { b.Set("a", gguf.Value{}) }},
		{"the limit is 16777216", func(b *gguf.Builder) { b.SetString("a", strings.Repeat("x", 16<<20+1)) }},
		{"version 4, must be 2 or 3", func(b *gguf.Builder) { b.Version = 4 }},
		{"must be a uint32 and a power of two", func(b *gguf.Builder) { b.SetUint32("general.alignment", 48) }},
		{"must be a uint32 and a power of two", func(b *gguf.Builder) { b.SetUint64("general.alignment", 32) }},
		{`tensor "t" is there already`, func(b *gguf.Builder) {
			b.AddTensor("t", quant.F32, []uint64{1}, data[:4])
			b.AddTensor("t", quant.F32, []uint64{1}, data[:4])
		}},
		{`tensor "": its name must be`, func(b *gguf.Builder) { b.AddTensor("", quant.F32, []uint64{1}, data[:4]) }},
		{"unknown type 5", func(b *gguf.Builder) { b.AddTensor("t", 5, []uint64{1}, data[:4]) }},
		{"dimensions [] must be", func(b *gguf.Builder) { b.AddTensor("t", quant.F32, nil, nil) }},
		{"dimensions [3 0] must be", func(b *gguf.Builder) { b.AddTensor("t", quant.F32, []uint64{3, 0}, nil) }},
		{"not a whole number of Q8_0 blocks", func(b *gguf.Builder) { b.AddTensor("t", quant.Q8_0, []uint64{33}, data[:34]) }},
		{"take 16 bytes, got 12", func(b *gguf.Builder) { b.AddTensor("t", quant.F32, []uint64{4}, data[:12]) }},
	} {
		b := gguf.NewBuilder()
		c.fill(b)
		path := filepath.Join(t.TempDir(), "m.gguf")
		err := b.WriteFile(path)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
		if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
			t.Errorf("%s: left %v behind", c.want, left)
		}
	}
}

func TestBuilderReplaces(t *testing.T) {
	f := parsed(t, func(b *gguf.Builder) {
		b.SetBool("a", true)
		b.SetBool("b", true)
		b.SetUint32("a", 5)
	})
	if got := strings.Join(f.Keys(), " "); got != "a b" {
		t.Errorf("keys %s", got)
	}
	if v, err := f.NeedUint("a"); v != 5 || err != nil {
		t.Errorf("a is %d, %v", v, err)
	}
}
