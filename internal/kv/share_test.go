package kv

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"baton/internal/shm"
)

// fataler is what testing.T and rapid.T have in common here.
type fataler interface {
	Fatal(...any)
	Fatalf(string, ...any)
	Helper()
}

func reserve(t fataler, p *Pool, n int) []*Block {
	t.Helper()
	r, err := p.ReserveShared(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := r.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// peer maps a block as another process would, through a descriptor that it was given.
func peer(t fataler, b *Block, prot shm.Prot) *Block {
	t.Helper()
	open := b.ReaderFile
	if prot == shm.ReadWrite {
		open = b.WriterFile
	}
	file, err := open()
	if err != nil {
		t.Fatal(err)
	}
	o, err := shm.FromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := MapBlock(b.layout, o, prot)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fillPeer writes the rows of tokens, which follow those of s, into blocks from outside.
func fillPeer(t fataler, s *Sequence, blocks []*Block, tokens []int32) {
	t.Helper()
	h := uint64(0xcbf29ce484222325)
	for _, tok := range s.Tokens() {
		h = mark(h, tok)
	}
	l := s.pool.layout
	for i, b := range blocks {
		m := peer(t, b, shm.ReadWrite)
		for c := 0; c < l.CellsPerBlock && i*l.CellsPerBlock+c < len(tokens); c++ {
			h = mark(h, tokens[i*l.CellsPerBlock+c])
			for layer := range l.Layers {
				for j := range l.RowElems {
					m.K(layer)[c*l.RowElems+j] = uint16(h>>(16*(j%4))) + uint16(2*layer)
					m.V(layer)[c*l.RowElems+j] = uint16(h>>(16*(j%4))) + uint16(2*layer+1)
				}
			}
		}
		if err := m.Unmap(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAdopt(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 12})
	x := NewIndex(p)
	s := p.NewSequence()
	mustAppend(t, s, tokens(0, 5)...)

	blocks := reserve(t, p, 3)
	fillPeer(t, s, blocks, tokens(5, 19))
	for _, b := range blocks {
		if err := b.Lease(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Adopt(blocks, tokens(5, 19)); err != nil {
		t.Fatal(err)
	}
	if s.Len() != 24 || s.Blocks() != 4 || !slices.Equal(s.Tokens(), tokens(0, 24)) {
		t.Fatalf("%d tokens in %d blocks", s.Len(), s.Blocks())
	}
	checkRows(t, s)

	// The last block has room for 5 more cells, but stays as it is.
	mustAppend(t, s, tokens(24, 3)...)
	checkRows(t, s)
	if runs := s.Runs(0, s.Len(), nil); len(runs) != 5 || runs[4].Block == blocks[2] || runs[4].Cell != 0 {
		t.Fatalf("runs %v", runs)
	}
	x.Insert(s)
	s.Free()

	// What was adopted is found like everything else, and pinned like it.
	f, m := x.Attach(tokens(0, 24), 24)
	if m.Tokens != 24 {
		t.Fatalf("%+v", m)
	}
	checkRows(t, f)
	x.Clear()
	checkRows(t, f)
	f.Free()
	if st := p.Stats(); st.Used+st.Cached != 0 || st.Shareable != 3 {
		t.Fatalf("%+v, want the three blocks to be free again", st)
	}
}

func TestAdoptRefuses(t *testing.T) {
	p := newPool(t, tiny(t), Options{MaxBlocks: 6})
	s := p.NewSequence()
	blocks := reserve(t, p, 2)
	local, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"too few blocks":  s.Adopt(blocks[:1], tokens(0, 9)),
		"too many blocks": s.Adopt(blocks, tokens(0, 8)),
		"no blocks":       s.Adopt(nil, tokens(0, 8)),
		"a local block":   s.Adopt([]*Block{local}, tokens(0, 8)),
	} {
		if err == nil || s.Len() != 0 || s.Blocks() != 0 {
			t.Errorf("%s: %v, %d tokens", name, err, s.Len())
		}
	}
	if err := s.Adopt(blocks, tokens(0, 9)); err != nil {
		t.Fatal(err)
	}
	if err := p.NewSequence().Adopt(blocks, tokens(0, 9)); err == nil {
		t.Error("blocks are adopted twice")
	}
	s.Free()
	if err := s.Adopt(nil, nil); err == nil {
		t.Error("a freed sequence adopts")
	}
	local.Release()
	for s := range p.seqs {
		s.Free()
	}
}

// Blocks that are used again hold no row that looks like one.
func TestReservedBlocksAreUnwritten(t *testing.T) {
	checkLeaks(t)
	for _, kind := range []string{"new", "shared before", "local before"} {
		t.Run(kind, func(t *testing.T) {
			p := newPool(t, tiny(t), Options{MaxBlocks: 1})
			switch kind {
			case "shared before":
				blocks := reserve(t, p, 1)
				fillPeer(t, p.NewSequence(), blocks, tokens(0, 8))
				if err := blocks[0].Lease(); err != nil { // has to be given up
					t.Fatal(err)
				}
				blocks[0].Release()
			case "local before":
				s := p.NewSequence()
				mustAppend(t, s, tokens(0, 8)...)
				s.Free()
			}
			for s := range p.seqs {
				s.Free()
			}
			b := reserve(t, p, 1)[0]
			defer b.Release()
			for c := range 8 {
				if err := (Run{b, c, 1}).Unwritten(); err == nil {
					t.Errorf("cell %d looks written", c)
				}
			}
			m := peer(t, b, shm.ReadWrite)
			defer m.Unmap()
			written := Run{m, 0, 8}
			for layer := range 2 {
				for i := range 8 * 4 {
					written.K(layer)[i], written.V(layer)[i] = 1, 1
				}
			}
			if err := (Run{b, 0, 8}).Unwritten(); err != nil {
				t.Error(err)
			}
			for name, row := range map[string][]uint16{"K": written.K(1)[12:16], "V": written.V(0)[28:]} {
				saved := slices.Clone(row)
				clear(row)
				if err := (Run{b, 0, 8}).Unwritten(); err == nil {
					t.Errorf("a zero %s row looks written", name)
				}
				copy(row, saved)
			}
			written.K(1)[0] = 0x7c00 // infinite, which is bad, but not ours to judge
			if err := (Run{b, 0, 8}).Unwritten(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLeaseProvesNobodyWrites(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 2})
	b := reserve(t, p, 1)[0]
	m := peer(t, b, shm.ReadWrite)
	if err := b.Lease(); !errors.Is(err, shm.ErrStillWritable) {
		t.Fatalf("lease with a writable mapping left: %v", err)
	}
	if err := m.Unmap(); err != nil {
		t.Fatal(err)
	}
	if err := b.Lease(); err != nil {
		t.Fatal(err)
	}
	if err := b.Lease(); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := b.WriterFile(); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("opening a leased block for writing: %v, want EWOULDBLOCK", err)
	}
	// That attempt has broken the lease.
	broken, err := p.BrokenLeases()
	if err != nil || len(broken) != 1 || broken[0] != b {
		t.Errorf("broken leases: %v, %v", broken, err)
	}
	if broken, _ := p.BrokenLeases(); len(broken) != 0 {
		t.Error("reported twice")
	}
	b.Release()
	if st := p.Stats(); st.Shareable != 0 {
		t.Errorf("%+v: a block whose lease was broken can be shared again", st)
	}

	local, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	defer local.Release()
	if err := local.Lease(); err == nil || errors.Is(err, shm.ErrStillWritable) {
		t.Errorf("lease of a local block: %v", err)
	}
}

func TestSealedBlocksAreDiscarded(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 2})
	b := reserve(t, p, 1)[0]
	m := peer(t, b, shm.ReadWrite)
	m.K(0)[0] = 77
	if err := b.Seal(); !errors.Is(err, shm.ErrStillWritable) {
		t.Fatalf("seal with a writable mapping left: %v", err)
	}
	if err := m.Unmap(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Seal(); err != nil || !b.Sealed() {
			t.Fatal(err)
		}
	}
	if b.K(0)[0] != 77 {
		t.Error("the contents changed")
	}
	if f, err := b.WriterFile(); err == nil {
		// A descriptor can be had, but nothing can be written with it.
		if _, err := f.WriteAt([]byte{1}, 0); err == nil {
			t.Error("a sealed block was written to")
		}
		f.Close()
	}
	b.Release()

	// A local block that is full can be sealed in place, while it is being read.
	s := p.NewSequence()
	mustAppend(t, s, tokens(0, 8)...)
	full := s.Runs(0, 8, nil)[0].Block
	if !full.Settled() {
		t.Error("a full block is not settled")
	}
	if err := full.Seal(); err != nil {
		t.Fatal(err)
	}
	checkRows(t, s)
	mustAppend(t, s, 8)
	if s.Runs(8, 9, nil)[0].Block.Settled() {
		t.Error("a block that is being filled is settled")
	}
	s.Free()
	if got := reserve(t, p, 2); got[0].Sealed() || got[1].Sealed() {
		t.Error("a sealed block is handed out again")
	} else {
		got[0].Release()
		got[1].Release()
	}
}

// A pool at its limit turns blocks of one kind into the other.
func TestBlocksChangeKind(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 3})
	for range 3 {
		shared := reserve(t, p, 3)
		for _, b := range shared {
			if err := b.Lease(); err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
		s := p.NewSequence()
		mustAppend(t, s, tokens(0, 24)...)
		checkRows(t, s)
		if _, err := p.ReserveShared(1, nil); !errors.Is(err, ErrNoRoom) {
			t.Fatalf("a full pool reserves: %v", err)
		}
		s.Free()
	}
	if st := p.Stats(); st.Made != 3 {
		t.Errorf("%d blocks were made, want 3", st.Made)
	}
}

func TestReservationHoldsRoom(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 4})
	NewIndex(p)
	r, err := p.ReserveShared(3, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := p.NewSequence()
	if err := s.Reserve(9); !errors.Is(err, ErrNoRoom) {
		t.Errorf("room for 2 blocks where 3 of 4 are reserved: %v", err)
	}
	if err := s.Reserve(8); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err == nil {
		t.Error("closed with a reservation outstanding")
	}
	blocks, err := r.Prepare()
	if err != nil || len(blocks) != 3 {
		t.Fatalf("%d blocks, %v", len(blocks), err)
	}
	r.Release() // of nothing
	for _, b := range blocks {
		b.Release()
	}
	s.Free()
	r, err = p.ReserveShared(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Release()
}

func TestKeepers(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 2})
	type keeper struct{ name string }
	a, b := &keeper{"a"}, &keeper{"b"}
	take := func(k any, n int) []*Block {
		t.Helper()
		r, err := p.ReserveShared(n, k)
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := r.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			b.Release()
		}
		return blocks
	}
	first := take(a, 1)[0]
	if first.Keeper() != a {
		t.Errorf("the keeper is %v", first.Keeper())
	}
	if take(nil, 1)[0] == first || take(a, 1)[0] != first {
		t.Error("a block is not for its keeper alone")
	}
	r, err := p.ReserveShared(2, b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Prepare(); !errors.Is(err, ErrNoRoom) {
		t.Errorf("blocks that others keep are handed out: %v", err)
	}
	p.Drop(a)
	if got := take(nil, 2); len(got) != 2 {
		t.Error("the blocks of a keeper that is gone are lost")
	}
}

func TestForget(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 12})
	x := NewIndex(p)
	base := tokens(0, 20)
	serve(t, x, base, nil)
	serve(t, x, append(slices.Clone(base[:10]), tokens(100, 9)...), nil)
	s, _ := x.Attach(base, 20)
	second := s.Runs(8, 9, nil)[0].Block
	if !s.Uses(second) {
		t.Error("the sequence says that it does not use its block")
	}
	s.Free()
	x.Forget(second)
	if m := x.Lookup(base, 20); m.Tokens != 8 {
		t.Errorf("%+v, want the first block's 8 tokens", m)
	}
	x.Forget(second) // nothing left to forget
	if m := x.Lookup(base, 20); m.Tokens != 8 {
		t.Errorf("%+v", m)
	}
}

// The pool's goroutine keeps blocks ready and puts used ones back into shape.
func TestShareReady(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 4, ShareReady: 2, Collapse: true})
	wait := func(what string, ok func(Stats) bool) {
		t.Helper()
		for range 2000 {
			if ok(p.Stats()) {
				return
			}
			unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
		}
		t.Fatalf("%s: %+v", what, p.Stats())
	}
	wait("at the start", func(st Stats) bool { return st.ShareReady == 2 })
	blocks := reserve(t, p, 2)
	wait("two in use", func(st Stats) bool { return st.ShareReady == 2 })
	if err := blocks[0].Seal(); err != nil {
		t.Fatal(err)
	}
	blocks[0].Release()
	blocks[1].Release()
	wait("all free", func(st Stats) bool { return st.ShareReady == 3 && st.Free == 3 && st.Blocks == 3 })
}

func TestMapBlockRefuses(t *testing.T) {
	checkLeaks(t)
	o, err := shm.Create("small", 4096, shm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MapBlock(tiny(t), o, shm.ReadOnly); err == nil {
		t.Error("a page is accepted as a block")
	}
	p := newPool(t, tiny(t), Options{MaxBlocks: 1})
	b := reserve(t, p, 1)[0]
	defer b.Release()
	if err := b.Unmap(); err == nil {
		t.Error("a block of a pool lets itself be unmapped")
	}
	file, err := b.ReaderFile()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	o, err = shm.FromFile(os.NewFile(uintptr(fd), "reader"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MapBlock(tiny(t), o, shm.ReadWrite); err == nil {
		t.Error("a read only descriptor is mapped read-write")
	}
}

// share hands the end of a sequence to somebody else, who fills more or less of it.
func (m *machine) share(t *rapid.T) {
	prompt := m.prompt(t)
	if len(prompt) == 0 {
		t.Skip("no prompt")
	}
	s := m.start(t, prompt, len(prompt)-1)
	s.plain = false // frozen short blocks are not in what BlocksFor bounds
	rest := prompt[s.s.Len():]
	cells := m.pool.layout.CellsPerBlock
	r, err := m.pool.ReserveShared((len(rest)+cells-1)/cells, nil)
	if err != nil {
		m.checkNoRoom(t, err)
		return
	}
	blocks, err := r.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	filled := rapid.IntRange(0, len(rest)).Draw(t, "filled")
	fillPeer(t, s.s, blocks, rest[:filled])
	used := (filled + cells - 1) / cells
	seal := rapid.Bool().Draw(t, "seal")
	for _, b := range blocks[:used] {
		prove := b.Lease
		if seal {
			prove = b.Seal
		}
		if err := prove(); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range blocks[used:] {
		b.Release()
	}
	if err := s.s.Adopt(blocks[:used], rest[:filled]); err != nil {
		t.Fatal(err)
	}
	s.tokens = append(s.tokens, rest[:filled]...)
	for _, s := range m.seqs { // any of them may be extended by short blocks now
		s.plain = false
	}
}

// A conversation whose prompts others fill leaves a short block a turn; Layout.Extra
// says how many of them a sequence may have.
func TestExtra(t *testing.T) {
	checkLeaks(t)
	for _, c := range []struct{ extra, found int }{{0, 9}, {2, 9}, {4, 15}} {
		l := mustLayout(t, Config{Layers: 1, KVHeads: 1, HeadDim: 4, CellsPerBlock: 8, Extra: c.extra})
		p := newPool(t, l, Options{MaxBlocks: 8})
		x := NewIndex(p)
		s := p.NewSequence()
		for i := range int32(5) {
			blocks := reserve(t, p, 1)
			fillPeer(t, s, blocks, tokens(3*i, 3))
			if err := s.Adopt(blocks, tokens(3*i, 3)); err != nil {
				t.Fatal(err)
			}
		}
		x.Insert(s)
		s.Free()
		// 5 cells a block are wasted: 16 may be, or 32.
		if m := x.Lookup(tokens(0, 15), 15); m.Tokens != c.found {
			t.Errorf("extra %d: %+v, want %d tokens", c.extra, m, c.found)
		}
		if got, want := l.BlocksFor(16), 2+l.Extra; got != want {
			t.Errorf("extra %d: BlocksFor(16) = %d, want %d", c.extra, got, want)
		}
	}
	if _, err := NewLayout(Config{Layers: 1, KVHeads: 1, HeadDim: 4, Extra: -1}); err == nil {
		t.Error("-1 extra blocks are accepted")
	}
}
