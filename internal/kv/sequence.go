package kv

import (
	"fmt"
	"slices"
	"sort"
)

// Sequence is a list of tokens and the cells that hold them. It is used by one goroutine
// at a time, the step loop.
type Sequence struct {
	pool   *Pool
	tokens []int32
	runs   []seqRun
	spare  []*Block // reserved, still empty
	freed  bool
}

// seqRun is a run and where it is in its sequence.
type seqRun struct {
	Run
	pos int // of the first cell
}

// NewSequence returns an empty sequence, which takes no room. Index.Attach returns one
// that starts with cells computed before.
func (p *Pool) NewSequence() *Sequence {
	s := &Sequence{pool: p}
	p.seqs[s] = struct{}{}
	return s
}

// Len is the number of tokens.
func (s *Sequence) Len() int { return len(s.tokens) }

// Tokens is the sequence's tokens. The slice is the sequence's own: it must not be
// changed, and holds until the next call that changes the sequence.
func (s *Sequence) Tokens() []int32 { return s.tokens }

// Blocks is the number of blocks that the sequence holds, empty reserved ones included.
func (s *Sequence) Blocks() int {
	held := map[*Block]bool{} // a run may come back to a block after others
	for i := range s.runs {
		held[s.runs[i].Block] = true
	}
	return len(held) + len(s.spare)
}

// Reserve makes room for n more tokens, so that appending them cannot fail. Room that
// is not used goes back when the sequence is freed. The error is ErrNoRoom when the pool
// is full; then nothing changed.
func (s *Sequence) Reserve(n int) error {
	if s.freed {
		return fmt.Errorf("kv: reserve %d cells: the sequence is freed", n)
	}
	if n <= 0 {
		return nil
	}
	cells := s.pool.layout.CellsPerBlock
	n -= s.tailRoom() + len(s.spare)*cells
	if n > 0 {
		blocks, err := s.pool.alloc((n + cells - 1) / cells)
		if err != nil {
			return err
		}
		s.spare = append(s.spare, blocks...)
	}
	if len(s.runs) > 0 && s.tailRoom() > 0 {
		s.runs[len(s.runs)-1].Block.owner = s
	}
	s.pool.check()
	return nil
}

// Need is how many blocks n more tokens take that the sequence does not hold yet.
func (s *Sequence) Need(n int) int {
	cells := s.pool.layout.CellsPerBlock
	n -= s.tailRoom() + len(s.spare)*cells
	return max(n+cells-1, 0) / cells
}

// tailRoom is how many cells can be appended in the last block: those behind its filled
// ones, if the sequence ends there and may fill them.
func (s *Sequence) tailRoom() int {
	if len(s.runs) == 0 {
		return 0
	}
	last := &s.runs[len(s.runs)-1]
	b := last.Block
	if b.frozen || b.owner != nil && b.owner != s {
		return 0
	}
	if last.end() != b.used {
		// The cells behind our end were filled. If nobody else uses the block they
		// are what we truncated, or what others gave up.
		if !s.pool.soleHolder(b) {
			return 0
		}
		b.used = last.end()
	}
	return b.layout.CellsPerBlock - b.used
}

// soleHolder reports whether one sequence holds b, once, and nobody else uses it.
func (p *Pool) soleHolder(b *Block) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return b.holders == 1 && b.nodes == 0
}

// Append adds tokens and gives them cells, all or none; it makes room itself if Reserve
// did not. Whoever runs the model then writes their rows, before anybody reads them: see
// Runs.
func (s *Sequence) Append(tokens ...int32) error {
	if err := s.Reserve(len(tokens)); err != nil {
		return err
	}
	for rest := len(tokens); rest > 0; {
		room := s.tailRoom()
		if room == 0 {
			room = s.openBlock()
		}
		n := min(room, rest)
		last := &s.runs[len(s.runs)-1]
		last.Len += n
		last.Block.used += n
		rest -= n
	}
	s.tokens = append(s.tokens, tokens...)
	s.pool.check()
	return nil
}

// openBlock starts filling a reserved block and returns its room.
func (s *Sequence) openBlock() int {
	b := s.spare[0]
	s.spare = slices.Delete(s.spare, 0, 1)
	pos := s.end()
	b.pos, b.owner = pos, s
	s.runs = append(s.runs, seqRun{Run{Block: b}, pos})
	return b.layout.CellsPerBlock
}

// end is the position behind the last cell.
func (s *Sequence) end() int {
	if len(s.runs) == 0 {
		return 0
	}
	last := &s.runs[len(s.runs)-1]
	return last.pos + last.Len
}

// Runs appends to dst, in order, the cells of positions from to to-1, and returns it.
// The range is cut to what the sequence has. A run stays valid as long as the sequence
// holds its positions.
func (s *Sequence) Runs(from, to int, dst []Run) []Run {
	from, to = max(from, 0), min(to, len(s.tokens))
	if from >= to {
		return dst
	}
	i := sort.Search(len(s.runs), func(i int) bool { return s.runs[i].pos+s.runs[i].Len > from })
	for ; i < len(s.runs) && s.runs[i].pos < to; i++ {
		r := s.runs[i]
		a, b := max(from, r.pos), min(to, r.pos+r.Len)
		dst = append(dst, Run{Block: r.Block, Cell: r.Cell + a - r.pos, Len: b - a})
	}
	return dst
}

// Truncate drops the tokens from position n on, and their cells. Blocks that become
// empty go back, and so does reserved room.
func (s *Sequence) Truncate(n int) {
	n = max(n, 0)
	if n >= len(s.tokens) {
		return
	}
	s.tokens = s.tokens[:n]
	s.dropSpare()
	for len(s.runs) > 0 {
		last := &s.runs[len(s.runs)-1]
		if last.pos < n {
			last.Len = n - last.pos
			break
		}
		b := last.Block
		s.runs = s.runs[:len(s.runs)-1]
		s.drop(b)
	}
	s.pool.check()
}

// drop gives back one hold on b.
func (s *Sequence) drop(b *Block) {
	if b.owner == s {
		b.owner = nil
	}
	s.pool.mu.Lock()
	s.pool.dropHolder(b)
	s.pool.mu.Unlock()
}

func (s *Sequence) dropSpare() {
	for _, b := range s.spare {
		s.drop(b)
	}
	s.spare = nil
}

// Fork returns a new sequence of the first n tokens, in the same cells. Whichever of
// the two appends first after a common end goes on in the last block, unless the
// sequence already owns it; the other one goes on in a new block.
func (s *Sequence) Fork(n int) *Sequence {
	n = min(max(n, 0), len(s.tokens))
	f := s.pool.NewSequence()
	f.tokens = slices.Clone(s.tokens[:n])
	f.hold(s.Runs(0, n, nil))
	s.pool.check()
	return f
}

// hold makes runs the cells of a sequence that has none.
func (s *Sequence) hold(runs []Run) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	for _, r := range runs {
		s.pool.addHolder(r.Block)
		s.runs = append(s.runs, seqRun{r, s.end()})
	}
}

// Free gives everything back. The sequence is empty then and can only be dropped.
// Freeing twice is no error.
func (s *Sequence) Free() {
	if s.freed {
		return
	}
	s.freed = true
	s.tokens = nil
	s.dropSpare()
	for len(s.runs) > 0 {
		b := s.runs[len(s.runs)-1].Block
		s.runs = s.runs[:len(s.runs)-1]
		s.drop(b)
	}
	delete(s.pool.seqs, s)
	s.pool.check()
}
