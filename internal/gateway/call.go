package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"baton/internal/engine"
)

// call is a request from its arrival to its last event. It is the stream that the
// caller reads.
type call struct {
	*engine.Queue
	e       *Engine
	req     engine.Request
	ctx     context.Context
	cancel  context.CancelFunc
	place   *place
	arrived time.Time
	slot    int            // -1: none yet
	started time.Time      // when it got its slot
	given   time.Time      // when the decoder got it
	handoff engine.Handoff // how its cells got there
	missed  string         // the code of why not all of them, if that was tried
}

func newCall(ctx context.Context, e *Engine, r *engine.Request) *call {
	c := &call{Queue: engine.NewQueue(), e: e, req: *r, slot: -1, arrived: time.Now()}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

// Cancel implements engine.Stream.
func (c *call) Cancel() { c.cancel() }

// run carries the request out. It sends exactly one event of kind Done.
func (c *call) run() {
	defer c.e.ended(c)
	defer c.cancel()
	result := func() (r *engine.Result) {
		defer func() {
			if v := recover(); v != nil {
				c.e.opt.Logger.Error("panic in a request", "request", c.req.ID, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
				r = c.failed(&engine.Error{Code: engine.CodeInternal, Message: "internal error: the server's log says more"})
			}
		}()
		return c.serve()
	}()
	c.Send(engine.Event{Kind: engine.Done, At: time.Now(), Result: result})
}

// serve gets a slot, brings the prompt's cells into it, and relays the decoder's events.
func (c *call) serve() *engine.Result {
	slot, err := c.e.slots.wait(c.ctx, c.place)
	if err != nil {
		return c.cancelled()
	}
	defer c.e.slots.release(slot)
	c.slot, c.req.Slot, c.started = slot, slot, time.Now()

	c.handoff.Route = engine.RouteLocal
	if h := c.e.opt.Handoff; h != nil {
		c.handoff, c.missed = h.perform(c.ctx, &c.req, c.progress)
	}
	c.req.Handoff = c.handoff
	if c.ctx.Err() != nil {
		return c.cancelled()
	}
	st, err := c.open()
	if err != nil {
		if c.ctx.Err() != nil {
			return c.cancelled()
		}
		return c.failed(err)
	}
	defer st.Cancel()
	return c.relay(st)
}

// progress tells the client how far a provider has come.
func (c *call) progress(cached, filled int) {
	if !c.req.Progress {
		return
	}
	t := engine.Timings{CacheN: cached, Prompt: time.Since(c.started), Handoff: engine.Handoff{Route: engine.RouteShared, Cells: filled - cached}}
	c.Send(engine.Event{Kind: engine.Progress, At: time.Now(), Prompt: filled, PromptOf: len(c.req.Prompt), Timings: &t})
}

// maxOpen bounds how often a request is offered to a decoder that goes away at once.
const maxOpen = 3

// open gives the request to the decoder, waiting for it while it is being restarted. A
// request that the decoder has once accepted is not given to another one: it may be what
// ended the first, and some of its text may be with the client.
func (c *call) open() (engine.Stream, error) {
	for n := 1; ; n++ {
		if err := c.awaitDecoder(); err != nil {
			return nil, err
		}
		c.given = time.Now()
		st, err := c.e.opt.Decoder.Generate(c.ctx, &c.req)
		if err == nil || n == maxOpen || engine.AsError(err).Code != engine.CodeAway || c.ctx.Err() != nil {
			return st, err
		}
		// The supervisor may not have noticed yet.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		}
	}
}

func (c *call) awaitDecoder() error {
	limit := c.e.opt.UpLimit
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	err := c.e.opt.Up(ctx)
	switch {
	case err == nil || c.ctx.Err() != nil:
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return &engine.Error{Code: engine.CodeAway, Message: "the decoder is being restarted, and was not ready within " + limit.String() + ": try again"}
	}
	return &engine.Error{Code: engine.CodeAway, Message: "there is no decoder: " + err.Error()}
}

// relay passes on what the decoder sends, and returns its result.
func (c *call) relay(st engine.Stream) *engine.Result {
	for {
		ev, err := st.Recv(c.ctx)
		switch {
		case err == nil:
		case c.ctx.Err() != nil:
			drain(st)
			return c.cancelled()
		case errors.Is(err, io.EOF):
			return c.failed(errors.New("the decoder's events ended without a result"))
		default:
			return c.failed(err)
		}
		if ev.Timings != nil {
			t := c.timings(*ev.Timings)
			ev.Timings = &t
		}
		if ev.Kind == engine.Done {
			r := *ev.Result
			r.Slot, r.Timings = c.slot, c.timings(r.Timings)
			if c.missed != "" { // the last token is the decoder's in any case
				c.e.opt.Handoff.counts.reprefill(c.missed, r.Timings.PromptN-1)
			}
			return &r
		}
		c.Send(ev)
	}
}

// drainLimit is how long a decoder may take to end a request that was cancelled.
const drainLimit = 10 * time.Second

// drain waits until the decoder has ended a cancelled request: its slot is taken until
// then.
func drain(st engine.Stream) {
	st.Cancel()
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	for {
		if ev, err := st.Recv(ctx); err != nil || ev.Kind == engine.Done {
			return
		}
	}
}

// timings adds what happened before the decoder got the request: what was not a handoff
// that brought cells was waiting, for a slot, in line for the provider, for one that did
// not deliver, or for the decoder. The decoder finds adopted cells in its cache and counts
// them there.
func (c *call) timings(t engine.Timings) engine.Timings {
	t.Queue += c.given.Sub(c.arrived) - c.handoff.Took - c.handoff.Prefill // and what the decoder counted itself
	t.Handoff = c.handoff
	t.Handoff.Cells = min(c.handoff.Cells, t.CacheN) // it may have had no room for them
	t.CacheN -= t.Handoff.Cells
	return t
}

func (c *call) failed(err error) *engine.Result {
	return &engine.Result{Reason: engine.Failed, Err: err, Slot: c.slot, Timings: c.before()}
}

func (c *call) cancelled() *engine.Result {
	return &engine.Result{Reason: engine.Cancelled, Err: context.Canceled, Slot: c.slot, Timings: c.before()}
}

// before is what is known of a request that the decoder has not finished.
func (c *call) before() engine.Timings {
	t := engine.Timings{Handoff: c.handoff}
	if !c.started.IsZero() {
		t.Queue = c.started.Sub(c.arrived)
	}
	return t
}
