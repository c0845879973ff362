package kv

// wake tells the background goroutine, if there is one, to look for work.
func (p *Pool) wake() {
	if p.work == nil {
		return
	}
	select {
	case p.work <- struct{}{}:
	default: // it will look anyway
	}
}

// background keeps free blocks at hand, of both kinds, and, when that is done, moves
// used ones to huge pages.
func (p *Pool) background() {
	for {
		select {
		case <-p.stop:
			return
		case <-p.work:
			for p.stock() || p.refresh() || p.collapseOne() {
			}
		}
	}
}

// stock makes one block if too few are free; it reports whether it did. After a failure
// it waits for the next call to wake, and whoever needs the block gets the error.
func (p *Pool) stock() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.free) >= p.ready || p.total() >= p.max {
		return false
	}
	b, err := p.create(false)
	if err != nil {
		return false
	}
	// At the far end: blocks that have been used are warm.
	p.free = append(p.free, nil)
	copy(p.free[1:], p.free)
	p.free[0] = b
	return true
}

// collapseOne moves a free block to huge pages, if there is one that was used and is not
// there yet; it reports whether it tried. The block stays on the free list and may be
// handed out meanwhile: moving pages does not change what is in them.
func (p *Pool) collapseOne() bool {
	p.mu.Lock()
	if p.closed || !p.collapse {
		p.mu.Unlock()
		return false
	}
	var next *Block
	for _, list := range [][]*Block{p.free, p.freeShared} {
		for _, b := range list {
			if b.recycled && !b.whole {
				next = b
			}
		}
	}
	if next == nil {
		p.mu.Unlock()
		return false
	}
	next.whole = true // one attempt, whatever comes of it
	p.mu.Unlock()
	// Blocks are unmapped only by Close, which waits for this goroutine.
	err := next.mapping.Collapse()
	if err != nil {
		p.mu.Lock()
		p.collapse = false // the kernel cannot, or has no huge pages left
		p.mu.Unlock()
	}
	return err == nil
}
