// Package servertest helps to test HTTP servers of the API: an engine, a tokenizer and a
// template that need no model, and a table of hostile requests for any server.
//
// It is no part of the server and computes no text of its own.
package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"baton/internal/api"
	"baton/internal/engine"
)

// Ids of the special tokens of Tokenizer; the ids below are bytes.
const (
	BOS   = 256
	EOS   = 257
	Start = 258 // <|im_start|>
	End   = 259 // <|im_end|>
	Vocab = 260
)

var special = map[int32]string{BOS: "<s>", EOS: "</s>", Start: "<|im_start|>", End: "<|im_end|>"}

// Tokenizer has a token for each byte and four special ones.
type Tokenizer struct{ AddBOS bool }

// Encode implements api.Tokenizer.
func (t Tokenizer) Encode(text string, addSpecial, parseSpecial bool) []int32 {
	return t.EncodeParts([]api.Part{{Text: text, Special: parseSpecial}}, addSpecial)
}

// EncodeParts implements api.Tokenizer.
func (t Tokenizer) EncodeParts(parts []api.Part, addSpecial bool) []int32 {
	var ids []int32
	if addSpecial && t.AddBOS {
		ids = append(ids, BOS)
	}
	for _, p := range parts {
	next:
		for i := 0; i < len(p.Text); {
			for id := int32(BOS); p.Special && id < Vocab; id++ {
				if strings.HasPrefix(p.Text[i:], special[id]) {
					ids = append(ids, id)
					i += len(special[id])
					continue next
				}
			}
			ids = append(ids, int32(p.Text[i]))
			i++
		}
	}
	return ids
}

// Piece implements api.Tokenizer.
func (Tokenizer) Piece(id int32) []byte {
	if s, ok := special[id]; ok {
		return []byte(s)
	}
	return []byte{byte(id)}
}

// Decode implements api.Tokenizer.
func (t Tokenizer) Decode(ids []int32) []byte {
	var out []byte
	for _, id := range ids {
		out = append(out, t.Piece(id)...)
	}
	return out
}

// BOS implements api.Tokenizer.
func (t Tokenizer) BOS() (int32, bool) { return BOS, t.AddBOS }

// Template is ChatML. It refuses a conversation that starts with an assistant's message,
// and shows the variables that it was given.
type Template struct{}

// Source implements server.Templater.
func (Template) Source() string { return "chatml" }

// Render implements server.Templater.
func (Template) Render(messages, kwargs json.RawMessage, addGenerationPrompt bool) ([]api.Part, error) {
	var list []struct {
		Role    string
		Content any
	}
	if err := json.Unmarshal(messages, &list); err != nil {
		return nil, err
	}
	if list[0].Role == "assistant" {
		return nil, errors.New("conversation roles must start with a user")
	}
	var out []api.Part
	for _, m := range list {
		text, _ := m.Content.(string)
		if parts, ok := m.Content.([]any); ok {
			for _, p := range parts {
				text += p.(map[string]any)["text"].(string)
			}
		}
		out = append(out, api.Part{Text: "<|im_start|>" + m.Role + "\n", Special: true}, api.Part{Text: text},
			api.Part{Text: "<|im_end|>\n", Special: true})
	}
	if kwargs != nil {
		out = append(out, api.Part{Text: string(kwargs)})
	}
	if addGenerationPrompt {
		out = append(out, api.Part{Text: "<|im_start|>assistant\n", Special: true})
	}
	return out, nil
}

// Engine generates the bytes of Reply, one a token, and then ends; with ignore_eos it
// starts over. Set its fields before use.
type Engine struct {
	Reply   string
	Slots   int           // default 2
	Ctx     int           // positions of a slot; default 512
	Delay   time.Duration // before each token
	Prefill chan struct{} // if not nil, prompts are processed once it is closed
	Err     error         // what Generate returns
	FailAt  int           // > 0: the generation fails after so many tokens
	PanicAt int           // > 0: Recv panics after so many tokens
	Name    string        // of the model; default "fake"

	mu      sync.Mutex
	slots   chan int
	states  []engine.SlotState
	waiting int
	stats   engine.Stats
	cached  []int32
	Seen    []engine.Request // requests, in order of arrival; read it when none runs
	once    sync.Once
}

func (e *Engine) init() {
	e.once.Do(func() {
		if e.Slots == 0 {
			e.Slots = 2
		}
		if e.Ctx == 0 {
			e.Ctx = 512
		}
		if e.Name == "" {
			e.Name = "fake"
		}
		e.slots = make(chan int, e.Slots)
		for i := range e.Slots {
			e.slots <- i
			e.states = append(e.states, engine.SlotState{ID: i, NCtx: e.Ctx, Remaining: -1, Sampling: engine.DefaultSampling()})
		}
		e.stats.LastStep = time.Now()
	})
}

// Info implements engine.Engine.
func (e *Engine) Info() engine.Info {
	e.init()
	return engine.Info{
		Name: e.Name, Arch: "fake", Quant: "F32", Params: 1000, ModelBytes: 4000, VocabSize: Vocab,
		CtxTrain: 4096, CtxSlot: e.Ctx, Slots: e.Slots, Embd: 8, Layers: 1, Kernels: "none", Threads: 1, KVBytes: 1 << 20, KVPerToken: 64,
	}
}

// Stats implements engine.Engine.
func (e *Engine) Stats() engine.Stats {
	e.init()
	e.mu.Lock()
	defer e.mu.Unlock()
	st := e.stats
	st.Slots, st.Waiting, st.KVTotalBlocks = slices.Clone(e.states), e.waiting, 16
	for _, s := range st.Slots {
		if s.Busy {
			st.Running++
			st.KVUsedBlocks++
		}
	}
	return st
}

// Generate implements engine.Engine.
func (e *Engine) Generate(ctx context.Context, r *engine.Request) (engine.Stream, error) {
	e.init()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Seen = append(e.Seen, *r)
	if e.Err != nil {
		return nil, e.Err
	}
	if len(r.Prompt) >= e.Ctx {
		return nil, engine.TooLong(len(r.Prompt), e.Ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{e: e, r: *r, ctx: ctx, cancel: cancel, slot: -1}
	e.waiting++
	// The request leaves its slot when its context ends, read or not, as in a real engine.
	context.AfterFunc(ctx, s.leave)
	return s, nil
}

// stream computes events when they are asked for.
type stream struct {
	e      *Engine
	r      engine.Request
	ctx    context.Context
	cancel context.CancelFunc
	slot   int // -1: waiting, -2: left
	n      int // tokens so far
	text   string
	sent   int // bytes of text delivered
	cacheN int
	done   bool
}

// leave gives the slot back, once.
func (s *stream) leave() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	switch {
	case s.slot == -1:
		s.e.waiting--
	case s.slot >= 0:
		st := &s.e.states[s.slot]
		st.Busy, st.RequestID = false, ""
		s.e.slots <- s.slot
	}
	s.slot = -2
}

// Cancel implements engine.Stream.
func (s *stream) Cancel() { s.cancel() }

// Recv implements engine.Stream.
func (s *stream) Recv(ctx context.Context) (engine.Event, error) {
	if s.done {
		return engine.Event{}, io.EOF
	}
	if s.n == 0 && s.text == "" && s.slotOf() == -1 {
		if ev, ok, err := s.begin(ctx); err != nil || ok {
			return ev, err
		}
	}
	return s.token(ctx)
}

func (s *stream) slotOf() int {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.slot
}

// begin waits for a slot and the prompt; ok says that it returns a Progress event.
func (s *stream) begin(ctx context.Context) (ev engine.Event, ok bool, err error) {
	select {
	case id := <-s.e.slots:
		s.e.mu.Lock()
		defer s.e.mu.Unlock()
		if s.slot == -2 {
			s.e.slots <- id
			return ev, false, s.ctx.Err()
		}
		s.e.waiting--
		s.slot = id
		st := &s.e.states[id]
		*st = engine.SlotState{ID: id, Busy: true, RequestID: s.r.ID, NCtx: s.e.Ctx, NPrompt: len(s.r.Prompt), Remaining: s.r.MaxTokens, Sampling: s.r.Sampling}
		if s.r.CachePrompt && slices.Equal(s.e.cached, s.r.Prompt) {
			s.cacheN = len(s.r.Prompt) - 1
		}
		s.e.cached = s.r.Prompt
		s.e.stats.CachedTokens += uint64(s.cacheN)
		s.e.stats.PromptTokens += uint64(len(s.r.Prompt) - s.cacheN)
	case <-ctx.Done():
		return ev, false, ctx.Err()
	case <-s.ctx.Done():
		return ev, false, s.ctx.Err()
	}
	if !s.r.Progress {
		return ev, false, nil
	}
	return engine.Event{Kind: engine.Progress, At: time.Now(), Prompt: s.cacheN, PromptOf: len(s.r.Prompt), Timings: s.timings()}, true, nil
}

// timings makes up numbers that tests can predict: a prompt token takes 2 ms, a generated
// one 4.
func (s *stream) timings() *engine.Timings {
	n := len(s.r.Prompt) - s.cacheN
	return &engine.Timings{
		Queue: time.Millisecond, CacheN: s.cacheN, PromptN: n, Prompt: time.Duration(n) * 2 * time.Millisecond,
		PredictedN: s.n, Predicted: time.Duration(max(s.n-1, 0)) * 4 * time.Millisecond,
	}
}

func (s *stream) token(ctx context.Context) (engine.Event, error) {
	if s.e.Prefill != nil {
		select {
		case <-s.e.Prefill:
		case <-ctx.Done():
			return engine.Event{}, ctx.Err()
		}
	}
	if s.e.Delay > 0 {
		select {
		case <-time.After(s.e.Delay):
		case <-ctx.Done():
			return engine.Event{}, ctx.Err()
		}
	}
	if err := s.ctx.Err(); err != nil {
		return engine.Event{}, err
	}
	switch {
	case s.e.PanicAt > 0 && s.n == s.e.PanicAt:
		panic("servertest: asked to")
	case s.e.FailAt > 0 && s.n == s.e.FailAt:
		return s.finish(engine.Result{Reason: engine.Failed, Err: errors.New("the step loop broke")})
	case s.r.MaxTokens >= 0 && s.n >= s.r.MaxTokens:
		return s.finish(engine.Result{Reason: engine.StopLimit})
	case len(s.r.Prompt)+s.n >= s.e.Ctx:
		return s.finish(engine.Result{Reason: engine.StopLimit, ContextFull: true})
	case s.n >= len(s.e.Reply) && !s.r.IgnoreEOS:
		return s.finish(engine.Result{Reason: engine.StopEOS})
	}
	c := s.e.Reply[s.n%len(s.e.Reply)]
	s.n++
	s.text += string([]byte{c})
	ev := engine.Event{Kind: engine.Token, At: time.Now(), Token: int32(c)}
	for _, word := range s.r.Stop {
		if strings.HasSuffix(s.text, word) {
			s.text = strings.TrimSuffix(s.text, word)
			return s.finish(engine.Result{Reason: engine.StopWord, StoppingWord: word})
		}
	}
	if end := s.whole(); end > s.sent {
		ev.Text, s.sent = s.text[s.sent:end], end
	}
	if s.r.Logprobs >= 0 {
		ev.Logprob = engine.TokenLogprob{Token: ev.Token, Logprob: -0.5}
		for i := range s.r.Logprobs {
			ev.Top = append(ev.Top, engine.TokenLogprob{Token: ev.Token + int32(i), Logprob: -0.5 - float32(i)})
		}
	}
	if s.r.Timings {
		ev.Timings = s.timings()
	}
	s.count()
	return ev, nil
}

// whole returns how much of the text may be delivered: whole characters that begin no stop
// string.
func (s *stream) whole() int {
	end := len(s.text)
	for _, word := range s.r.Stop {
		for n := min(len(word)-1, len(s.text)); n > 0; n-- {
			if strings.HasSuffix(s.text, word[:n]) {
				end = min(end, len(s.text)-n)
				break
			}
		}
	}
	for end > s.sent && !utf8.ValidString(s.text[s.sent:end]) {
		end--
	}
	return end
}

func (s *stream) count() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.stats.GenTokens++
	s.e.stats.Steps++
	s.e.stats.LastStep = time.Now()
	if s.slot >= 0 {
		s.e.states[s.slot].NDecoded = s.n
	}
}

func (s *stream) finish(r engine.Result) (engine.Event, error) {
	s.done = true
	r.Slot, r.Seed, r.Timings = max(s.slotOf(), 0), uint64(max(s.r.Sampling.Seed, 7)), *s.timings()
	if s.sent < len(s.text) {
		r.Text = s.text[s.sent:]
	}
	s.cancel()
	return engine.Event{Kind: engine.Done, At: time.Now(), Result: &r}, nil
}
