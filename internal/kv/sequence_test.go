package kv

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shape is where the runs of a sequence lie: blocks by their first appearance in the
// test, and cells.
type shape struct{ Block, Cell, Len int }

type shaper map[*Block]int

func (b shaper) of(s *Sequence, from, to int) []shape {
	var shapes []shape
	for _, r := range s.Runs(from, to, nil) {
		if _, ok := b[r.Block]; !ok {
			b[r.Block] = len(b)
		}
		shapes = append(shapes, shape{b[r.Block], r.Cell, r.Len})
	}
	return shapes
}

func (b shaper) check(t *testing.T, what string, s *Sequence, want ...shape) {
	t.Helper()
	checkRows(t, s)
	if diff := cmp.Diff(want, b.of(s, 0, s.Len())); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestSequenceFillsBlocks(t *testing.T) {
	checkLeaks(t)
	p, at := newPool(t, tiny(t), Options{MaxBlocks: 4}), shaper{}
	s := p.NewSequence()
	defer s.Free()
	at.check(t, "empty", s)
	mustAppend(t, s, tokens(0, 5)...)
	at.check(t, "five", s, shape{0, 0, 5})
	mustAppend(t, s, tokens(5, 3)...)
	at.check(t, "a full block", s, shape{0, 0, 8})
	mustAppend(t, s, tokens(8, 13)...)
	at.check(t, "three blocks", s, shape{0, 0, 8}, shape{1, 0, 8}, shape{2, 0, 5})
	for _, c := range []struct {
		from, to int
		want     []shape
	}{
		{0, 3, []shape{{0, 0, 3}}},
		{7, 9, []shape{{0, 7, 1}, {1, 0, 1}}},
		{8, 16, []shape{{1, 0, 8}}},
		{20, 21, []shape{{2, 4, 1}}},
		{-5, 1, []shape{{0, 0, 1}}},
		{19, 99, []shape{{2, 3, 2}}},
		{21, 22, nil}, {5, 5, nil}, {9, 3, nil},
	} {
		if diff := cmp.Diff(c.want, at.of(s, c.from, c.to)); diff != "" {
			t.Errorf("runs from %d to %d (-want +got):\n%s", c.from, c.to, diff)
		}
	}
	dst := s.Runs(0, 1, nil)
	if dst = s.Runs(8, 9, dst); len(dst) != 2 || dst[1].Block != s.runs[1].Block {
		t.Error("Runs does not append to dst")
	}
}

func TestReserve(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 4})
	s := p.NewSequence()
	mustAppend(t, s, tokens(0, 5)...)
	for _, c := range []struct{ n, used int }{{0, 1}, {-1, 1}, {3, 1}, {4, 2}, {11, 2}, {12, 3}, {4, 3}} {
		if err := s.Reserve(c.n); err != nil {
			t.Fatal(err)
		}
		if used := p.Stats().Used; used != c.used || s.Blocks() != c.used {
			t.Errorf("after reserving %d: %d blocks, want %d", c.n, used, c.used)
		}
	}
	if err := s.Reserve(28); !errors.Is(err, ErrNoRoom) || p.Stats().Used != 3 {
		t.Errorf("reserve 28 of 27: %v, %+v", err, p.Stats())
	}
	mustAppend(t, s, tokens(5, 19)...)
	if used := p.Stats().Used; used != 3 {
		t.Errorf("%d blocks for what was reserved", used)
	}
	checkRows(t, s)
	s.Free()
	if st := p.Stats(); st.Used != 0 || st.Free != 3 {
		t.Errorf("%+v", st)
	}
	if err := s.Append(1); err == nil {
		t.Error("append after Free")
	}
}

func TestTruncate(t *testing.T) {
	checkLeaks(t)
	p, at := newPool(t, tiny(t), Options{MaxBlocks: 4}), shaper{}
	s := p.NewSequence()
	defer s.Free()
	mustAppend(t, s, tokens(0, 20)...)
	s.Truncate(20)
	s.Truncate(99)
	at.check(t, "nothing to cut", s, shape{0, 0, 8}, shape{1, 0, 8}, shape{2, 0, 4})
	s.Truncate(10)
	at.check(t, "ten", s, shape{0, 0, 8}, shape{1, 0, 2})
	mustAppend(t, s, 77, 78)
	at.check(t, "goes on in place", s, shape{0, 0, 8}, shape{1, 0, 4})
	if err := s.Reserve(20); err != nil {
		t.Fatal(err)
	}
	s.Truncate(8)
	if st := p.Stats(); st.Used != 1 {
		t.Errorf("%d blocks used after cutting to a block", st.Used)
	}
	at.check(t, "one block", s, shape{0, 0, 8})
	s.Truncate(-1)
	if s.Len() != 0 || p.Stats().Used != 0 {
		t.Errorf("length %d, %+v", s.Len(), p.Stats())
	}
}

// Cells that somebody else may read are never written again.
func TestSharedCellsStay(t *testing.T) {
	checkLeaks(t)
	p, at := newPool(t, tiny(t), Options{MaxBlocks: 8}), shaper{}
	a := p.NewSequence()
	defer a.Free()
	mustAppend(t, a, tokens(0, 12)...)
	b := a.Fork(10)
	defer b.Free()
	at.check(t, "a", a, shape{0, 0, 8}, shape{1, 0, 4})
	at.check(t, "b shares", b, shape{0, 0, 8}, shape{1, 0, 2})
	mustAppend(t, b, 50)
	at.check(t, "b goes on elsewhere", b, shape{0, 0, 8}, shape{1, 0, 2}, shape{2, 0, 1})
	mustAppend(t, a, 60)
	at.check(t, "a goes on in place", a, shape{0, 0, 8}, shape{1, 0, 5})
	a.Truncate(10)
	mustAppend(t, a, 61)
	at.check(t, "a was cut below what b may read", a, shape{0, 0, 8}, shape{1, 0, 2}, shape{3, 0, 1})
	at.check(t, "b", b, shape{0, 0, 8}, shape{1, 0, 2}, shape{2, 0, 1})

	// Whose the last block is decides, not who comes first.
	c := b.Fork(11)
	defer c.Free()
	mustAppend(t, c, 70)
	at.check(t, "b owns its last block", c, shape{0, 0, 8}, shape{1, 0, 2}, shape{2, 0, 1}, shape{4, 0, 1})
	mustAppend(t, b, 71)
	at.check(t, "and goes on in it", b, shape{0, 0, 8}, shape{1, 0, 2}, shape{2, 0, 2})
}

// After its owner is gone, the first sequence that ends where a block's cells end goes
// on in it.
func TestBlockChangesOwner(t *testing.T) {
	checkLeaks(t)
	p, at := newPool(t, tiny(t), Options{MaxBlocks: 4}), shaper{}
	a := p.NewSequence()
	mustAppend(t, a, tokens(0, 3)...)
	b, c := a.Fork(3), a.Fork(3)
	defer b.Free()
	defer c.Free()
	a.Free()
	if err := b.Reserve(1); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, c, 9)
	mustAppend(t, b, 8)
	at.check(t, "b reserved first", b, shape{0, 0, 4})
	at.check(t, "c", c, shape{0, 0, 3}, shape{1, 0, 1})
}

func TestFrozenBlock(t *testing.T) {
	checkLeaks(t)
	p, at := newPool(t, tiny(t), Options{MaxBlocks: 4}), shaper{}
	s := p.NewSequence()
	defer s.Free()
	mustAppend(t, s, tokens(0, 3)...)
	s.Runs(0, 1, nil)[0].Block.Freeze()
	mustAppend(t, s, tokens(3, 3)...)
	at.check(t, "the short block stays as it is", s, shape{0, 0, 3}, shape{1, 0, 3})
	s.Truncate(2)
	mustAppend(t, s, 7)
	at.check(t, "also when cut", s, shape{0, 0, 2}, shape{1, 0, 1}) // block 1 again: it was free
}

// A step of generation must not allocate.
func TestAppendDoesNotAllocate(t *testing.T) {
	p := newPool(t, mustLayout(t, Config{Layers: 1, KVHeads: 1, HeadDim: 4, CellsPerBlock: 4096}), Options{MaxBlocks: 1})
	p.verify = false
	s := p.NewSequence()
	defer s.Free()
	s.tokens = make([]int32, 0, 4096)
	if err := s.Append(1); err != nil {
		t.Fatal(err)
	}
	runs := make([]Run, 0, 4)
	if n := testing.AllocsPerRun(1000, func() {
		if err := s.Append(1); err != nil {
			t.Fatal(err)
		}
		runs = s.Runs(0, s.Len(), runs[:0])
	}); n != 0 {
		t.Errorf("%v allocations a token", n)
	}
}
