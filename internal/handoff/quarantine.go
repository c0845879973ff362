package handoff

import (
	"context"
	"errors"
	"time"

	"baton/internal/kv"
	"baton/internal/shm"
)

// patient is blocks of a share that came to nothing. They go back to the pool when
// nobody can write to them any more; until then they count as used.
type patient struct {
	share  *share
	blocks []*kv.Block
	next   time.Time
	delay  time.Duration
}

const (
	firstRetry = time.Millisecond
	lastRetry  = time.Second
)

// abandon gives up a share whose id was not used, if it is still there; why is what
// later uses of the id are told.
func (t *Table) abandon(s *share, why Code) {
	t.mu.Lock()
	sent := s.state == filling
	if s.state == adopting || !t.leave(s, why) {
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	t.cleanUp(s, sent)
}

// cleanUp gives back what a finished share holds; sent says that its provider got it.
func (t *Table) cleanUp(s *share, sent bool) {
	if sent {
		s.provider.cancel(s)
	}
	t.freePrefix(s)
	t.isolate(s, s.blocks)
	if !sent {
		t.closeHeader(s)
	}
}

func (t *Table) freePrefix(s *share) {
	if s.seq == nil {
		return
	}
	// A loop that has stopped has no use for the sequence's blocks any more.
	if err := t.opt.OnLoop(context.Background(), s.seq.Free); err != nil {
		t.log().Warn("handoff: cells of a share's prefix stay in use", "error", err)
	}
	s.seq = nil
}

// isolate puts blocks that a provider may still be writing to into quarantine, from
// which those that it has let go leave at once.
func (t *Table) isolate(s *share, blocks []*kv.Block) {
	if len(blocks) == 0 {
		return
	}
	p := &patient{share: s, blocks: blocks, delay: firstRetry}
	if t.treat(p) {
		return
	}
	p.next = time.Now().Add(p.delay)
	t.mu.Lock()
	t.quarantine = append(t.quarantine, p)
	t.mu.Unlock()
	t.wake()
}

// treat releases the blocks that nobody else can write to. It reports whether there are
// none left.
func (t *Table) treat(p *patient) bool {
	left := p.blocks[:0:0]
	for _, b := range p.blocks {
		if err := t.confirmBlock(p.share, b); err != nil {
			if !errors.Is(err, shm.ErrStillWritable) {
				t.log().Warn("handoff: a block stays in quarantine", "error", err)
			}
			left = append(left, b)
			continue
		}
		b.Release()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p.blocks = left // Stats counts them
	return len(left) == 0
}

// confirmBlock has it confirmed that nobody else can write to a block, in the way of the
// share's trust mode; the error wraps shm.ErrStillWritable if somebody can.
func (t *Table) confirmBlock(s *share, b *kv.Block) error {
	switch s.trust {
	case Leased:
		return b.Lease()
	case Sealed:
		return b.Seal()
	}
	// The provider keeps its mapping. It has said that it is done with it, or is dead.
	switch {
	case !s.sent:
		return nil
	case s.hasEnded() && !s.provider.isGone():
		return nil
	case s.hasEnded() && s.outcome.Err == nil:
		return nil
	case s.provider.dead():
		return nil
	}
	return shm.ErrStillWritable
}

// janitor gives up shares that make no progress, and looks after the quarantine and the
// leases of blocks in use.
func (t *Table) janitor() {
	// The kernel holds whoever breaks a lease up for 45 s, unless told otherwise.
	const leases = 5 * time.Second
	timer := time.NewTimer(leases)
	defer timer.Stop()
	looked := time.Now()
	for {
		select {
		case <-t.closing:
			return
		case <-t.work:
		case <-timer.C:
		}
		now := time.Now()
		wait := min(t.expire(now), t.retry(now))
		if now.Sub(looked) >= leases {
			looked = now
			t.checkLeases()
		}
		timer.Reset(min(wait, leases))
	}
}

// wake has the janitor look at once.
func (t *Table) wake() {
	select {
	case t.work <- struct{}{}:
	default: // it will anyway
	}
}

// expire gives up the shares whose time is over, and returns when to look again.
func (t *Table) expire(now time.Time) time.Duration {
	wait := time.Hour
	var late []*share
	t.mu.Lock()
	for _, s := range t.shares {
		if s.state != filling {
			continue
		}
		if n := loadFilled(s.page.Bytes()); n != s.seen {
			s.seen, s.moved = n, now
		}
		left := t.opt.Stall - now.Sub(s.moved)
		if !s.deadline.IsZero() {
			left = min(left, s.deadline.Sub(now))
		}
		if left <= 0 {
			late = append(late, s)
			continue
		}
		// Often enough to see progress when there was some.
		wait = min(wait, left, max(t.opt.Stall/4, time.Millisecond))
	}
	t.mu.Unlock()
	for _, s := range late {
		t.log().Warn("handoff: a share is given up", "slot", s.slot, "provider", s.provider.Name(),
			"cells", s.cellCount(), "after", now.Sub(s.begun))
		t.abandon(s, ShareExpired)
	}
	return wait
}

// retry looks at the blocks in quarantine whose turn it is, and returns when to look
// again.
func (t *Table) retry(now time.Time) time.Duration {
	t.mu.Lock()
	due := append([]*patient(nil), t.quarantine...)
	t.mu.Unlock()
	wait := time.Hour
	for _, p := range due {
		// Somebody who has gone has probably let go.
		gone := p.share.provider != nil && p.share.provider.isGone() && p.delay < lastRetry
		if !gone && now.Before(p.next) {
			wait = min(wait, p.next.Sub(now))
			continue
		}
		if t.treat(p) {
			t.discharge(p)
			continue
		}
		p.delay = min(2*p.delay, lastRetry)
		p.next = now.Add(p.delay)
		wait = min(wait, p.delay)
	}
	return wait
}

func (t *Table) discharge(p *patient) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.quarantine {
		if t.quarantine[i] == p {
			t.quarantine = append(t.quarantine[:i], t.quarantine[i+1:]...)
			return
		}
	}
}

// emptyQuarantine waits until no blocks are left in quarantine, at most for limit.
func (t *Table) emptyQuarantine(limit time.Duration) {
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		t.mu.Lock()
		left := len(t.quarantine)
		t.mu.Unlock()
		if left == 0 || time.Now().After(end) {
			return
		}
		t.wake()
	}
}

// checkLeases has everybody give up the blocks that somebody opens for writing.
func (t *Table) checkLeases() {
	broken, err := t.opt.Pool.BrokenLeases()
	if err != nil {
		t.log().Warn("handoff: read leases", "error", err)
	}
	if len(broken) == 0 {
		return
	}
	t.log().Warn("handoff: somebody opens cache blocks in use for writing: what they hold is given up", "blocks", len(broken))
	err = t.opt.OnLoop(context.Background(), func() {
		for _, b := range broken {
			t.opt.Index.Forget(b)
			if t.opt.LeaseBroken != nil {
				t.opt.LeaseBroken(b)
			}
		}
	})
	if err != nil {
		t.log().Warn("handoff: blocks with broken leases stay in use", "error", err)
	}
}
