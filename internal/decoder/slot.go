package decoder

import (
	"context"
	"sync/atomic"
	"time"

	"baton/internal/engine"
	"baton/internal/kv"
	"baton/internal/sample"
	"baton/internal/vocab"
)

// task is a request from its arrival to its last event.
type task struct {
	*engine.Request
	ctx       context.Context
	out       *stream
	submitted time.Time
	cancelled atomic.Bool
	unwatch   func() bool
	stop      context.CancelFunc
}

func newTask(ctx context.Context, r *engine.Request) *task {
	t := &task{Request: r, submitted: time.Now()}
	t.ctx, t.stop = context.WithCancel(ctx)
	t.out = newStream(t.stop)
	return t
}

// watch notes when the caller leaves; the loop looks before every step.
func (t *task) watch() {
	t.unwatch = context.AfterFunc(t.ctx, func() { t.cancelled.Store(true) })
}

func (t *task) release() {
	if t.unwatch != nil {
		t.unwatch()
	}
	t.stop()
}

// slot is a place in which one request runs. Only the step loop touches it.
type slot struct {
	id int
	*task

	kept    *kv.Sequence // adopted or restored cells, until the next request in this slot
	last    []int32      // the tokens that the last request, or kept, had in the cache
	seq     *kv.Sequence
	match   kv.Match
	pending []int32 // prompt tokens that are not in the cache yet
	runs    []kv.Run
	sampler *sample.Sampler
	detok   *vocab.Detokenizer
	stopper stopper

	next      [1]int32 // the token to feed in the next step, once generating
	decoded   int      // tokens chosen so far
	started   time.Time
	lastAt    time.Time
	promptEnd time.Time
}

func (s *slot) busy() bool { return s.task != nil }

// prefilling reports whether prompt tokens are left to process.
func (s *slot) prefilling() bool { return len(s.pending) > 0 }

// start puts t in the slot with the cells seq already holds.
func (s *slot) start(t *task, d *Decoder, seq *kv.Sequence, match kv.Match) {
	var banned []int32
	if t.IgnoreEOS {
		banned = d.eog
	}
	s.task, s.seq, s.match = t, seq, match
	s.pending = t.Prompt[match.Tokens:]
	s.sampler = sample.New(t.Sampling, d.opt.Ctx, banned)
	s.sampler.AcceptAll(t.Prompt)
	s.detok = vocab.NewDetokenizer(d.vocab, false)
	s.stopper = stopper{words: t.Stop}
	s.decoded = 0
	s.started = time.Now()
	s.lastAt, s.promptEnd = time.Time{}, time.Time{}
}

// drop lets go of adopted cells; they stay cached as long as there is room.
func (s *slot) drop() {
	if s.kept != nil {
		s.kept.Free()
		s.kept = nil
	}
}

func (s *slot) timings() engine.Timings {
	t := engine.Timings{
		Queue: s.started.Sub(s.submitted), CacheN: s.match.Tokens,
		PromptN: len(s.Prompt) - s.match.Tokens - len(s.pending), PredictedN: s.decoded,
	}
	if !s.promptEnd.IsZero() {
		t.Prompt = s.promptEnd.Sub(s.started)
	}
	if s.decoded > 0 {
		t.Predicted = s.lastAt.Sub(s.promptEnd)
	}
	return t
}

// clear gives everything back; the slot is free afterwards.
func (s *slot) clear() {
	s.seq.Free()
	s.release()
	s.task, s.seq, s.pending, s.sampler, s.detok = nil, nil, nil, nil, nil
}
