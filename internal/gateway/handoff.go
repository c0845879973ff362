package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"baton/internal/engine"
)

// HandoffOptions configure a Handoff.
type HandoffOptions struct {
	Actions   Actions
	Provider  string // the name that it registers under; empty: there is only one
	MinTokens int    // shorter prompts, and those with fewer new tokens, are local
	// Restart, if set, ends and restarts the provider's process. It is called with the
	// reason when that hangs; the decoder then has what was filled before.
	Restart func(why string)
	// Stall is how long a provider may be silent before it is taken to hang; default 20 s,
	// less than the decoder's own patience.
	Stall time.Duration
	// Files, if set, is the way for prompts when the decoder cannot share its memory.
	Files  *StateFiles
	Logger *slog.Logger // default: discards
}

// Handoff brings the cells of long prompts into the decoder's slots by a provider.
type Handoff struct {
	opt    HandoffOptions
	line   line
	counts *counts
}

// NewHandoff returns a Handoff.
func NewHandoff(opt HandoffOptions) *Handoff {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Stall == 0 {
		opt.Stall = 20 * time.Second
	}
	return &Handoff{opt: opt, counts: newCounts()}
}

// Codes of refusals that the gateway acts upon; the table is the decoder's.
const (
	codeSlotBusy = "slot_busy"
	codeExpired  = "share_expired"
	codeGone     = "provider_unreachable"
	codeShort    = "short_fill"

	codeSharingOff  = "sharing_off"
	codeUnshareable = "model_not_shareable"
)

// hangs is the time after which a provider that did not take a prompt is not just away.
const hangs = 2 * time.Second

// perform brings as many of the prompt's cells as it can into the slot of r, which the
// caller holds. What it cannot bring the decoder computes: there is no error, but missed
// is the code of what went wrong. progress is told how many cells were cached, and how
// many there are by now.
func (h *Handoff) perform(ctx context.Context, r *engine.Request, progress func(cached, filled int)) (out engine.Handoff, missed string) {
	local := engine.Handoff{Route: engine.RouteLocal}
	if !r.CachePrompt || len(r.Prompt)-1 < h.opt.MinTokens {
		h.counts.result(engine.RouteLocal, resultChosen)
		return local, ""
	}
	turn, ok := h.line.join(r.Prompt, h.opt.MinTokens)
	if !ok {
		h.counts.result(engine.RouteLocal, resultBusy)
		return local, ""
	}
	defer h.line.leave(turn)
	if turn.wait(ctx) != nil {
		return local, ""
	}
	out, missed, err := h.shared(ctx, r, progress)
	switch {
	case ctx.Err() != nil: // nobody is left to have it; not worth a line
		h.counts.result(h.route(), resultCancelled)
	case err != nil:
		h.fellBack(r, err)
		missed = codeOf(err)
	}
	return out, missed
}

// shared is the route by descriptors.
func (h *Handoff) shared(ctx context.Context, r *engine.Request, progress func(cached, filled int)) (out engine.Handoff, missed string, _ error) {
	out = engine.Handoff{Route: engine.RouteLocal}
	start := time.Now()
	share, err := h.share(ctx, r)
	if err != nil {
		switch code := codeOf(err); {
		case h.opt.Files != nil && (code == codeSharingOff || code == codeUnshareable):
			if out, err = h.filed(ctx, r); err == nil {
				h.done(r, &Share{Provider: h.opt.Provider}, nil, out)
			}
		case code == codeGone && time.Since(start) > hangs:
			h.restart("it did not take a prompt")
		}
		return out, "", err
	}
	if share.Route == string(engine.RouteLocal) {
		h.counts.result(engine.RouteLocal, resultChosen)
		return out, "", nil
	}
	begun := time.Now()
	end, err := h.await(ctx, r.Slot, share, progress)
	if err != nil {
		if ctx.Err() != nil {
			h.release(r.Slot, share)
		}
		return out, "", err
	}
	filled := time.Now()
	adopted, err := h.opt.Actions.Adopt(ctx, r.Slot, share, r.Prompt)
	if err != nil {
		if ctx.Err() != nil {
			h.release(r.Slot, share)
		}
		return out, "", err
	}
	if adopted.Cells == 0 {
		why := end.Stopped
		if why == "" {
			why = "the provider filled no cell"
		}
		return out, "", &Refused{Action: "adopt", Code: codeShort, Reason: why}
	}
	done := time.Now()
	out = engine.Handoff{
		Route: engine.RouteShared, Trust: adopted.Trust, Cells: adopted.Cells, Prefill: filled.Sub(begun),
		Took: begun.Sub(start) + done.Sub(filled), BytesCopied: adopted.BytesCopied,
	}
	h.counts.phase("share", begun.Sub(start))
	h.counts.phase("prefill", out.Prefill)
	h.counts.phase("adopt", done.Sub(filled))
	return out, h.done(r, share, end, out), nil
}

// pollEvery is how often a provider's progress is looked at.
const pollEvery = 200 * time.Millisecond

// await waits until the provider has let go. One that hangs is ended: it has let go then.
func (h *Handoff) await(ctx context.Context, slot int, share *Share, progress func(cached, filled int)) (*Progress, error) {
	filled, moved, ended := share.Pos0, time.Now(), false
	for {
		p, err := h.opt.Actions.Wait(ctx, slot, share, min(pollEvery, h.opt.Stall))
		if err != nil || p.Done {
			return p, err
		}
		if p.Filled != filled {
			filled, moved = p.Filled, time.Now()
			progress(share.Pos0, filled)
		}
		if silent := time.Since(moved); silent >= h.opt.Stall && !ended {
			ended = true
			h.restart("it has filled nothing for " + silent.Round(time.Millisecond).String())
		}
	}
}

// route is the one that is not local.
func (h *Handoff) route() engine.Route {
	if h.opt.Files != nil {
		return engine.RouteFile
	}
	return engine.RouteShared
}

func (h *Handoff) restart(why string) {
	if h.opt.Restart != nil {
		h.opt.Restart(why)
	}
}

// busyLimit is how long a slot may still be busy with a request that was cancelled: the
// decoder notices before its next step.
const busyLimit = 2 * time.Second

// share makes the share.
func (h *Handoff) share(ctx context.Context, r *engine.Request) (share *Share, err error) {
	err = whileBusy(ctx, func() error {
		share, err = h.opt.Actions.Share(ctx, r.Slot, h.opt.Provider, r.Prompt, h.opt.MinTokens)
		return err
	})
	return share, err
}

// whileBusy repeats an action on a slot that is still busy.
func whileBusy(ctx context.Context, act func() error) error {
	for pause := 2 * time.Millisecond; ; pause *= 2 {
		err := act()
		if codeOf(err) != codeSlotBusy || pause > busyLimit/2 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release gives a share back that nobody will adopt.
func (h *Handoff) release(slot int, share *Share) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = h.opt.Actions.Release(ctx, slot, share) // it expires if this fails
}

// done tells of a handoff that brought cells; missed is why not all of them, about which
// end says more.
func (h *Handoff) done(r *engine.Request, share *Share, end *Progress, out engine.Handoff) (missed string) {
	args := []any{"route", string(out.Route), "trust", out.Trust, "provider", share.Provider, "request", r.ID,
		"cached", share.Pos0, "prefill_ms", milliseconds(out.Prefill)}
	result := resultOK
	if lack := len(r.Prompt) - 1 - share.Pos0 - out.Cells; lack > 0 {
		result, missed = resultPartial, codeShort
		why := end.Stopped
		if why == "" {
			why = "the provider filled fewer cells"
		}
		args = append(args, "missing", lack, "reason", why)
	}
	h.counts.result(out.Route, result)
	h.counts.copied(out.BytesCopied)
	h.opt.Logger.Info(fmt.Sprintf("handoff: %d cells, %.2f ms, %d bytes copied", out.Cells, milliseconds(out.Took), out.BytesCopied), args...)
	return missed
}

// fellBack tells of a handoff that brought nothing.
func (h *Handoff) fellBack(r *engine.Request, err error) {
	code := codeOf(err)
	h.counts.result(h.route(), resultFailed)
	h.counts.refusal(code)
	h.opt.Logger.Warn("handoff: none, the decoder processes the prompt itself", "route", string(engine.RouteLocal),
		"provider", h.opt.Provider, "request", r.ID, "tokens", len(r.Prompt), "code", code, "reason", err.Error())
	if code == codeExpired {
		h.restart("it let a share expire")
	}
}

// codeOf is the code of a refusal, "" for no error.
func codeOf(err error) string {
	var r *Refused
	switch {
	case err == nil:
		return ""
	case errors.As(err, &r):
		return r.Code
	}
	return "other"
}

// milliseconds is d to a hundredth, for people.
func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(10*time.Microsecond)) / 100
}
