package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"baton/internal/engine"
)

// Options configure an Engine.
type Options struct {
	// Decoder is the client of the decoder's process.
	Decoder engine.Engine
	// Up waits until the decoder takes requests, also while it is being restarted; nil:
	// it always does. An error other than ctx's says that there will be no decoder.
	Up func(ctx context.Context) error
	// Err, if set, says why the decoder cannot be used at the moment; nil: it can.
	Err func() error
	// UpLimit is how long a request waits for a decoder that is away; default 30 s.
	UpLimit time.Duration
	// Handoff says whether and how prompts go through a provider; nil: none does.
	Handoff *Handoff
	Logger  *slog.Logger // default: discards
}

// Engine implements engine.Engine on top of a decoder in another process and, perhaps,
// providers in further ones.
type Engine struct {
	opt   Options
	info  engine.Info
	slots *slots

	mu       sync.Mutex
	stopping bool
	calls    map[*call]struct{}
	idle     chan struct{} // closed when stopping and no call is left
}

// New returns an engine for a decoder that is up.
func New(opt Options) *Engine {
	if opt.UpLimit == 0 {
		opt.UpLimit = 30 * time.Second
	}
	if opt.Up == nil {
		opt.Up = func(context.Context) error { return nil }
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{opt: opt, info: opt.Decoder.Info(), calls: make(map[*call]struct{}), idle: make(chan struct{})}
	e.slots = newSlots(e.info.Slots)
	return e
}

// Err implements engine.MayBeAway.
func (e *Engine) Err() error {
	if e.opt.Err != nil {
		return e.opt.Err()
	}
	return nil
}

// Info implements engine.Engine.
func (e *Engine) Info() engine.Info { return e.info }

// Generate implements engine.Engine.
func (e *Engine) Generate(ctx context.Context, r *engine.Request) (engine.Stream, error) {
	if err := e.info.Check(r); err != nil {
		return nil, err
	}
	c := newCall(ctx, e, r)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		c.cancel()
		return nil, &engine.Error{Code: engine.CodeStopping, Message: "the server is shutting down"}
	}
	e.calls[c] = struct{}{}
	c.place = e.slots.enqueue(r.ID, r.Slot)
	go c.run()
	return c, nil
}

// ended forgets a call.
func (e *Engine) ended(c *call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.calls, c)
	if e.stopping && len(e.calls) == 0 {
		close(e.idle)
	}
}

// Close takes no more requests, lets those that wait or run finish until ctx ends, then
// cancels the rest. The decoder is not ended.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if !e.stopping {
		e.stopping = true
		if len(e.calls) == 0 {
			close(e.idle)
		}
	}
	e.mu.Unlock()
	select {
	case <-e.idle:
		return nil
	case <-ctx.Done():
	}
	e.mu.Lock()
	for c := range e.calls {
		c.cancel()
	}
	e.mu.Unlock()
	<-e.idle
	return ctx.Err()
}

// Stats implements engine.Engine: the decoder's snapshot, with the requests that have a
// slot or wait for one here.
func (e *Engine) Stats() engine.Stats {
	st := e.opt.Decoder.Stats()
	holder, busy, waiting := e.slots.snapshot()
	// What the decoder has been given waits and runs there; before that, a request has
	// its slot here only.
	if st.Running == 0 && st.Waiting == 0 && waiting == 0 {
		// An idle step loop reports only when it becomes idle. While a provider is at
		// work it is not late.
		st.LastStep = time.Now()
	}
	st.Waiting = waiting
	st.Running = 0
	for i := range st.Slots {
		if i >= len(busy) || !busy[i] {
			st.Slots[i].Busy = false
			continue
		}
		st.Running++
		st.Slots[i].Busy, st.Slots[i].RequestID = true, holder[i]
	}
	if h := e.opt.Handoff; h != nil {
		h.counts.addTo(&st)
	}
	return st
}
