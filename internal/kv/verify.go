package kv

import (
	"fmt"
	"slices"
)

// check verifies the invariants, and panics if one is broken, when the environment asks
// for it.
func (p *Pool) check() {
	if !p.verify {
		return
	}
	if err := p.Verify(); err != nil {
		panic(err)
	}
}

// Verify recounts who uses which block and checks everything that sequences and the
// index must fulfil. It belongs to the step loop, and takes time in proportion to all
// that there is: for tests and for looking into a fault.
func (p *Pool) Verify() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	holders, nodes := map[*Block]int{}, map[*Block]int{}
	for s := range p.seqs {
		if err := s.verify(holders); err != nil {
			return fmt.Errorf("kv: sequence of %d tokens: %w", len(s.tokens), err)
		}
	}
	if p.index != nil {
		if err := p.index.verify(nodes); err != nil {
			return fmt.Errorf("kv: index: %w", err)
		}
	}
	used, cached, free := 0, 0, 0
	for i, b := range p.blocks {
		if want := holders[b] + b.direct; b.holders != want {
			return fmt.Errorf("kv: block %d has %d holders, counted %d", i, b.holders, want)
		}
		if b.nodes != nodes[b] {
			return fmt.Errorf("kv: block %d has %d runs in the index, counted %d", i, b.nodes, nodes[b])
		}
		onList := b.tended
		for _, list := range [][]*Block{p.free, p.freeShared, p.doomed} {
			onList = onList || slices.Contains(list, b)
		}
		switch {
		case b.holders > 0:
			used++
		case b.nodes > 0:
			cached++
		case !onList:
			return fmt.Errorf("kv: block %d has no users and is on no list", i)
		default:
			free++
			if b.used != 0 || b.owner != nil || b.frozen {
				return fmt.Errorf("kv: block %d is free, but %d cells are used", i, b.used)
			}
		}
		if onList && b.holders+b.nodes > 0 {
			return fmt.Errorf("kv: block %d is in use and on a list of free ones", i)
		}
		if _, live := p.seqs[b.owner]; b.owner != nil && !live {
			return fmt.Errorf("kv: block %d is owned by a freed sequence", i)
		}
	}
	listed := len(p.free) + len(p.freeShared) + len(p.doomed) + p.tending
	if used != p.used || cached != p.cached || free != listed || p.total() > p.max || p.used+p.cached+p.pledged > p.max {
		return fmt.Errorf("kv: %d used, %d cached, %d free of %d blocks, %d reserved; counted %d, %d and %d of at most %d",
			p.used, p.cached, listed, len(p.blocks), p.pledged, used, cached, free, p.max)
	}
	return nil
}

func (s *Sequence) verify(holders map[*Block]int) error {
	pos := 0
	for i, r := range s.runs {
		if r.pos != pos {
			return fmt.Errorf("run %d is at position %d, want %d", i, r.pos, pos)
		}
		if err := r.Run.verify(pos); err != nil {
			return fmt.Errorf("run %d: %w", i, err)
		}
		holders[r.Block]++
		pos += r.Len
	}
	if pos != len(s.tokens) {
		return fmt.Errorf("%d cells", pos)
	}
	for _, b := range s.spare {
		if b.used != 0 {
			return fmt.Errorf("%d cells of a reserved block are used", b.used)
		}
		holders[b]++
	}
	return nil
}

// verify checks a run that starts at position pos of its sequence.
func (r Run) verify(pos int) error {
	b := r.Block
	if r.Len < 1 || r.Cell < 0 || r.end() > b.used || b.used > b.layout.CellsPerBlock {
		return fmt.Errorf("cells %d to %d of %d used ones", r.Cell, r.end(), b.used)
	}
	if b.pos+r.Cell != pos {
		return fmt.Errorf("cell %d of the block is at position %d, want %d", r.Cell, b.pos+r.Cell, pos)
	}
	return nil
}

func (x *Index) verify(nodes map[*Block]int) error {
	count, tokens := 0, 0
	var visit func(n *node) error
	visit = func(n *node) error {
		pos := n.start
		for _, r := range n.runs {
			if err := r.verify(pos); err != nil {
				return fmt.Errorf("node at %d: %w", n.start, err)
			}
			nodes[r.Block]++
			pos += r.Len
		}
		if pos != n.end() {
			return fmt.Errorf("node at %d has %d cells for %d tokens", n.start, pos-n.start, len(n.tokens))
		}
		count, tokens = count+1, tokens+len(n.tokens)
		for first, c := range n.children {
			switch {
			case c.parent != n || len(c.tokens) == 0 || c.tokens[0] != first:
				return fmt.Errorf("node at %d: a child is not in its place", n.start)
			case c.start != n.end() || c.before != n.before.addAll(n.tokens):
				return fmt.Errorf("node at %d: a child is at %d, want %d", n.start, c.start, n.end())
			}
			if err := visit(c); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(x.root); err != nil {
		return err
	}
	if count--; count != int(x.nodes.Load()) || tokens != int(x.tokens.Load()) {
		return fmt.Errorf("%d nodes of %d tokens, counted %d of %d", x.nodes.Load(), x.tokens.Load(), count, tokens)
	}
	seen := map[*node]bool{}
	for n := x.recent.oldest; n != nil; n = n.newer {
		if seen[n.parent] {
			return fmt.Errorf("node at %d is more recent than its parent", n.start)
		}
		seen[n] = true
	}
	if len(seen) != count {
		return fmt.Errorf("%d nodes in the recency list, want %d", len(seen), count)
	}
	return nil
}
