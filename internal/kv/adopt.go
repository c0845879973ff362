package kv

import "fmt"

// Adopt appends tokens whose cells somebody else has filled: those of blocks, which come
// from Reservation.Prepare, from cell 0 of the first on, each full but the last. The
// sequence takes the blocks over and freezes them, so that its next token goes to a
// block of its own. There must be exactly as many blocks as the tokens need; on an error
// nothing changed. It moves no data and makes no system call.
func (s *Sequence) Adopt(blocks []*Block, tokens []int32) error {
	p := s.pool
	cells := p.layout.CellsPerBlock
	switch need := (len(tokens) + cells - 1) / cells; {
	case s.freed:
		return fmt.Errorf("kv: adopt %d cells: the sequence is freed", len(tokens))
	case len(blocks) != need:
		return fmt.Errorf("kv: adopt %d cells in %d blocks of %d, want %d blocks", len(tokens), len(blocks), cells, need)
	}
	p.mu.Lock()
	for i, b := range blocks {
		if b.pool != p || b.direct != 1 || b.holders != 1 || b.nodes != 0 || b.used != 0 || !b.readOnly {
			p.mu.Unlock()
			return fmt.Errorf("kv: adopt: block %d of %d is not one that was reserved for sharing, or is in use", i, len(blocks))
		}
	}
	for _, b := range blocks {
		b.direct-- // the hold is the sequence's now
	}
	p.mu.Unlock()
	pos := s.end()
	for i, b := range blocks {
		n := min(cells, len(tokens)-i*cells)
		b.pos, b.used, b.frozen, b.owner = pos, n, true, nil
		s.runs = append(s.runs, seqRun{Run{Block: b, Len: n}, pos})
		pos += n
	}
	s.tokens = append(s.tokens, tokens...)
	p.check()
	return nil
}

// FilledRuns is the cells that Adopt would make the sequence's, n in all.
func FilledRuns(blocks []*Block, n int) []Run {
	var runs []Run
	for _, b := range blocks {
		if n <= 0 {
			break
		}
		runs = append(runs, Run{Block: b, Len: min(n, b.layout.CellsPerBlock)})
		n -= b.layout.CellsPerBlock
	}
	return runs
}

// Uses reports whether a cell of the sequence is in b.
func (s *Sequence) Uses(b *Block) bool {
	for i := range s.runs {
		if s.runs[i].Block == b {
			return true
		}
	}
	return false
}

// Forget gives up all cached cells that are in b, and those behind them.
func (x *Index) Forget(b *Block) {
	x.forget(x.root, b)
	x.pool.check()
}

func (x *Index) forget(n *node, b *Block) {
	for i, r := range n.runs {
		if r.Block == b {
			x.drop(n, len(n.runs)-i)
			return
		}
	}
	for _, c := range n.children {
		x.forget(c, b)
	}
}

// drop gives up the last k runs of n and everything below it.
func (x *Index) drop(n *node, k int) {
	for _, c := range n.children {
		x.drop(c, len(c.runs))
	}
	for range k {
		x.trim(n, n.runs[len(n.runs)-1].Len)
	}
}
