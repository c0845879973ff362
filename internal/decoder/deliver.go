package decoder

import (
	"time"

	"baton/internal/engine"
	"baton/internal/sample"
)

// choose samples the next token of a slot and delivers it, or ends the request.
func (d *Decoder) choose(s *slot, logits []float32) {
	if s.MaxTokens == 0 {
		d.finish(s, engine.Result{Reason: engine.StopLimit})
		return
	}
	var raw []float32
	if s.Logprobs >= 0 { // the sampler changes the row
		raw = append(d.rawRow[:0], logits...)
		d.rawRow = raw
	}
	id, ok := s.sampler.Next(logits)
	if !ok && len(s.Sampling.LogitBias) > 0 {
		d.fail(s, &engine.Error{Code: engine.CodeBadRequest, Param: "logit_bias",
			Message: "logit_bias leaves no token to choose from: allow at least one"})
		return
	}
	if !ok {
		d.finish(s, engine.Result{Reason: engine.Failed, Err: &engine.Error{Code: engine.CodeInternal,
			Message: "the model gave no finite logit: its weights may be damaged (see baton model verify)"}})
		return
	}
	s.sampler.Accept(id)
	s.lastAt = time.Now()
	s.decoded++
	e := engine.Event{Kind: engine.Token, At: s.lastAt, Token: id}
	if raw != nil {
		e.Logprob, e.Top = sample.Logprobs(raw, id, s.Logprobs)
	}
	if s.Request.Timings {
		so := s.timings()
		e.Timings = &so
	}
	if d.vocab.IsEOG(id) && !s.IgnoreEOS {
		s.out.Send(e)
		d.finish(s, engine.Result{Reason: engine.StopEOS})
		return
	}
	var word string
	e.Text, word = s.stopper.push(s.detok.Push(id))
	s.out.Send(e)
	switch {
	case word != "":
		d.finish(s, engine.Result{Reason: engine.StopWord, StoppingWord: word})
	case s.MaxTokens > 0 && s.decoded >= s.MaxTokens:
		d.finish(s, engine.Result{Reason: engine.StopLimit})
	case s.seq.Len()+1 >= d.opt.Ctx:
		d.finish(s, engine.Result{Reason: engine.StopLimit, ContextFull: true})
	default:
		s.next[0] = id
	}
}

// fail ends a slot's request with an error.
func (d *Decoder) fail(s *slot, err error) {
	d.finish(s, engine.Result{Reason: engine.Failed, Err: err})
}

// finish sends the last event of a slot's request and frees the slot. What the
// sequence holds stays in the prefix index.
func (d *Decoder) finish(s *slot, r engine.Result) {
	if r.Reason == engine.StopEOS || r.Reason == engine.StopLimit {
		// Text that was held back: it turned out not to begin a stop string.
		text, word := s.stopper.push(s.detok.Flush())
		r.Text = text
		if word != "" {
			r.Reason, r.StoppingWord = engine.StopWord, word
		} else {
			r.Text += s.stopper.flush()
		}
	}
	r.Slot, r.Seed, r.Timings, r.Recompute = s.id, s.sampler.Seed(), s.timings(), s.match.Why()
	s.last = s.last[:0]
	if r.Reason != engine.Failed {
		d.index.Insert(s.seq)
		s.last = append(s.last, s.seq.Tokens()...)
	}
	d.finished(s, &r)
	s.out.Send(engine.Event{Kind: engine.Done, At: time.Now(), Result: &r})
	s.clear()
}
