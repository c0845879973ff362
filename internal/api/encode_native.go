package api

import (
	"encoding/json"
	"strings"

	"baton/internal/engine"
)

// nativeEncoder writes llama-server's own completion objects.
type nativeEncoder struct {
	req   *Request
	reply Reply
}

// Terminator implements Encoder: the last object says "stop": true, nothing follows it.
func (e *nativeEncoder) Terminator() string { return "" }

// nativePartial is a chunk of a stream.
type nativePartial struct {
	Index           int       `json:"index"`
	Content         string    `json:"content"`
	Tokens          []int32   `json:"tokens"`
	Stop            bool      `json:"stop"`
	TokensPredicted int       `json:"tokens_predicted"`
	TokensEvaluated int       `json:"tokens_evaluated"`
	Timings         *Timings  `json:"timings,omitempty"`
	Progress        *Progress `json:"prompt_progress,omitempty"`
	Probabilities   []Logprob `json:"completion_probabilities,omitempty"`
}

// nativeFinal is a whole answer and the last chunk of a stream.
type nativeFinal struct {
	Index           int                `json:"index"`
	Content         string             `json:"content"`
	Tokens          []int32            `json:"tokens"`
	IDSlot          int                `json:"id_slot"`
	Stop            bool               `json:"stop"`
	Model           string             `json:"model"`
	TokensPredicted int                `json:"tokens_predicted"`
	TokensEvaluated int                `json:"tokens_evaluated"`
	Settings        GenerationSettings `json:"generation_settings"`
	Prompt          string             `json:"prompt"`
	HasNewLine      bool               `json:"has_new_line"`
	Truncated       bool               `json:"truncated"`
	StopType        string             `json:"stop_type"`
	StoppingWord    string             `json:"stopping_word"`
	TokensCached    int                `json:"tokens_cached"`
	Timings         *Timings           `json:"timings"`
	Probabilities   []Logprob          `json:"completion_probabilities,omitempty"`
}

// Start implements Encoder.
func (e *nativeEncoder) Start(*Choice) []any { return nil }

// Event implements Encoder.
func (e *nativeEncoder) Event(c *Choice, ev engine.Event) []any {
	part := &nativePartial{Index: c.Index, Tokens: []int32{}, TokensPredicted: c.N, TokensEvaluated: len(c.Prompt)}
	switch ev.Kind {
	case engine.Progress:
		part.Progress = progressOf(ev)
		return []any{part}
	case engine.Token:
		part.Content, part.Tokens, part.Timings = ev.Text, []int32{ev.Token}, eventTimings(ev)
		if e.req.Generate.Logprobs >= 0 {
			part.Probabilities = []Logprob{e.reply.logprob(ev)}
		}
		return []any{part}
	}
	// What the deltas have said is not repeated in the last object.
	return []any{e.final(c, ev.Result.Text, nil)}
}

// End implements Encoder.
func (e *nativeEncoder) End([]*Choice) []any { return nil }

// Whole implements Encoder: one object, or an array of them for several choices.
func (e *nativeEncoder) Whole(all []*Choice) any {
	out := make([]any, len(all))
	for i, c := range all {
		out[i] = e.final(c, c.Text.String(), c.Tokens)
	}
	if len(out) == 1 {
		return out[0]
	}
	return out
}

func (e *nativeEncoder) final(c *Choice, text string, events []engine.Event) any {
	res := &c.Result
	f := &nativeFinal{
		Index: c.Index, Content: text, Tokens: []int32{}, IDSlot: res.Slot, Stop: true, Model: e.reply.Model,
		TokensPredicted: res.Timings.PredictedN, TokensEvaluated: len(c.Prompt),
		Settings:   Settings(&e.req.Generate, e.reply.CtxSlot, e.reply.Model, e.req.Stream, e.req.TimingsPerToken),
		Prompt:     Detokenize(c.Prompt, e.reply.Tokenizer).Content,
		HasNewLine: strings.Contains(c.Text.String(), "\n"), Truncated: res.ContextFull,
		StopType: string(res.Reason), StoppingWord: res.StoppingWord,
		TokensCached: res.Timings.CacheN, Timings: timingsFor(c),
	}
	f.Settings.Seed = res.Seed
	if e.req.ReturnTokens {
		for _, ev := range events {
			f.Tokens = append(f.Tokens, ev.Token)
		}
	}
	if e.req.Generate.Logprobs >= 0 && !e.req.Stream {
		f.Probabilities = e.reply.logprobs(events)
	}
	if len(e.req.Fields) > 0 {
		return pick(f, e.req.Fields)
	}
	return f
}

// pick returns the fields named by paths, whose parts are separated by slashes; each is
// put at the root under its whole path. Unknown ones are left out.
func pick(v any, paths []string) any {
	b, err := json.Marshal(v)
	if err != nil {
		return v
	}
	out := make(map[string]json.RawMessage, len(paths))
	for _, path := range paths {
		raw, found := json.RawMessage(b), true
		for _, key := range strings.Split(path, "/") {
			var obj map[string]json.RawMessage
			if json.Unmarshal(raw, &obj) != nil {
				found = false
				break
			}
			if raw, found = obj[key]; !found {
				break
			}
		}
		if found {
			out[path] = raw
		}
	}
	return out
}
