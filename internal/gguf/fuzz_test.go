package gguf_test

import (
	"strings"
	"testing"

	"baton/internal/gguf"
	"baton/internal/gguf/gguftest"
)

func FuzzParse(f *testing.F) {
	for _, c := range gguftest.Hostile() {
		if len(c.Bytes) < 4<<10 { // mutating a long one takes for ever
			f.Add(c.Bytes)
		}
	}
	f.Add(build(f, sample))
	f.Add([]byte(widths))
	f.Fuzz(func(t *testing.T, data []byte) {
		var file *gguf.File
		var err error
		used := allocated(func() { file, err = gguf.Parse(data, "fuzz") })
		if limit := allocationLimit(len(data)); used > limit {
			t.Fatalf("%d bytes made it allocate %d, the limit is %d", len(data), used, limit)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "gguf: fuzz: ") {
				t.Fatalf("error without the file's name: %v", err)
			}
			return
		}
		checkRewritten(t, file)
	})
}

// checkRewritten writes what was parsed and parses it again.
func checkRewritten(t *testing.T, file *gguf.File) {
	b := gguf.NewBuilder()
	b.Version = file.Version
	for _, key := range file.Keys() {
		v, _ := file.Value(key)
		b.Set(key, v)
	}
	for _, x := range file.Tensors() {
		b.AddTensor(x.Name, x.Type, x.Dims, x.Data)
	}
	again, err := gguf.Parse(gguftest.Bytes(b), "again")
	if err != nil {
		t.Fatalf("does not parse again: %v", err)
	}
	if diff := diffFiles(file, again); diff != "" {
		t.Fatalf("rewritten file differs (-was +is):\n%s", diff)
	}
}
