package api

import "baton/internal/engine"

// openAI is what both OpenAI encoders share.
type openAI struct {
	req   *Request
	reply Reply
}

// Terminator implements Encoder: OpenAI's streams end with [DONE].
func (o *openAI) Terminator() string { return "[DONE]" }

// chunk is a response or a chunk of a stream; C is the shape of its choices.
type chunk[C any] struct {
	ID          string    `json:"id"`
	Object      string    `json:"object"`
	Created     int64     `json:"created"`
	Model       string    `json:"model"`
	Fingerprint string    `json:"system_fingerprint"`
	Choices     []C       `json:"choices"`
	Usage       *Usage    `json:"usage,omitempty"`
	Timings     *Timings  `json:"timings,omitempty"`
	Progress    *Progress `json:"prompt_progress,omitempty"`
}

func newChunk[C any](r *Reply, object string, choices ...C) *chunk[C] {
	if choices == nil {
		choices = []C{}
	}
	return &chunk[C]{
		ID: r.ID, Object: object, Created: r.Created, Model: r.Model,
		Fingerprint: r.Fingerprint, Choices: choices,
	}
}

// timingsFor are the timings of a finished choice. They stand beside the choices when there
// is one, as in llama-server, else in each of them.
func timingsFor(c *Choice) *Timings { return timingsOf(c.Result.Timings, c.Result.Recompute) }

// usageChunk is the last chunk of a stream that was asked for the usage: its choices are
// empty, and no other chunk carries a usage.
func usageChunk[C any](o *openAI, object string, all []*Choice) []any {
	if !o.req.IncludeUsage {
		return nil
	}
	c := newChunk[C](&o.reply, object)
	c.Usage = usageOf(all)
	if len(all) == 1 {
		c.Timings = timingsFor(all[0])
	}
	return []any{c}
}

// eventTimings fills in what llama-server adds to chunks on request.
func eventTimings(ev engine.Event) *Timings {
	if ev.Kind != engine.Token || ev.Timings == nil {
		return nil
	}
	return timingsOf(*ev.Timings, "")
}

// chatEncoder writes chat.completion and chat.completion.chunk objects.
type chatEncoder struct{ openAI }

type chatMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      chatMessage   `json:"message"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
	Timings      *Timings      `json:"timings,omitempty"`
}

type chatLogprobs struct {
	Content []Logprob  `json:"content"`
	Refusal *[]Logprob `json:"refusal"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatDeltaChoice struct {
	Index        int           `json:"index"`
	Delta        chatDelta     `json:"delta"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

const chatChunkObject = "chat.completion.chunk"

func (e *chatEncoder) chunk(c chatDeltaChoice) *chunk[chatDeltaChoice] {
	return newChunk(&e.reply, chatChunkObject, c)
}

// Start opens the assistant's message.
func (e *chatEncoder) Start(c *Choice) []any {
	empty := ""
	return []any{e.chunk(chatDeltaChoice{Index: c.Index, Delta: chatDelta{Role: "assistant", Content: &empty}})}
}

// Event implements Encoder.
func (e *chatEncoder) Event(c *Choice, ev engine.Event) []any {
	switch ev.Kind {
	case engine.Progress:
		out := e.chunk(chatDeltaChoice{Index: c.Index})
		out.Progress = progressOf(ev)
		return []any{out}
	case engine.Token:
		if ev.Text == "" && e.req.Generate.Logprobs < 0 {
			return nil
		}
		choice := chatDeltaChoice{Index: c.Index, Delta: chatDelta{Content: &ev.Text}}
		if e.req.Generate.Logprobs >= 0 {
			choice.Logprobs = &chatLogprobs{Content: []Logprob{e.reply.logprob(ev)}}
		}
		out := e.chunk(choice)
		out.Timings = eventTimings(ev)
		return []any{out}
	}
	var list []any
	if ev.Result.Text != "" {
		list = append(list, e.chunk(chatDeltaChoice{Index: c.Index, Delta: chatDelta{Content: &ev.Result.Text}}))
	}
	reason := finishReason(ev.Result.Reason)
	last := e.chunk(chatDeltaChoice{Index: c.Index, FinishReason: &reason})
	if !e.req.IncludeUsage || e.req.N > 1 {
		last.Timings = timingsFor(c)
	}
	return append(list, last)
}

// End implements Encoder.
func (e *chatEncoder) End(all []*Choice) []any {
	return usageChunk[chatDeltaChoice](&e.openAI, chatChunkObject, all)
}

// Whole implements Encoder.
func (e *chatEncoder) Whole(all []*Choice) any {
	choices := make([]chatChoice, len(all))
	for i, c := range all {
		choices[i] = chatChoice{
			Index: c.Index, Message: chatMessage{Role: "assistant", Content: c.Text.String()},
			FinishReason: finishReason(c.Result.Reason),
		}
		if e.req.Generate.Logprobs >= 0 {
			choices[i].Logprobs = &chatLogprobs{Content: e.reply.logprobs(c.Tokens)}
		}
		if len(all) > 1 {
			choices[i].Timings = timingsFor(c)
		}
	}
	out := newChunk(&e.reply, "chat.completion", choices...)
	out.Usage = usageOf(all)
	if len(all) == 1 {
		out.Timings = timingsFor(all[0])
	}
	return out
}

// completionEncoder writes text_completion objects; OpenAI uses the same name for whole
// answers and chunks.
type completionEncoder struct{ openAI }

type textChoice struct {
	Index        int           `json:"index"`
	Text         string        `json:"text"`
	Logprobs     *textLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	Timings      *Timings      `json:"timings,omitempty"`
}

// textLogprobs is the completions' own form of probabilities: parallel arrays. Offsets
// count characters of the choice's text. Content holds the same as in a chat, as
// llama-server reports it.
type textLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float32            `json:"token_logprobs"`
	TopLogprobs   []map[string]float32 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
	Content       []Logprob            `json:"content"`
}

const textObject = "text_completion"

// logprobs describes events, which follow those described before.
func (e *completionEncoder) logprobs(c *Choice, events []engine.Event) *textLogprobs {
	if e.req.Generate.Logprobs < 0 {
		return nil
	}
	out := &textLogprobs{
		Tokens: []string{}, TokenLogprobs: []float32{}, TopLogprobs: []map[string]float32{}, TextOffset: []int{},
		Content: e.reply.logprobs(events),
	}
	for i, p := range out.Content {
		top := make(map[string]float32, len(*p.TopLogprobs))
		for _, t := range *p.TopLogprobs {
			if _, ok := top[t.Token]; !ok { // two tokens may look the same: keep the better
				top[t.Token] = t.Logprob
			}
		}
		out.Tokens = append(out.Tokens, p.Token)
		out.TokenLogprobs = append(out.TokenLogprobs, p.Logprob)
		out.TopLogprobs = append(out.TopLogprobs, top)
		out.TextOffset = append(out.TextOffset, c.start)
		c.start += runes(e.reply.Tokenizer.Piece(events[i].Token))
	}
	return out
}

// Start implements Encoder: a completion has no opening.
func (e *completionEncoder) Start(*Choice) []any { return nil }

// Event implements Encoder.
func (e *completionEncoder) Event(c *Choice, ev engine.Event) []any {
	choice := textChoice{Index: c.Index}
	switch ev.Kind {
	case engine.Progress:
		out := newChunk(&e.reply, textObject, choice)
		out.Progress = progressOf(ev)
		return []any{out}
	case engine.Token:
		if ev.Text == "" && e.req.Generate.Logprobs < 0 {
			return nil
		}
		choice.Text, choice.Logprobs = ev.Text, e.logprobs(c, []engine.Event{ev})
		out := newChunk(&e.reply, textObject, choice)
		out.Timings = eventTimings(ev)
		return []any{out}
	}
	reason := finishReason(ev.Result.Reason)
	choice.Text, choice.FinishReason = ev.Result.Text, &reason
	out := newChunk(&e.reply, textObject, choice)
	if !e.req.IncludeUsage || len(e.req.Prompts)*e.req.N > 1 {
		out.Timings = timingsFor(c)
	}
	return []any{out}
}

// End implements Encoder.
func (e *completionEncoder) End(all []*Choice) []any {
	return usageChunk[textChoice](&e.openAI, textObject, all)
}

// Whole implements Encoder.
func (e *completionEncoder) Whole(all []*Choice) any {
	choices := make([]textChoice, len(all))
	for i, c := range all {
		reason := finishReason(c.Result.Reason)
		choices[i] = textChoice{Index: c.Index, Text: c.Text.String(), FinishReason: &reason, Logprobs: e.logprobs(c, c.Tokens)}
		if len(all) > 1 {
			choices[i].Timings = timingsFor(c)
		}
	}
	out := newChunk(&e.reply, textObject, choices...)
	out.Usage = usageOf(all)
	if len(all) == 1 {
		out.Timings = timingsFor(all[0])
	}
	return out
}
