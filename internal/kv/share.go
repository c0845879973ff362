package kv

import (
	"errors"
	"fmt"
)

// A block that another process is to fill is mapped read only in this one, through a
// descriptor that is read only, and nothing in it looks like a row: its memory is zero,
// or marked. Blocks come into that state when they are reserved, or before, by the
// pool's goroutine (Options.ShareReady), and stay in it when they are freed, so that a
// pool ends up with as many of each kind as its use needs.

// Reservation is room for blocks that another process is to fill. It is made on the step
// loop, where the index may have to give up cached cells, and takes no system call;
// Prepare does the rest anywhere.
type Reservation struct {
	pool   *Pool
	keeper any
	blocks []*Block // held, like those of Alloc
	owed   int      // counted in pool.pledged
}

// ReserveShared reserves n blocks, evicting from the index if it must. keeper is who
// keeps a writable mapping of the blocks after having filled them, nil for nobody: a
// block is only reserved again for the keeper that it has. The error is ErrNoRoom when
// too many blocks are in use; then nothing is reserved.
//
// Either Prepare or Release has to be called, once.
func (p *Pool) ReserveShared(n int, keeper any) (*Reservation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.admit(n); err != nil {
		return nil, err
	}
	r := &Reservation{pool: p, keeper: keeper}
	for len(r.blocks) < n {
		b := p.takeShared(keeper)
		if b == nil {
			break
		}
		r.take(b)
	}
	r.owed = n - len(r.blocks)
	p.pledged += r.owed
	return r, nil
}

// take holds a block that is in no list. It needs pool.mu.
func (r *Reservation) take(b *Block) {
	r.pool.addHolder(b)
	b.direct++
	r.blocks = append(r.blocks, b)
}

// Prepare returns the blocks, mapped read only and without rows. Each is the caller's,
// who gives it back with Block.Release or Sequence.Adopt. On an error everything is
// given back already.
func (r *Reservation) Prepare() ([]*Block, error) {
	if err := r.prepare(); err != nil {
		r.Release()
		return nil, err
	}
	blocks := r.blocks
	r.blocks = nil
	return blocks, nil
}

func (r *Reservation) prepare() error {
	for r.owed > 0 {
		if err := r.settle(); err != nil {
			return err
		}
	}
	for _, b := range r.blocks {
		if err := b.makeShared(); err != nil {
			return fmt.Errorf("kv: prepare a block for sharing: %w", err)
		}
		if r.keeper != nil {
			b.note(func(s *sharing) { s.keeper = r.keeper })
		}
	}
	return nil
}

// settle gets one of the blocks that the reservation is owed.
func (r *Reservation) settle() error {
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.closed {
			return errClosed
		}
		b := p.takeShared(r.keeper)
		switch {
		case b != nil:
		case p.total() < p.max:
			made, err := p.create(true)
			if err != nil {
				return err
			}
			b = made
		case len(p.free) > 0:
			b = pop(&p.free)
		case len(p.doomed) > 0:
			if err := p.closeDoomed(); err != nil {
				return err
			}
			continue
		case p.coming+p.tending > 0:
			p.cond.Wait()
			continue
		default:
			// Room there is, but others keep mappings of it.
			return p.noRoom(r.owed)
		}
		p.pledged--
		r.owed--
		r.take(b)
		return nil
	}
}

// Release gives the reservation back, unless Prepare has handed the blocks out.
func (r *Reservation) Release() {
	p := r.pool
	p.mu.Lock()
	p.pledged -= r.owed
	r.owed = 0
	p.mu.Unlock()
	for _, b := range r.blocks {
		b.Release()
	}
	r.blocks = nil
}

// takeShared takes a free block that can be filled by others, preferably one that is
// ready; nil if there is none for keeper. It needs pool.mu.
func (p *Pool) takeShared(keeper any) *Block {
	found := -1
	for i, b := range p.freeShared {
		if b.keeper == keeper && (found < 0 || b.ready()) {
			found = i
		}
	}
	if found < 0 {
		return nil
	}
	b := p.freeShared[found]
	p.freeShared = append(p.freeShared[:found], p.freeShared[found+1:]...)
	p.reused++
	p.wake()
	return b
}

// closeDoomed gives the memory of one discarded block back, without the lock meanwhile.
func (p *Pool) closeDoomed() error {
	b := pop(&p.doomed)
	for i := range p.blocks {
		if p.blocks[i] == b {
			p.blocks[i] = p.blocks[len(p.blocks)-1]
			p.blocks[len(p.blocks)-1] = nil
			p.blocks = p.blocks[:len(p.blocks)-1]
			break
		}
	}
	p.coming++ // its memory still counts
	p.mu.Unlock()
	err := b.close()
	p.mu.Lock()
	p.coming--
	p.cond.Broadcast()
	if err != nil {
		return fmt.Errorf("kv: close a discarded block: %w", err)
	}
	return nil
}

// refresh makes one free block ready to be shared again, closes a discarded one, or
// makes a new one; it reports whether it did anything.
func (p *Pool) refresh() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if len(p.doomed) > 0 {
		return p.closeDoomed() == nil
	}
	ready := 0
	for i, b := range p.freeShared {
		if b.ready() {
			ready++
			continue
		}
		p.freeShared = append(p.freeShared[:i], p.freeShared[i+1:]...)
		p.tend(b, b.makeShared)
		return true
	}
	if ready >= p.shareReady || p.total() >= p.max {
		return false
	}
	b, err := p.create(true)
	if err != nil {
		return false // whoever needs the block gets the error
	}
	p.freeShared = append(p.freeShared, b)
	return true
}

// tend works on a block that was taken out of its list, without the lock, and puts it
// where it belongs then. One that fails is discarded.
func (p *Pool) tend(b *Block, work func() error) {
	p.tending++
	b.tended = true
	p.mu.Unlock()
	err := work()
	p.mu.Lock()
	p.tending--
	b.tended = false
	b.discard = b.discard || err != nil
	p.shelve(b)
	p.cond.Broadcast()
}

// shelve puts a block that nobody uses into the list where it belongs. It needs pool.mu.
func (p *Pool) shelve(b *Block) {
	switch {
	case b.sealed || b.discard:
		p.doomed = append(p.doomed, b)
	case b.readOnly:
		p.freeShared = append(p.freeShared, b)
	default:
		p.free = append(p.free, b)
	}
}

func pop(list *[]*Block) *Block {
	l := *list
	b := l[len(l)-1]
	l[len(l)-1] = nil
	*list = l[:len(l)-1]
	return b
}

// BrokenLeases returns the blocks in use whose lease somebody is breaking, by opening
// the memory for writing: what they hold cannot be trusted from now on. The kernel makes
// the opener wait for /proc/sys/fs/lease-break-time (45 s), so this has to be asked more
// often than that. Each block is returned once; it is not used again after it is freed.
func (p *Pool) BrokenLeases() ([]*Block, error) {
	p.mu.Lock()
	var leased []*Block
	for _, b := range p.blocks {
		if b.leased && !b.discard && b.holders+b.nodes > 0 {
			leased = append(leased, b)
		}
	}
	p.mu.Unlock()
	var broken []*Block
	var errs error
	for _, b := range leased {
		held, err := b.leaseHeld()
		errs = errors.Join(errs, err)
		if !held {
			b.Condemn()
			broken = append(broken, b)
		}
	}
	return broken, errs
}
