package engine

import "fmt"

// Check refuses what could never run on an engine described by i; the error is a *Error.
func (i *Info) Check(r *Request) error {
	bad := func(param, format string, args ...any) error {
		return &Error{Code: CodeBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
	}
	if len(r.Prompt) == 0 {
		return bad("prompt", "the prompt is empty: at least one token is needed")
	}
	if len(r.Prompt) >= i.CtxSlot {
		return TooLong(len(r.Prompt), i.CtxSlot)
	}
	for n, t := range r.Prompt {
		if t < 0 || int(t) >= i.VocabSize {
			return bad("prompt", "prompt token %d is %d, expected 0 to %d", n, t, i.VocabSize-1)
		}
	}
	if r.Slot >= i.Slots {
		return bad("id_slot", "slot %d does not exist: there are %d", r.Slot, i.Slots)
	}
	for _, b := range r.Sampling.LogitBias {
		if b.Token < 0 || int(b.Token) >= i.VocabSize {
			return bad("logit_bias", "logit_bias names token %d, expected 0 to %d", b.Token, i.VocabSize-1)
		}
	}
	for _, w := range r.Stop {
		if w == "" {
			return bad("stop", "a stop string is empty")
		}
	}
	return nil
}
