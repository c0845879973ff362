//go:build linux

package kernel

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"baton/internal/quant"
)

// TestTruncatedFile: a model file that shrinks while its weights are mapped ends in an
// error of every implementation, and the pool goes on working.
func TestTruncatedFile(t *testing.T) {
	const rows, cols = 64, 512
	x := randomRow(rand.New(rand.NewPCG(1, 2)), 8*cols, 1)
	forEachImpl(t, func(t *testing.T) {
		p := NewPool(2)
		defer p.Close()
		for _, typ := range []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_K} {
			size, err := quant.RowBytes(typ, cols)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "weights")
			if err := os.WriteFile(path, make([]byte, rows*size), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			data, err := syscall.Mmap(int(f.Fd()), 0, rows*size, syscall.PROT_READ, syscall.MAP_SHARED)
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			w, err := NewMatrix(typ, rows, cols, data)
			if err != nil {
				t.Fatal(err)
			}
			var a Acts
			for _, n := range []int{1, 8} {
				if err := os.Truncate(path, int64(rows*size)); err != nil {
					t.Fatal(err)
				}
				dst := make([]float32, n*rows)
				product := func() error {
					a.Set(x, n, cols)
					return MatMul(p, &a, Out{Dst: dst, LD: rows, W: &w})
				}
				if err := product(); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
				if err := product(); err == nil || !strings.Contains(err.Error(), "truncated") {
					t.Errorf("%s, %d tokens: %v", typ, n, err)
				}
			}
			if err := syscall.Munmap(data); err != nil {
				t.Fatal(err)
			}
		}
	})
}
