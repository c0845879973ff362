package kv

import "testing"

// qwen06b is the layout of a 0.6B model: blocks of 28 MiB.
var qwen06b = Config{Layers: 28, KVHeads: 8, HeadDim: 128}

func benchPool(b *testing.B, blocks int) *Pool {
	p := newPool(b, mustLayout(b, qwen06b), Options{MaxBlocks: blocks})
	p.verify = false
	return p
}

// A block that was used before costs next to nothing.
func BenchmarkAllocRecycled(b *testing.B) {
	p := benchPool(b, 2)
	for b.Loop() {
		blk, err := p.Alloc()
		if err != nil {
			b.Fatal(err)
		}
		blk.Release()
	}
}

// A new one costs the kernel's clearing of its pages.
func BenchmarkAllocFresh(b *testing.B) {
	l := mustLayout(b, qwen06b)
	b.SetBytes(int64(l.BlockBytes))
	p := &Pool{layout: l}
	for b.Loop() {
		blk, err := newBlock(p, false)
		if err != nil {
			b.Fatal(err)
		}
		if err := blk.close(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchIndex(b *testing.B, n int) (*Index, []int32) {
	// One layer, so that the cells take little memory.
	p := newPool(b, mustLayout(b, Config{Layers: 1, KVHeads: 1, HeadDim: 4, CellsPerBlock: 256}), Options{MaxBlocks: 200})
	p.verify = false
	x := NewIndex(p)
	prompt := tokens(0, n)
	serve(b, x, prompt, nil)
	return x, prompt
}

// 12,722 tokens are the long prompt of the handoff's figures.
func BenchmarkLookup12k(b *testing.B) {
	x, prompt := benchIndex(b, 12722)
	for b.Loop() {
		if m := x.Lookup(prompt, len(prompt)-1); m.Reason != Full {
			b.Fatalf("%+v", m)
		}
	}
}

func BenchmarkAttachInsertFree12k(b *testing.B) {
	x, prompt := benchIndex(b, 12722)
	for b.Loop() {
		s, m := x.Attach(prompt, len(prompt)-1)
		if m.Reason != Full {
			b.Fatalf("%+v", m)
		}
		x.Insert(s)
		s.Free()
	}
}

// A prompt that differs early while much was evicted is the dearest lookup.
func BenchmarkLookupEvicted12k(b *testing.B) {
	x, prompt := benchIndex(b, 12722)
	x.Evict(49)
	for b.Loop() {
		if m := x.Lookup(prompt, len(prompt)-1); m.Reason != Evicted {
			b.Fatalf("%+v", m)
		}
	}
}

func BenchmarkAppendToken(b *testing.B) {
	p := benchPool(b, 60)
	s := p.NewSequence()
	if err := s.Append(tokens(0, 12722)...); err != nil { // so that no block is new
		b.Fatal(err)
	}
	for b.Loop() {
		if s.Len() == 12722 {
			s.Truncate(0)
		}
		if err := s.Append(1); err != nil {
			b.Fatal(err)
		}
	}
	s.Free()
}

func BenchmarkRuns12k(b *testing.B) {
	p := benchPool(b, 60)
	s := p.NewSequence()
	if err := s.Append(tokens(0, 12722)...); err != nil {
		b.Fatal(err)
	}
	var runs []Run
	for b.Loop() {
		runs = s.Runs(0, s.Len(), runs[:0])
	}
	if len(runs) != 50 {
		b.Fatalf("%d runs", len(runs))
	}
	s.Free()
}
