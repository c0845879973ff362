package decoder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"baton/internal/engine"
	"baton/internal/kv"
	"baton/internal/model"
)

// batch is the micro-batch of the current step.
type batch struct {
	chunks []model.Chunk
	slots  []*slot // of each chunk
	tokens int
	prompt int // prompt tokens among them
}

// loop runs steps as long as there is work.
func (d *Decoder) loop() {
	defer close(d.done)
	defer d.threads.Close()
	for d.await() {
		d.runCalls()
		d.schedule()
		if d.batch.tokens == 0 {
			continue
		}
		start := time.Now()
		logits, err := d.runner.Forward(d.batch.chunks)
		d.pace.measured(&d.batch, time.Since(start))
		d.deliver(logits, err)
	}
	for _, s := range d.slots {
		s.drop()
	}
	for _, f := range d.closers {
		f()
	}
	d.index.Clear()
	d.failed = d.blocks.Close()
}

// await blocks until there is something to do; false means the loop shall end.
func (d *Decoder) await() bool {
	d.publish()
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		if len(d.calls) > 0 || len(d.queue) > 0 || slices.ContainsFunc(d.slots, (*slot).busy) {
			return true
		}
		if d.stopping {
			d.ended = true
			return false
		}
		d.wake.Wait()
	}
}

// schedule drops requests whose caller has left, gives free slots to waiting ones,
// and lays out the next micro-batch.
func (d *Decoder) schedule() {
	for _, s := range d.slots {
		if s.busy() && (s.cancelled.Load() || d.abort.Load()) {
			d.finish(s, engine.Result{Reason: engine.Cancelled, Err: context.Canceled})
		}
	}
	d.admit()
	b := &d.batch
	b.chunks, b.slots, b.tokens, b.prompt = b.chunks[:0], b.slots[:0], 0, 0
	prefilling := 0
	for _, s := range d.slots {
		switch {
		case !s.busy():
		case s.prefilling():
			prefilling++
		default:
			d.add(s, s.next[:], true)
		}
	}
	room := d.pace.room(b.tokens, d.opt.MicroBatch)
	for _, s := range d.slots {
		if !s.busy() || !s.prefilling() {
			continue
		}
		n := min(len(s.pending), max(1, room/prefilling))
		if d.add(s, s.pending[:n], n == len(s.pending)) {
			b.prompt += n
			room -= n
		}
		prefilling--
	}
}

// add puts tokens of a slot into the micro-batch, which will fill their cells.
func (d *Decoder) add(s *slot, tokens []int32, logits bool) bool {
	pos := s.seq.Len()
	if err := d.append(s.seq, tokens); err != nil {
		d.finish(s, engine.Result{Reason: engine.Failed, Err: &engine.Error{Code: engine.CodeNoRoom, Message: err.Error()}})
		return false
	}
	s.runs = s.seq.Runs(0, s.seq.Len(), s.runs[:0])
	b := &d.batch
	b.chunks = append(b.chunks, model.Chunk{Tokens: tokens, Pos0: pos, Runs: s.runs, Logits: logits})
	b.slots = append(b.slots, s)
	b.tokens += len(tokens)
	return true
}

// append gives tokens cells in a sequence.
func (d *Decoder) append(seq *kv.Sequence, tokens []int32) error {
	err := seq.Append(tokens...)
	if errors.Is(err, kv.ErrNoRoom) { // adopted cells that nobody has asked for must wait no longer
		for _, s := range d.slots {
			s.drop()
		}
		err = seq.Append(tokens...)
	}
	return err
}

// admit gives free slots to waiting requests, in order of arrival. A request for a
// busy slot, or one whose prompt another slot is just processing, lets later ones by.
func (d *Decoder) admit() {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.queue[:0]
	for _, t := range d.queue {
		if t.cancelled.Load() || d.abort.Load() {
			t.release()
			t.out.Send(engine.Event{Kind: engine.Done, At: time.Now(),
				Result: &engine.Result{Reason: engine.Cancelled, Err: context.Canceled, Slot: -1}})
			continue
		}
		s := d.freeSlot(t)
		if s == nil || d.comesSoon(t) {
			left = append(left, t)
			continue
		}
		seq, match := d.begin(t)
		s.drop() // after Attach: its cells are this request's now, or stay cached
		s.start(t, d, seq, match)
		d.admitted(s)
	}
	clear(d.queue[len(left):])
	d.queue = left
}

// begin starts a sequence for t with what is cached of its prompt. Cells that are reused
// hold whole blocks, of which the request may use but a few cells: they are given up where
// the request has room in the pool only without them.
func (d *Decoder) begin(t *task) (*kv.Sequence, kv.Match) {
	limit := len(t.Prompt) - 1 // the last token is processed anew for its logits
	if !t.CachePrompt {
		limit = 0
	}
	seq, match := d.index.Attach(t.Prompt, limit)
	blocks := d.blocks.Stats().Limit
	most := min(d.opt.Ctx, blocks*d.blocks.Layout().CellsPerBlock)
	if t.MaxTokens >= 0 {
		most = min(most, len(t.Prompt)+t.MaxTokens)
	}
	if seq.Blocks()+seq.Need(most-seq.Len()) <= blocks {
		return seq, match
	}
	until := seq.Len()
	seq.Free()
	seq, _ = d.index.Attach(t.Prompt, 0)
	return seq, kv.Match{Reason: kv.Crowded, Until: until}
}

func (d *Decoder) freeSlot(t *task) *slot {
	if t.Slot >= 0 {
		if s := d.slots[t.Slot]; !s.busy() {
			return s
		}
		return nil
	}
	for _, s := range d.slots {
		if !s.busy() {
			return s
		}
	}
	return nil
}

// worthWaiting is the number of shared prompt tokens from which on a request waits
// for another slot to process them, rather than process them a second time.
const worthWaiting = 64

// comesSoon reports whether a slot is processing a prompt that shares more with t
// than the cache holds now.
func (d *Decoder) comesSoon(t *task) bool {
	if !t.CachePrompt {
		return false
	}
	for _, s := range d.slots {
		if !s.busy() || !s.prefilling() || !s.CachePrompt {
			continue
		}
		if n := commonPrefix(t.Prompt, s.Prompt); n >= worthWaiting && n > d.index.Lookup(t.Prompt, n).Tokens+worthWaiting {
			return true
		}
	}
	return false
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// deliver chooses the next token of each slot whose logits the step computed, and
// sends events.
func (d *Decoder) deliver(logits []float32, err error) {
	row := 0
	for i, s := range d.batch.slots {
		c := &d.batch.chunks[i]
		if err != nil {
			d.fail(s, fmt.Errorf("decoder: step failed: %w", err))
			continue
		}
		if s.prefilling() {
			d.prefilled(s, len(c.Tokens))
		}
		if c.Logits {
			d.choose(s, logits[row*d.model.Vocab:(row+1)*d.model.Vocab])
			row++
		}
	}
}

// prefilled notes that n more tokens of the prompt are in the cache.
func (d *Decoder) prefilled(s *slot, n int) {
	s.pending = s.pending[n:]
	if s.Progress {
		so := s.timings()
		so.Prompt = time.Since(s.started)
		s.out.Send(engine.Event{Kind: engine.Progress, At: time.Now(), Prompt: len(s.Prompt) - len(s.pending), PromptOf: len(s.Prompt), Timings: &so})
	}
	if len(s.pending) == 0 {
		s.promptEnd = time.Now()
		d.index.Insert(s.seq) // others may share the prompt from now on
	}
}
