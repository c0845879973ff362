package kv

import (
	"bytes"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Setenv("BATON_VERIFY", "1") // every change of every test checks the invariants
	goleak.VerifyTestMain(m)
}

// tiny has 8 cells a block, so that a few tokens fill several.
func tiny(t testing.TB) *Layout {
	t.Helper()
	return mustLayout(t, Config{Layers: 2, KVHeads: 1, HeadDim: 4, CellsPerBlock: 8})
}

func mustLayout(t testing.TB, c Config) *Layout {
	t.Helper()
	l, err := NewLayout(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newPool makes a pool, which the test must leave empty.
func newPool(t testing.TB, l *Layout, o Options) *Pool {
	t.Helper()
	p, err := NewPool(l, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.index != nil {
			p.index.Clear()
		}
		if err := p.Verify(); err != nil {
			t.Error(err)
		}
		if n := p.Stats().Faults; n != 0 {
			t.Errorf("%d faults", n)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// checkLeaks fails the test if it ends with another number of open descriptors or
// mapped memory files than it began with. Call it before newPool.
func checkLeaks(t *testing.T) {
	t.Helper()
	count := func() (fds, maps int) {
		// First: the runtime opens descriptors of its own for the first file.
		data, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries), bytes.Count(data, []byte("/memfd:baton-kv"))
	}
	fds, maps := count()
	t.Cleanup(func() {
		if f, m := count(); f != fds || m != maps {
			t.Errorf("%d descriptors and %d mapped blocks at the end, %d and %d at the start", f, m, fds, maps)
		}
	})
}

// append appends tokens and writes their rows as fill does.
func mustAppend(t testing.TB, s *Sequence, tokens ...int32) {
	t.Helper()
	if err := s.Append(tokens...); err != nil {
		t.Fatal(err)
	}
	fill(s, s.Len()-len(tokens))
}

// mark is what the rows of a token hold: a value that depends on all tokens up to it, as
// the rows of a model do.
func mark(h uint64, token int32) uint64 { return (h ^ uint64(token+1)) * 0x100000001b3 }

// fill writes the rows from position from on.
func fill(s *Sequence, from int) {
	each(s, func(pos int, h uint64, rows [][]uint16) {
		if pos < from {
			return
		}
		for i, row := range rows {
			for j := range row {
				row[j] = uint16(h>>(16*(j%4))) + uint16(i)
			}
		}
	})
}

// checkRows reads every row back.
func checkRows(t interface {
	Fatalf(string, ...any)
	Helper()
}, s *Sequence) {
	t.Helper()
	seen := 0
	each(s, func(pos int, h uint64, rows [][]uint16) {
		seen++
		for i, row := range rows {
			for j, got := range row {
				if want := uint16(h>>(16*(j%4))) + uint16(i); got != want {
					t.Fatalf("position %d, row %d, element %d: %#x, want %#x", pos, i, j, got, want)
				}
			}
		}
	})
	if seen != s.Len() {
		t.Fatalf("the runs cover %d of %d tokens", seen, s.Len())
	}
}

// each calls f for every position with its mark and its rows: K and V of each layer.
func each(s *Sequence, f func(pos int, h uint64, rows [][]uint16)) {
	pos, h := 0, uint64(0xcbf29ce484222325)
	n := s.pool.layout.RowElems
	for _, r := range s.Runs(0, s.Len(), nil) {
		for c := range r.Len {
			h = mark(h, s.Tokens()[pos])
			var rows [][]uint16
			for l := range s.pool.layout.Layers {
				rows = append(rows, r.K(l)[c*n:(c+1)*n], r.V(l)[c*n:(c+1)*n])
			}
			f(pos, h, rows)
			pos++
		}
	}
}

// tokens returns n tokens counting up from first.
func tokens(first int32, n int) []int32 {
	t := make([]int32, n)
	for i := range t {
		t[i] = first + int32(i)
	}
	return t
}
