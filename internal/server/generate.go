package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"baton/internal/api"
	"baton/internal/engine"
)

// Reasons that a generation is cancelled for, besides the client's leaving.
var errSlowReader = errors.New("the client does not read")

// generation handles the endpoints that generate; parse reads their dialect.
func generation(parse func([]byte, api.Limits) (*api.Request, *api.Error)) handler {
	return func(s *Server, b *backend, w *response, r *http.Request) *api.Error {
		arrived := time.Now()
		body, err := s.readBody(w, r)
		if err != nil {
			return err
		}
		req, err := parse(body, b.limits)
		if err != nil {
			return err
		}
		prompts, err := b.prompts(req)
		if err != nil {
			return err
		}
		if !s.work.enter() {
			return s.checkState(b)
		}
		defer s.work.leave()
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()

		g := &job{s: s, b: b, req: req, ctx: ctx, cancel: cancel, arrived: arrived}
		defer g.wait()
		return g.run(w, r, prompts)
	}
}

// prompts returns the token ids of each prompt of req.
func (b *backend) prompts(req *api.Request) ([][]int32, *api.Error) {
	if req.Messages != nil {
		parts, err := b.render(req.Messages)
		if err != nil {
			return nil, err
		}
		ids := b.Tokenizer.EncodeParts(parts, true)
		// Many templates write the BOS that the vocabulary adds as well.
		if bos, ok := b.Tokenizer.BOS(); ok && len(ids) > 1 && ids[0] == bos && ids[1] == bos {
			ids = ids[1:]
		}
		if len(ids) == 0 {
			return nil, api.EmptyPrompt("messages")
		}
		return [][]int32{ids}, nil
	}
	out := make([][]int32, len(req.Prompts))
	for i := range req.Prompts {
		if out[i] = req.Prompts[i].Encode(b.Tokenizer); len(out[i]) == 0 {
			return nil, api.EmptyPrompt("prompt")
		}
	}
	return out, nil
}

// job is one request while it generates: the choices of its prompts run at the same time.
type job struct {
	s       *Server
	b       *backend
	req     *api.Request
	ctx     context.Context
	cancel  context.CancelCauseFunc
	arrived time.Time
	enc     api.Encoder
	choices []*api.Choice
	last    []time.Time // of each choice's last token
	events  chan choiceEvent
	readers sync.WaitGroup
}

// choiceEvent is what the stream of a choice delivers.
type choiceEvent struct {
	choice int
	ev     engine.Event
	err    error
}

// run starts the generations and answers as a stream or as a whole.
func (g *job) run(w *response, r *http.Request, prompts [][]int32) *api.Error {
	prefix := "chatcmpl-"
	if g.req.Dialect != api.Chat {
		prefix = "cmpl-"
	}
	id := prefix + randomHex(12)
	g.enc = api.NewEncoder(g.req, api.Reply{
		ID: id, Created: g.arrived.Unix(), Model: g.b.names[0], Fingerprint: g.s.cfg.Version,
		Tokenizer: g.b.Tokenizer, CtxSlot: g.b.info.CtxSlot,
	})
	streams, err := g.start(id, prompts)
	if err != nil {
		return err
	}
	g.read(streams)
	defer func() {
		n := 0
		for _, c := range g.choices {
			n += c.N
		}
		g.s.cfg.Logger.Info("generated", "id", r.Context().Value(idKey{}), "completion", id, "choices", len(g.choices),
			"prompt_tokens", len(g.choices[0].Prompt), "cached", g.choices[0].Result.Timings.CacheN, "tokens", n,
			"reason", g.choices[0].Result.Reason, "recompute", g.choices[0].Result.Recompute,
			"ms", time.Since(g.arrived).Milliseconds())
	}()
	if g.req.Stream {
		return g.stream(w)
	}
	return g.whole(w)
}

// start queues a generation for each choice of each prompt. With a given seed the choices
// of a prompt use seed, seed+1, ..., so that they differ and can be repeated.
func (g *job) start(id string, prompts [][]int32) ([]engine.Stream, *api.Error) {
	var streams []engine.Stream
	for _, prompt := range prompts {
		for n := range g.req.N {
			i := len(streams)
			er := g.req.Generate
			er.ID, er.Prompt = id, prompt
			if i > 0 {
				er.ID += "-" + strconv.Itoa(i)
			}
			if er.Sampling.Seed >= 0 {
				er.Sampling.Seed = (er.Sampling.Seed + int64(n)) & (1<<63 - 1)
			}
			st, err := g.b.Engine.Generate(g.ctx, &er)
			if err != nil {
				e := api.FromEngine(err)
				if e.Param == "prompt" && g.req.Dialect == api.Chat {
					e.Param = "messages"
				}
				if cause := g.ended(); cause != nil {
					e = cause
				}
				return nil, e
			}
			streams = append(streams, st)
			g.choices = append(g.choices, api.NewChoice(g.req, i, prompt))
		}
	}
	g.last = make([]time.Time, len(streams))
	return streams, nil
}

// read starts a reader for each stream. What they deliver meets in g.events, unbuffered:
// what nobody takes stays in the engine, which bounds it by the tokens asked for.
func (g *job) read(streams []engine.Stream) {
	g.events = make(chan choiceEvent)
	for i, st := range streams {
		g.readers.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					g.s.metrics.panics.Inc()
					g.s.cfg.Logger.Error("panic in a stream", "panic", fmt.Sprint(v))
					g.deliver(choiceEvent{choice: i, err: errors.New("internal error: panic in a stream")})
				}
			}()
			for {
				ev, err := st.Recv(g.ctx)
				if errors.Is(err, io.EOF) || !g.deliver(choiceEvent{i, ev, err}) || err != nil || ev.Kind == engine.Done {
					return
				}
			}
		})
	}
}

func (g *job) deliver(ev choiceEvent) bool {
	select {
	case g.events <- ev:
		return true
	case <-g.ctx.Done():
		return false
	}
}

// wait ends what is still running and returns when the readers are gone.
func (g *job) wait() {
	g.cancel(nil)
	g.readers.Wait()
}

// each calls f for every event until all choices are done, and idle when nothing came for
// ping. It returns why it stopped early.
func (g *job) each(ping time.Duration, f func(c *api.Choice, ev engine.Event) error, idle func() error) *api.Error {
	var tick <-chan time.Time
	var timer *time.Timer
	if ping > 0 {
		timer = time.NewTimer(ping)
		defer timer.Stop()
		tick = timer.C
	}
	for left := len(g.choices); left > 0; {
		var err error
		select {
		case ce := <-g.events:
			if ce.err != nil {
				return g.failed(ce.err)
			}
			c := g.choices[ce.choice]
			c.Add(ce.ev)
			if ce.ev.Kind == engine.Done {
				left--
				switch ce.ev.Result.Reason {
				case engine.Failed:
					return g.failed(ce.ev.Result.Err)
				case engine.Cancelled:
					return g.failed(context.Canceled)
				}
			}
			g.observe(ce.choice, ce.ev)
			err = f(c, ce.ev)
		case <-tick:
			err = idle()
		case <-g.ctx.Done():
			return g.failed(g.ctx.Err())
		}
		if err != nil { // a write failed: the client is gone or does not read
			g.cancel(errSlowReader)
			return g.failed(err)
		}
		if timer != nil {
			timer.Reset(ping)
		}
	}
	return nil
}

// failed is the answer when the generation ended without a result.
func (g *job) failed(err error) *api.Error {
	if e := g.ended(); e != nil {
		g.b.series.finished.WithLabelValues("abort").Inc()
		return e
	}
	g.b.series.finished.WithLabelValues("error").Inc()
	if err == nil {
		err = errors.New("the engine gave no reason")
	}
	return api.FromEngine(err)
}

// ended is the answer when the context is over: the server is stopping, or nobody is left
// to read it.
func (g *job) ended() *api.Error {
	if g.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(g.ctx)
	if errors.Is(cause, errStopping) {
		return &api.Error{Status: http.StatusServiceUnavailable, Type: api.TypeUnavailable, Code: "stopping",
			Message: errStopping.Error(), RetryAfter: time.Second}
	}
	// 499 is nginx's status for a client that left; it shows in log and metrics only.
	return &api.Error{Status: 499, Type: api.TypeInvalidRequest, Code: "client_closed", Message: "the client closed the connection"}
}

// whole collects everything and answers once.
func (g *job) whole(w *response) *api.Error {
	keep := func(*api.Choice, engine.Event) error { return nil }
	if err := g.each(0, keep, nil); err != nil {
		return err
	}
	g.s.send(w, http.StatusOK, g.enc.Whole(g.choices))
	return nil
}

// stream answers event by event. After its header only an event can tell of an error.
func (g *job) stream(w *response) *api.Error {
	out, err := openStream(w)
	if err != nil {
		g.cancel(errSlowReader)
		return nil
	}
	for _, c := range g.choices {
		if err := out.values(g.enc.Start(c)); err != nil {
			g.cancel(errSlowReader)
			return nil
		}
	}
	ping := g.s.cfg.KeepAlive
	if g.req.Ping != 0 {
		ping = g.req.Ping
	}
	send := func(c *api.Choice, ev engine.Event) error { return out.values(g.enc.Event(c, ev)) }
	if e := g.each(ping, send, out.ping); e != nil {
		_ = out.fail(e) // an error of this write changes nothing any more
		return nil
	}
	if err := out.values(g.enc.End(g.choices)); err != nil {
		return nil
	}
	if end := g.enc.Terminator(); end != "" {
		_ = out.data(end) // the same
	}
	return nil
}

// observe feeds the metrics. Times are those of the engine's events, so that a slow client
// does not look like a slow engine.
func (g *job) observe(i int, ev engine.Event) {
	m := g.b.series
	switch ev.Kind {
	case engine.Token:
		if g.last[i].IsZero() {
			m.firstToken.Observe(max(ev.At.Sub(g.arrived).Seconds(), 0))
		} else {
			m.token(ev.At.Sub(g.last[i]))
		}
		g.last[i] = ev.At
	case engine.Done:
		m.done(ev.Result, len(g.choices[i].Prompt), time.Since(g.arrived))
	}
}
