// Package engine is the contract between whoever asks for text and whatever runs the
// model: requests in token ids, streams of events back. The decoder implements it in
// this process; a client of a decoder in another process implements it too.
//
// It holds types only, and the queue that streams are made of. It knows nothing of HTTP
// shapes, templates or kernels.
package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Engine runs requests. All methods are safe for concurrent use, and none but
// Stream.Recv waits for a computation.
type Engine interface {
	// Info describes the model and the engine; it does not change.
	Info() Info
	// Generate queues a request. Cancelling ctx stops it within one step. The error
	// is a *Error for what the caller did wrong or what the engine has no room for.
	Generate(ctx context.Context, r *Request) (Stream, error)
	// Stats is a snapshot that never waits for the step loop.
	Stats() Stats
}

// MayBeAway is implemented by engines whose work is done in another process.
type MayBeAway interface {
	// Err says why nothing can be computed at the moment; nil: it can, as far as is known
	// since the last call of Stats.
	Err() error
}

// Stream delivers what one request produces, in order.
type Stream interface {
	// Recv waits for the next event. After the event of kind Done it returns io.EOF.
	// It returns ctx's error when ctx ends first. One caller at a time.
	Recv(ctx context.Context) (Event, error)
	// Cancel stops the request; events already produced can still be received.
	Cancel()
}

// Info describes a loaded model as the API reports it.
type Info struct {
	Name       string // general.name of the file, or its file name
	Path       string // empty for the built-in model
	Arch       string
	Quant      string // e.g. "Q8_0"
	Params     uint64
	ModelBytes uint64
	VocabSize  int
	CtxTrain   int // the model's own context length
	CtxSlot    int // positions a slot has
	Slots      int
	Embd       int
	Layers     int
	Kernels    string // active kernel implementation
	Threads    int
	KVBytes    uint64 // limit of the KV pool
	KVPerToken int    // bytes of K and V a token
}

// Request is one generation. The zero value is not usable: start from NewRequest.
type Request struct {
	ID          string
	Prompt      []int32 // at least one id, each in the vocabulary
	MaxTokens   int     // tokens to generate; < 0: until the context is full
	Sampling    Sampling
	Stop        []string // generation ends before the first of these appears in the text
	IgnoreEOS   bool     // end-of-generation tokens are never chosen
	Logprobs    int      // < 0: none; n: the chosen token's and the n best alternatives'
	CachePrompt bool     // reuse cached cells of a common prefix
	Slot        int      // the slot to run in; < 0: any
	Progress    bool     // send events of kind Progress while the prompt is processed
	Timings     bool     // set Event.Timings in Token events too
	Handoff     Handoff  // what has brought cells of the prompt into the slot, for Stats
}

// NewRequest returns a request for prompt with llama-server's defaults.
func NewRequest(prompt []int32) *Request {
	return &Request{Prompt: prompt, MaxTokens: -1, Sampling: DefaultSampling(), Logprobs: -1, CachePrompt: true, Slot: -1}
}

// Sampling holds the parameters of the sampler chain. Names and defaults are those of
// llama.cpp (common/common.h, struct common_params_sampling).
type Sampling struct {
	Seed             int64   // < 0: a random one
	Temperature      float32 // <= 0: greedy
	DynatempRange    float32
	DynatempExponent float32
	TopK             int     // <= 0: off
	TopP             float32 // >= 1: off
	MinP             float32 // <= 0: off
	TypicalP         float32 // >= 1: off
	TopNSigma        float32 // <= 0: off
	XTCProbability   float32 // <= 0: off
	XTCThreshold     float32
	RepeatLastN      int     // tokens that the penalties look back; -1: the whole context, 0: off
	RepeatPenalty    float32 // 1: off
	PresencePenalty  float32
	FrequencyPenalty float32
	MinKeep          int
	LogitBias        []TokenBias
}

// TokenBias is added to a token's logit before everything else; Bias may be -Inf.
type TokenBias struct {
	Token int32
	Bias  float32
}

// DefaultSampling returns llama.cpp's defaults.
func DefaultSampling() Sampling {
	return Sampling{
		Seed: -1, Temperature: 0.8, DynatempExponent: 1, TopK: 40, TopP: 0.95, MinP: 0.05, TypicalP: 1,
		TopNSigma: -1, XTCThreshold: 0.1, RepeatLastN: 64, RepeatPenalty: 1,
	}
}

// Kind says what an Event carries.
type Kind uint8

const (
	// Progress: Done of Total prompt tokens are processed.
	Progress Kind = iota
	// Token: one token was generated. Text may be empty (half a character, or held
	// back because it may be the start of a stop string); a later event brings it.
	Token
	// Done is the last event; Result is set.
	Done
)

// Event is one thing that happened to a request.
type Event struct {
	Kind     Kind
	At       time.Time
	Text     string // whole UTF-8 characters
	Token    int32
	Logprob  TokenLogprob   // Token events, when asked for
	Top      []TokenLogprob // best first
	Prompt   int            // Progress: prompt tokens processed, cached ones included
	PromptOf int            // Progress: prompt tokens in all
	Timings  *Timings       // so far: Progress events, Token events when Request.Timings
	Result   *Result
}

// TokenLogprob is a token with the natural logarithm of its probability before the
// sampler chain (softmax over the raw logits).
type TokenLogprob struct {
	Token   int32
	Logprob float32
}

// Reason says why a generation ended.
type Reason string

// Reasons that a generation ends for.
const (
	StopEOS   Reason = "eos"       // an end-of-generation token
	StopWord  Reason = "word"      // a stop string
	StopLimit Reason = "limit"     // MaxTokens or the context is full
	Cancelled Reason = "cancelled" // the caller left
	Failed    Reason = "error"     // Result.Err says why
)

// Result sums a request up.
type Result struct {
	Reason       Reason
	StoppingWord string
	Err          error
	Text         string // text of the last, not yet delivered characters
	Slot         int
	Seed         uint64 // the seed that was used
	Timings      Timings
	// Recompute says why prompt tokens beyond the cached ones were processed anew, in
	// one sentence; empty when nothing could have been reused.
	Recompute string
	// ContextFull is true when generation ended because the slot's context is full.
	ContextFull bool
}

// Timings are measured, never estimated.
type Timings struct {
	Queue      time.Duration // submitted to started, without Handoff
	CacheN     int           // prompt tokens whose cells were reused
	PromptN    int           // prompt tokens processed here; those of Handoff are not
	Prompt     time.Duration // started to the logits of the last prompt token
	PredictedN int
	Predicted  time.Duration // first token chosen to the last
	Handoff    Handoff
}

// Handoff says how the cells of a prompt got into the cache of the decoder when another
// process may have filled them. A prompt's tokens are CacheN + Handoff.Cells + PromptN.
type Handoff struct {
	Route       Route         // empty: there is no other process
	Trust       string        // how the cells were secured: leased, sealed, attached
	Cells       int           // cells filled by a provider and adopted
	Prefill     time.Duration // that the provider took to fill them
	Took        time.Duration // share and adopt, without Prefill
	BytesCopied int64         // bytes of K and V that moved
}

// Route is a way by which a prompt's cells get into the cache of the decoder.
type Route string

// Routes.
const (
	RouteLocal  Route = "local"  // the decoder computes them
	RouteShared Route = "shared" // a provider writes them into the decoder's memory
	RouteFile   Route = "file"   // a provider writes them into a state file
)

// SlotState is a slot as /slots shows it.
type SlotState struct {
	ID         int
	Busy       bool
	RequestID  string
	NCtx       int
	NPrompt    int // tokens in the prompt
	NPromptRun int // of these, in the cache by now
	NDecoded   int
	Remaining  int // -1: no limit
	Sampling   Sampling
}

// Stats is a snapshot of the engine.
type Stats struct {
	Slots          []SlotState
	Waiting        int // requests that have no slot yet
	Running        int
	KVUsedBlocks   int // blocks of running sequences
	KVCachedBlocks int // blocks kept for reuse only
	KVTotalBlocks  int
	PromptTokens   uint64 // processed since start, here or by a provider
	AdoptedTokens  uint64 // of these, by a provider
	CachedTokens   uint64 // reused since start
	GenTokens      uint64
	PromptTime     time.Duration // with that of providers
	GenTime        time.Duration
	Steps          uint64
	LastStep       time.Time // when the step loop last finished a step or said it is idle
	Recomputed     map[string]uint64
	Failed         uint64
}

// Code classifies an error for the API.
type Code string

// Codes of engine errors.
const (
	CodeBadRequest Code = "bad_request"      // the request can never work
	CodeTooLong    Code = "context_exceeded" // prompt longer than the slot's context
	CodeNoRoom     Code = "no_room"          // later it may work
	CodeStopping   Code = "stopping"         // the engine is shutting down
	CodeAway       Code = "decoder_away"     // the decoder's process has ended or does not answer; later it may work
	CodeInternal   Code = "internal"
)

// Error is what Generate returns. Message is a lower-case sentence for people.
type Error struct {
	Code    Code
	Message string
	Param   string // the request field at fault, if one is
	Prompt  int    // CodeTooLong: tokens in the prompt
	Ctx     int    // CodeTooLong: positions in the slot
}

func (e *Error) Error() string { return e.Message }

// TooLong is the error for a prompt that does not fit.
func TooLong(prompt, ctx int) *Error {
	return &Error{Code: CodeTooLong, Param: "prompt", Prompt: prompt, Ctx: ctx,
		Message: fmt.Sprintf("the prompt has %d tokens, the context of a slot %d: shorten the prompt or start with a larger -c", prompt, ctx)}
}

// AsError returns err as *Error; anything else becomes CodeInternal.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}
