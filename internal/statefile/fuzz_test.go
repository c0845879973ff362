package statefile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"baton/internal/kv"
)

// Whatever a file holds, Restore ends in an error or in cells that Save writes again as
// a file with the same content.
func FuzzRestore(f *testing.F) {
	p := newPool(f, 8)
	s := newSequence(f, p, 5, 1)
	for _, c := range []variant{{}, {packed: true}, {vTrans: true}, {streams: 3, stream: 1}, {order: []int{3, 4, 0, 1, 2}}} {
		f.Add(c.encode(p, s))
	}
	f.Add([]byte("qsgg\x03\x00\x00\x00\xff\xff\xff\xff"))
	dir := f.TempDir()
	st := openStore(f, dir)
	f.Fuzz(func(t *testing.T, data []byte) {
		put(t, dir, "a", data)
		got := p.NewSequence()
		defer got.Free()
		asked := false
		info, err := st.Restore(t.Context(), "a", fitOf(p), func(tokens []int32) ([]kv.Run, error) {
			asked = true
			return placeIn(got)(tokens)
		})
		if err != nil {
			if asked {
				t.Fatalf("cells were asked for, then: %v", err)
			}
			if _, ok := kindOf(err); !ok {
				t.Fatalf("error %v is not about the file", err)
			}
			return
		}
		if info.Verified || info.Bytes != int64(len(data)) {
			t.Fatalf("info %+v", info)
		}
		mustSave(t, st, "b", p, got)
		again, _, err := restore(t, st, "b", p)
		if err != nil {
			t.Fatal(err)
		}
		sameCells(t, p, again, p, got)
		again.Free()
		written, err := os.ReadFile(filepath.Join(dir, "b"))
		if err != nil || !bytes.Equal(written, variant{}.encode(p, got)) {
			t.Fatalf("%d bytes written, %v", len(written), err)
		}
	})
}

// A sum has one valid encoding.
func FuzzSum(f *testing.F) {
	r := record{bytes: 12, tokens: 3, model: testModel}
	f.Add(encodeSum([]record{r}))
	f.Add(encodeSum([]record{r, r}))
	f.Add([]byte(sumTitle))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, err := decodeSum(data)
		if err == nil && !bytes.Equal(encodeSum(records), data) {
			t.Fatalf("%q is read, but not what is written", data)
		}
	})
}
