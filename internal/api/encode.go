package api

import (
	"strings"
	"unicode/utf8"

	"baton/internal/engine"
)

// Reply is what the answers to one request have in common.
type Reply struct {
	ID          string // chatcmpl-... or cmpl-...
	Created     int64  // seconds since 1970
	Model       string
	Fingerprint string // identifies the build
	Tokenizer   Tokenizer
	CtxSlot     int
}

// Choice collects what one generation produces. Index counts through the choices of all
// prompts, prompt by prompt.
type Choice struct {
	Index  int
	Prompt []int32
	First  bool // the first choice of its prompt: its prompt counts in the usage
	Text   strings.Builder
	Tokens []engine.Event // Token events, kept when their ids or probabilities are reported
	N      int            // tokens generated so far
	Result engine.Result  // valid after the event of kind Done
	start  int            // completions: characters of text before the next token
	keep   bool
}

// NewChoice returns an empty choice of r.
func NewChoice(r *Request, index int, prompt []int32) *Choice {
	return &Choice{
		Index: index, Prompt: prompt, First: index%r.N == 0,
		keep: r.Generate.Logprobs >= 0 || r.ReturnTokens,
	}
}

// Add records an event. The event of kind Done brings the last characters.
func (c *Choice) Add(ev engine.Event) {
	switch ev.Kind {
	case engine.Token:
		c.N++
		c.Text.WriteString(ev.Text)
		if c.keep {
			c.Tokens = append(c.Tokens, ev)
		}
	case engine.Done:
		c.Result = *ev.Result
		c.Text.WriteString(ev.Result.Text)
	}
}

// Encoder makes the JSON values of the answer to one request, in its dialect. A stream
// calls Start once per choice, Event for each event after Choice.Add, End once; each value
// returned is one server-sent event. A whole answer is one call of Whole.
type Encoder interface {
	Start(c *Choice) []any
	Event(c *Choice, ev engine.Event) []any
	End(all []*Choice) []any
	Whole(all []*Choice) any
	// Terminator is the data of the last server-sent event, or "".
	Terminator() string
}

// NewEncoder returns the encoder of r's dialect.
func NewEncoder(r *Request, reply Reply) Encoder {
	switch r.Dialect {
	case Completion:
		return &completionEncoder{openAI{r, reply}}
	case Native:
		return &nativeEncoder{r, reply}
	}
	return &chatEncoder{openAI{r, reply}}
}

// Usage counts tokens. A prompt counts once, however many choices it has.
type Usage struct {
	PromptTokens     int           `json:"prompt_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	PromptDetails    PromptDetails `json:"prompt_tokens_details"`
}

// PromptDetails says how many of the prompt's tokens were not processed again.
type PromptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

func usageOf(all []*Choice) *Usage {
	u := &Usage{}
	for _, c := range all {
		u.CompletionTokens += c.Result.Timings.PredictedN
		if c.First {
			u.PromptTokens += len(c.Prompt)
			u.PromptDetails.CachedTokens += c.Result.Timings.CacheN
		}
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// Timings is llama-server's object of the same name; what begins with queue_ms is ours.
// Rates of generation count the intervals between tokens: n tokens have n-1. A prompt's
// tokens are cache_n + cells + prompt_n.
type Timings struct {
	CacheN              int     `json:"cache_n"`
	PromptN             int     `json:"prompt_n"`
	PromptMS            float64 `json:"prompt_ms"`
	PromptPerTokenMS    float64 `json:"prompt_per_token_ms"`
	PromptPerSecond     float64 `json:"prompt_per_second"`
	PredictedN          int     `json:"predicted_n"`
	PredictedMS         float64 `json:"predicted_ms"`
	PredictedPerTokenMS float64 `json:"predicted_per_token_ms"`
	PredictedPerSecond  float64 `json:"predicted_per_second"`
	QueueMS             float64 `json:"queue_ms"`
	*Handoff                    // nil: there is one process only
	// Recompute says why prompt tokens were processed although some were cached.
	Recompute string `json:"recompute,omitempty"`
}

// Handoff says how the prompt's cells came into the decoder's cache.
type Handoff struct {
	Route       engine.Route `json:"route"` // local, shared or file
	Trust       string       `json:"trust,omitempty"`
	Cells       int          `json:"cells"`      // filled by a provider and adopted
	PrefillMS   float64      `json:"prefill_ms"` // that the provider took to fill them
	HandoffMS   float64      `json:"handoff_ms"` // share and adopt, without prefill_ms
	BytesCopied int64        `json:"bytes_copied"`
}

func handoffOf(h engine.Handoff) *Handoff {
	if h.Route == "" {
		return nil
	}
	return &Handoff{
		Route: h.Route, Trust: h.Trust, Cells: h.Cells, PrefillMS: h.Prefill.Seconds() * 1e3,
		HandoffMS: h.Took.Seconds() * 1e3, BytesCopied: h.BytesCopied,
	}
}

func timingsOf(t engine.Timings, recompute string) *Timings {
	out := &Timings{
		CacheN: t.CacheN, PromptN: t.PromptN, PromptMS: t.Prompt.Seconds() * 1e3,
		PredictedN: t.PredictedN, PredictedMS: t.Predicted.Seconds() * 1e3,
		QueueMS: t.Queue.Seconds() * 1e3, Handoff: handoffOf(t.Handoff), Recompute: recompute,
	}
	out.PromptPerTokenMS, out.PromptPerSecond = rates(t.PromptN, out.PromptMS)
	out.PredictedPerTokenMS, out.PredictedPerSecond = rates(t.PredictedN-1, out.PredictedMS)
	return out
}

// rates returns the milliseconds per item and the items per second; 0 where there is
// nothing to divide.
func rates(n int, ms float64) (perItem, perSecond float64) {
	if n <= 0 || ms <= 0 {
		return 0, 0
	}
	return ms / float64(n), float64(n) / ms * 1e3
}

// Progress is llama-server's prompt_progress.
type Progress struct {
	Total     int     `json:"total"`
	Cache     int     `json:"cache"`
	Processed int     `json:"processed"`
	TimeMS    float64 `json:"time_ms"`
}

func progressOf(ev engine.Event) *Progress {
	p := &Progress{Total: ev.PromptOf, Processed: ev.Prompt}
	if ev.Timings != nil {
		p.Cache, p.TimeMS = ev.Timings.CacheN, ev.Timings.Prompt.Seconds()*1e3
	}
	return p
}

// minLogprob stands for the logarithm of a probability of zero, which JSON cannot say.
// OpenAI uses the same number for what is too unlikely to measure.
const minLogprob = -9999

// Logprob is a token with its probability, as OpenAI's chat reports it; id is
// llama-server's addition. TopLogprobs is nil for an alternative.
type Logprob struct {
	ID          int32      `json:"id"`
	Token       string     `json:"token"`
	Bytes       []int      `json:"bytes"`
	Logprob     float32    `json:"logprob"`
	TopLogprobs *[]Logprob `json:"top_logprobs,omitempty"`
}

func (r *Reply) alternative(t engine.TokenLogprob) Logprob {
	piece := r.Tokenizer.Piece(t.Token)
	return Logprob{
		ID: t.Token, Token: strings.ToValidUTF8(string(piece), "\uFFFD"),
		Bytes: byteValues(piece), Logprob: finite(t.Logprob),
	}
}

// finite also catches NaN.
func finite(v float32) float32 {
	if v >= minLogprob {
		return v
	}
	return minLogprob
}

func (r *Reply) logprob(ev engine.Event) Logprob {
	p := r.alternative(ev.Logprob)
	top := make([]Logprob, len(ev.Top))
	for i, t := range ev.Top {
		top[i] = r.alternative(t)
	}
	p.TopLogprobs = &top
	return p
}

func (r *Reply) logprobs(events []engine.Event) []Logprob {
	out := make([]Logprob, len(events))
	for i, ev := range events {
		out[i] = r.logprob(ev)
	}
	return out
}

// finishReason is OpenAI's word for why a generation ended.
func finishReason(r engine.Reason) string {
	if r == engine.StopLimit {
		return "length"
	}
	return "stop"
}

// runes counts the characters that begin in b, so that the bytes of a character split over
// tokens count once.
func runes(b []byte) int {
	n := 0
	for _, c := range b {
		if utf8.RuneStart(c) {
			n++
		}
	}
	return n
}
