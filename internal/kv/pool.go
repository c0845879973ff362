package kv

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"baton/internal/shm"
)

// ErrNoRoom says that every block of the pool is in use. The error itself is a
// *NoRoomError.
var ErrNoRoom = errors.New("kv: no room")

// NoRoomError says how much room there is and how much is missing.
type NoRoomError struct {
	Want       int // blocks asked for
	Used       int // blocks that sequences hold
	Limit      int // blocks that the pool may have
	BlockBytes int
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("kv: no room: %d of %d blocks in use (%d of %d MiB), want %d more: wait for a running request to end, or start with a larger cache",
		e.Used, e.Limit, mib(e.Used, e.BlockBytes), mib(e.Limit, e.BlockBytes), e.Want)
}

// Is makes errors.Is(err, ErrNoRoom) work.
func (e *NoRoomError) Is(target error) bool { return target == ErrNoRoom }

func mib(blocks, bytes int) int64 { return int64(blocks) * int64(bytes) >> 20 }

// Options says how large a pool is and how it treats its memory.
type Options struct {
	// MaxBlocks is the most blocks that the pool has at any time, and so the budget:
	// MaxBlocks times Layout.BlockBytes.
	MaxBlocks int
	// MaxBytes is the same in bytes: the pool has at most as many blocks as fit. 0: no
	// limit but MaxBlocks, and the other way round; at least one block must be allowed.
	MaxBytes int64
	// Ready is how many free blocks a goroutine of the pool keeps at hand, with all
	// their pages, so that the step loop does not wait for new memory. 0: none, and no
	// goroutine; blocks are then made when they are needed.
	Ready int
	// HugePages takes blocks from the system's huge page pool while it has some.
	HugePages bool
	// Collapse moves blocks that have been used once to huge pages in the background
	// (needs Ready or ShareReady).
	Collapse bool
	// ShareReady is how many free blocks that another process can fill the goroutine
	// keeps at hand; -1: it only refreshes those that were shared before. 0: nothing is
	// shared, or only in tests, as every share then waits for its blocks.
	ShareReady int
}

// Pool makes blocks, up to a limit, and hands them out again and again. Freed blocks are
// reused before new ones are made, because their pages are warm; they are given back to
// the kernel only by Close.
type Pool struct {
	layout     *Layout
	max        int
	ready      int
	shareReady int
	hugePages  bool
	verify     bool

	// Of the step loop.
	index *Index                 // set by NewIndex
	seqs  map[*Sequence]struct{} // all that are not freed

	mu         sync.Mutex
	cond       *sync.Cond // a block came into being or onto a list, or failed to
	free       []*Block   // mapped read-write; last freed, first reused
	freeShared []*Block   // mapped read only, for others to fill
	doomed     []*Block   // to be closed
	blocks     []*Block   // all of them
	coming     int        // blocks being made, or being closed
	tending    int        // free blocks that are worked on, in no list
	used       int        // blocks with holders
	cached     int        // blocks without holders that the index knows
	pledged    int        // blocks that reservations have not taken yet
	made       uint64     // blocks ever made
	reused     uint64     // blocks handed out again
	faults     uint64
	closed     bool

	collapse bool          // guarded by mu
	work     chan struct{} // wakes the background goroutine; nil without one
	stop     chan struct{}
	done     sync.WaitGroup
}

// NewPool makes an empty pool. It refuses a limit that the process cannot live up to:
// more blocks than descriptors (each takes one), or more memory than its control group
// allows.
func NewPool(l *Layout, o Options) (*Pool, error) {
	most := o.MaxBlocks
	if o.MaxBytes != 0 {
		fit := int(min(max(o.MaxBytes, 0)/int64(l.BlockBytes), math.MaxInt32))
		if most == 0 || fit < most {
			most = fit
		}
	}
	if most < 1 {
		return nil, fmt.Errorf("kv: pool of %d blocks, %d bytes: not enough for one block of %d bytes", o.MaxBlocks, o.MaxBytes, l.BlockBytes)
	}
	limit, limited := shm.CgroupMemoryLimit()
	if err := checkMemory(most, l.BlockBytes, limit, limited); err != nil {
		return nil, err
	}
	files := most
	if o.ShareReady != 0 {
		files *= 3 // the block's own, one that is read only, and one on its way out
	}
	if err := shm.CheckFileLimit(files + spareFiles); err != nil {
		return nil, fmt.Errorf("kv: pool of %d blocks: %w", most, err)
	}
	p := &Pool{
		layout: l, max: most, ready: min(max(o.Ready, 0), most), shareReady: min(o.ShareReady, most),
		hugePages: o.HugePages, collapse: o.Collapse,
		verify: os.Getenv("BATON_VERIFY") == "1",
		seqs:   map[*Sequence]struct{}{},
	}
	p.cond = sync.NewCond(&p.mu)
	if p.ready > 0 || p.shareReady != 0 {
		p.work = make(chan struct{}, 1)
		p.stop = make(chan struct{})
		p.done.Go(p.background)
		p.wake()
	}
	return p, nil
}

// checkMemory refuses a pool that would get the process killed.
func checkMemory(blocks, blockBytes int, limit int64, limited bool) error {
	if limited && int64(blocks) > limit/int64(blockBytes) {
		return fmt.Errorf("kv: a pool of %d blocks needs %d MiB, the control group of this process allows %d MiB of memory in all: use a smaller cache",
			blocks, mib(blocks, blockBytes), limit>>20)
	}
	return nil
}

var errClosed = errors.New("kv: the pool is closed")

// spareFiles is how many descriptors a pool leaves for everything else in the process.
const spareFiles = 64

// Layout is the layout of the pool's blocks.
func (p *Pool) Layout() *Layout { return p.layout }

// Alloc hands out a block that the caller gives back with Block.Release. It evicts from
// the index if it must. The error is ErrNoRoom when all blocks are in use.
func (p *Pool) Alloc() (*Block, error) {
	b, err := p.alloc(1)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	b[0].direct++
	p.mu.Unlock()
	return b[0], nil
}

// alloc hands out n blocks, or none. Each has one holder, the caller.
func (p *Pool) alloc(n int) ([]*Block, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.admit(n); err != nil {
		return nil, err
	}
	got := make([]*Block, 0, n)
	for len(got) < n {
		b, err := p.next(n)
		if err != nil {
			for _, b := range got {
				p.dropHolder(b)
			}
			return nil, err
		}
		p.addHolder(b)
		got = append(got, b)
	}
	p.wake()
	return got, nil
}

// admit makes sure that there is room for n blocks, evicting if it must, without the
// lock meanwhile.
func (p *Pool) admit(n int) error {
	if p.closed {
		return errClosed
	}
	if short := n - p.room(); short > 0 {
		if short > p.cached || p.index == nil {
			return p.noRoom(n)
		}
		p.mu.Unlock()
		p.index.Evict(short)
		p.mu.Lock()
		if n > p.room() {
			return p.noRoom(n)
		}
	}
	return nil
}

// room is how many blocks can be handed out without evicting.
func (p *Pool) room() int { return p.max - p.used - p.cached - p.pledged }

// total is how many blocks there are, those being made or closed included.
func (p *Pool) total() int { return len(p.blocks) + p.coming }

func (p *Pool) noRoom(want int) error {
	return &NoRoomError{Want: want, Used: p.used, Limit: p.max, BlockBytes: p.layout.BlockBytes}
}

// next takes a free block, makes one, or waits for one that is being made; want is for
// the error.
func (p *Pool) next(want int) (*Block, error) {
	for {
		switch {
		case p.closed:
			return nil, errClosed
		case len(p.free) > 0:
			b := pop(&p.free)
			if b.recycled {
				p.reused++
			}
			return b, nil
		case p.total() < p.max:
			return p.create(false)
		case len(p.freeShared) > 0:
			b := pop(&p.freeShared)
			p.tend(b, b.makeLocal)
		case len(p.doomed) > 0:
			if err := p.closeDoomed(); err != nil {
				return nil, err
			}
		case p.coming+p.tending > 0:
			p.cond.Wait()
		default:
			return nil, p.noRoom(want)
		}
	}
}

// create makes a block, without the lock meanwhile. The block is in no list but
// p.blocks.
func (p *Pool) create(shared bool) (*Block, error) {
	p.coming++
	p.mu.Unlock()
	b, err := newBlock(p, shared)
	p.mu.Lock()
	p.coming--
	p.cond.Broadcast()
	if err != nil {
		return nil, fmt.Errorf("kv: new block: %w", err)
	}
	p.blocks = append(p.blocks, b)
	p.made++
	return b, nil
}

// The four below keep the counts; they need p.mu.

func (p *Pool) addHolder(b *Block) {
	if b.holders == 0 {
		p.used++
		if b.nodes > 0 {
			p.cached--
		}
	}
	b.holders++
}

func (p *Pool) dropHolder(b *Block) {
	if b.holders == 0 {
		p.fault(b, "released more often than taken")
		return
	}
	b.holders--
	if b.holders > 0 {
		return
	}
	p.used--
	if b.nodes > 0 {
		p.cached++
	} else {
		p.recycle(b)
	}
}

func (p *Pool) addNode(b *Block) {
	if b.nodes == 0 && b.holders == 0 {
		p.cached++
	}
	b.nodes++
}

func (p *Pool) dropNode(b *Block) {
	if b.nodes == 0 {
		p.fault(b, "dropped from the index more often than added")
		return
	}
	b.nodes--
	if b.nodes == 0 && b.holders == 0 {
		p.cached--
		p.recycle(b)
	}
}

// recycle puts a block that nobody uses any more on a list.
func (p *Pool) recycle(b *Block) {
	b.pos, b.used, b.frozen, b.owner = 0, 0, false, nil
	b.recycled, b.stale = true, true
	p.shelve(b)
	if p.collapse || b.readOnly {
		p.wake()
	}
}

// fault deals with a call that would bring a count below zero, which only a bug can
// make. The call has no other effect, so that no block ends up in two hands.
func (p *Pool) fault(b *Block, what string) {
	p.faults++
	if p.verify {
		panic(fmt.Sprintf("kv: block %s (%d holders, %d direct, %d nodes)", what, b.holders, b.direct, b.nodes))
	}
}

// Stats is a snapshot of a pool, in blocks unless it says otherwise.
type Stats struct {
	Limit      int // the most there may be
	Blocks     int // there are now
	Used       int // held by sequences
	Cached     int // held by the index only: evicted when room is needed
	Free       int // held by nobody, pages in place
	Shareable  int // of Free: mapped read only, for others to fill
	ShareReady int // of Shareable: with nothing left to be done
	Huge       int // of Blocks: from the system's huge page pool
	BlockBytes int
	Bytes      int64  // memory of Blocks
	LimitBytes int64  // memory of Limit
	Made       uint64 // ever made of new memory
	Reused     uint64 // handed out again
	Faults     uint64 // broken invariants; 0 unless there is a bug
}

// Stats may be called at any time from any goroutine.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{
		Limit: p.max, Blocks: len(p.blocks), Used: p.used, Cached: p.cached,
		Free: len(p.free) + len(p.freeShared) + len(p.doomed) + p.tending, Shareable: len(p.freeShared),
		BlockBytes: p.layout.BlockBytes,
		Bytes:      int64(len(p.blocks)) * int64(p.layout.BlockBytes),
		LimitBytes: int64(p.max) * int64(p.layout.BlockBytes),
		Made:       p.made, Reused: p.reused, Faults: p.faults,
	}
	for _, b := range p.blocks {
		if b.object.Huge() {
			s.Huge++
		}
	}
	for _, b := range p.freeShared {
		if b.ready() {
			s.ShareReady++
		}
	}
	return s
}

// Close gives all memory back. Nobody may use a block any more: sequences are to be
// freed and the index cleared before, otherwise Close changes nothing and says how many
// blocks are in use. Closing twice is no error.
func (p *Pool) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	if p.used+p.cached+p.pledged > 0 {
		defer p.mu.Unlock()
		return fmt.Errorf("kv: close: %d blocks are in use, %d cached, %d reserved", p.used, p.cached, p.pledged)
	}
	p.closed = true
	p.cond.Broadcast()
	for p.coming+p.tending > 0 {
		p.cond.Wait()
	}
	p.mu.Unlock()
	if p.stop != nil {
		close(p.stop)
		p.done.Wait()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, b := range p.blocks {
		err = errors.Join(err, b.close())
	}
	p.blocks, p.free, p.freeShared, p.doomed = nil, nil, nil, nil
	return err
}
