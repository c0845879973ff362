package decoder

import (
	"context"
	"errors"
	"fmt"

	"baton/internal/handoff"
	"baton/internal/kv"
	"baton/internal/model"
)

// errEnded is what callers of OnLoop get when the step loop runs no more.
var errEnded = errors.New("decoder: the step loop has ended")

// onLoop runs f on the step loop, between two steps, and returns when it has run.
// Blocks and sequences are touched nowhere else. The error is not nil exactly if f did
// not run and never will.
func (d *Decoder) onLoop(ctx context.Context, f func()) error {
	c := &call{fn: f, ran: make(chan struct{})}
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		return errEnded
	}
	d.calls = append(d.calls, c)
	d.wake.Signal()
	d.mu.Unlock()
	select {
	case <-c.ran:
		return nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	gone := c.taken
	c.dropped = !gone
	d.mu.Unlock()
	if gone { // too late: it runs now
		<-c.ran
		return nil
	}
	return ctx.Err()
}

// call is a function for the step loop. Decoder.mu guards taken and dropped.
type call struct {
	fn             func()
	ran            chan struct{}
	taken, dropped bool
}

// runCalls runs what other goroutines asked for.
func (d *Decoder) runCalls() {
	d.mu.Lock()
	calls := d.calls
	d.calls = nil
	for _, c := range calls {
		c.taken = !c.dropped
	}
	d.mu.Unlock()
	for _, c := range calls {
		if c.taken {
			c.fn()
			close(c.ran)
		}
	}
}

// NewTable makes the table of the decoder's handoffs: o says what is particular to them,
// everything that is the decoder's is filled in. Close it before the decoder.
func (d *Decoder) NewTable(o handoff.Options) (*handoff.Table, error) {
	params, err := d.model.HandoffParams()
	if err != nil {
		return nil, err
	}
	o.Pool, o.Index = d.blocks, d.index
	o.OnLoop, o.SlotBusy, o.Attach, o.LeaseBroken = d.onLoop, d.slotBusy, d.attach, d.leaseBroken
	o.Slots, o.Context, o.Vocab, o.Params = d.opt.Slots, d.opt.Ctx, d.model.Vocab, params
	rows := model.NewKeyRows(d.model)
	o.KeyRows = func(_ context.Context, tokens []int32, positions []int, dst []uint16) error {
		return rows.Compute(tokens, positions, dst)
	}
	t, err := handoff.NewTable(o)
	if err != nil {
		rows.Close()
		return nil, err
	}
	d.mu.Lock()
	d.closers = append(d.closers, rows.Close)
	d.mu.Unlock()
	return t, nil
}

// slotBusy reports whether a slot processes a request; on the step loop.
func (d *Decoder) slotBusy(id int) bool { return d.slots[id].busy() }

// attach keeps an adopted or restored sequence in its slot, so that its cells stay until the slot's
// next request finds them in the index; on the step loop.
func (d *Decoder) attach(id int, seq *kv.Sequence) error {
	s := d.slots[id]
	if s.busy() {
		return fmt.Errorf("decoder: slot %d has begun another request", id)
	}
	s.drop()
	s.kept = seq
	s.last = append(s.last[:0], seq.Tokens()...)
	d.index.Insert(seq)
	return nil
}

// leaseBroken ends what was built on a block that somebody has opened for writing; on
// the step loop.
func (d *Decoder) leaseBroken(b *kv.Block) {
	for _, s := range d.slots {
		if s.kept != nil && s.kept.Uses(b) {
			s.drop()
		}
		if s.busy() && s.seq.Uses(b) {
			d.fail(s, fmt.Errorf("decoder: the memory of a handed-over prompt was opened for writing by somebody"))
		}
	}
}

// Cached is how many of the first tokens of a prompt are in the cache.
func (d *Decoder) Cached(ctx context.Context, prompt []int32) (n int, err error) {
	err = d.onLoop(ctx, func() { n = d.index.Lookup(prompt, max(0, len(prompt)-1)).Tokens })
	return n, err
}
