package decoder

import (
	"maps"
	"slices"
	"time"

	"baton/internal/engine"
)

// Stats implements engine.Engine. Counters are kept under a lock of their own that
// the step loop holds for nanoseconds at a time.
func (d *Decoder) Stats() engine.Stats {
	d.mu.Lock()
	waiting := len(d.queue)
	d.mu.Unlock()
	d.statMu.Lock()
	defer d.statMu.Unlock()
	st := d.stat
	st.Slots = slices.Clone(st.Slots)
	st.Recomputed = maps.Clone(st.Recomputed)
	st.Waiting = waiting
	return st
}

// publish brings the snapshot up to date after a step.
func (d *Decoder) publish() {
	b := d.blocks.Stats()
	d.statMu.Lock()
	defer d.statMu.Unlock()
	st := &d.stat
	st.Running = 0
	for i, s := range d.slots {
		v := &st.Slots[i]
		v.Busy = s.busy()
		if !v.Busy {
			continue
		}
		st.Running++
		v.RequestID, v.NPrompt, v.Sampling = s.ID, len(s.Prompt), s.Sampling
		v.NPromptRun, v.NDecoded = len(s.Prompt)-len(s.pending), s.decoded
		v.Remaining = -1
		if s.MaxTokens >= 0 {
			v.Remaining = s.MaxTokens - s.decoded
		}
	}
	st.KVUsedBlocks, st.KVCachedBlocks, st.KVTotalBlocks = b.Used, b.Cached, b.Limit
	st.LastStep = time.Now()
	if d.batch.tokens > 0 {
		st.Steps++
	}
}

// admitted counts a request that got a slot. Cells that a provider has just filled for it
// are in the cache by now, but they were processed, not reused.
func (d *Decoder) admitted(s *slot) {
	d.statMu.Lock()
	defer d.statMu.Unlock()
	adopted := max(min(s.Handoff.Cells, s.match.Tokens), 0)
	d.stat.CachedTokens += uint64(s.match.Tokens - adopted)
	d.stat.PromptTokens += uint64(adopted)
	d.stat.AdoptedTokens += uint64(adopted)
	d.stat.PromptTime += s.Handoff.Prefill
	if s.match.Why() != "" {
		d.stat.Recomputed[s.match.Reason.String()] += uint64(len(s.pending))
	}
}

// finished counts a request that ended.
func (d *Decoder) finished(s *slot, r *engine.Result) {
	d.statMu.Lock()
	defer d.statMu.Unlock()
	d.stat.PromptTokens += uint64(r.Timings.PromptN)
	d.stat.GenTokens += uint64(r.Timings.PredictedN)
	d.stat.PromptTime += r.Timings.Prompt
	d.stat.GenTime += r.Timings.Predicted
	if r.Reason == engine.Failed {
		d.stat.Failed++
	}
}
