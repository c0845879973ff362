package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"baton/internal/engine"
)

// Limits of a request that are no limits of the model.
const (
	// MaxChoices bounds n: choices of one prompt.
	MaxChoices = 8
	// MaxGenerations bounds prompts times n.
	MaxGenerations = 64
	// MaxStop bounds the stop strings, MaxStopBytes the length of each.
	MaxStop      = 16
	MaxStopBytes = 1024
	// MaxTop bounds the alternatives reported for a token.
	MaxTop = 100
	// MaxTopChat is OpenAI's bound of top_logprobs.
	MaxTopChat = 20
	// MaxBias bounds the entries of logit_bias after tokenization.
	MaxBias = 4096
)

// Dialect is the shape that a request came in and its answer goes out.
type Dialect uint8

// The dialects.
const (
	Chat       Dialect = iota // OpenAI: POST /v1/chat/completions
	Completion                // OpenAI: POST /v1/completions
	Native                    // llama-server: POST /completion
)

// Tokenizer is what the package needs of the model's vocabulary.
type Tokenizer interface {
	// Encode returns the ids of text. addSpecial puts the tokens around it that the
	// vocabulary asks for (BOS, EOS); parseSpecial lets the text of a special token
	// stand for that token.
	Encode(text string, addSpecial, parseSpecial bool) []int32
	// EncodeParts returns the ids of the parts' concatenation. Special tokens are parsed
	// only in parts that allow it.
	EncodeParts(parts []Part, addSpecial bool) []int32
	// Piece returns the bytes of a token, a special token's text included. It may be
	// part of a UTF-8 character.
	Piece(id int32) []byte
	// Decode returns the bytes that ids stand for, special tokens' texts included.
	Decode(ids []int32) []byte
	// BOS returns the begin-of-sequence token, if there is one.
	BOS() (int32, bool)
}

// Part is a piece of a rendered chat. Special says that texts of special tokens in it
// stand for these tokens; it is false for what a client wrote.
type Part struct {
	Text    string
	Special bool
}

// Limits is what requests are checked against.
type Limits struct {
	Models    []string // names that `model` may have; the first is the one that answers carry
	Vocab     int      // ids are 0 to Vocab-1
	Slots     int
	Tokenizer Tokenizer
}

// Request is a request to generate, checked.
type Request struct {
	Dialect Dialect
	// Generate holds everything but the prompt; it is copied for each choice.
	Generate engine.Request
	Messages *Messages // Chat
	Prompts  []Prompt  // Completion, Native
	N        int       // choices of each prompt

	Stream          bool
	IncludeUsage    bool          // send a last chunk with the usage
	TimingsPerToken bool          // llama-server: timings in every chunk
	ReturnTokens    bool          // llama-server: ids in `tokens`
	ReturnProgress  bool          // llama-server: chunks about the prompt's progress
	Ping            time.Duration // between comments on a silent stream; 0: the server's, < 0: none
	Fields          []string      // llama-server: response_fields
}

// ParseChat reads the body of POST /v1/chat/completions.
func ParseChat(body []byte, l Limits) (*Request, *Error) {
	o, r, err := parseCommon(body, l, Chat)
	if err != nil {
		return nil, err
	}
	r.Messages = o.messages()
	o.chatLogprobs(r)
	if o.err != nil {
		return nil, o.err
	}
	return r, nil
}

// ParseCompletion reads the body of POST /v1/completions.
func ParseCompletion(body []byte, l Limits) (*Request, *Error) {
	return parsePrompted(body, l, Completion)
}

// ParseNative reads the body of POST /completion.
func ParseNative(body []byte, l Limits) (*Request, *Error) {
	return parsePrompted(body, l, Native)
}

func parsePrompted(body []byte, l Limits, d Dialect) (*Request, *Error) {
	o, r, err := parseCommon(body, l, d)
	if err != nil {
		return nil, err
	}
	r.Prompts = o.prompts(l.Vocab)
	o.promptLogprobs(r)
	if o.err == nil && len(r.Prompts)*r.N > MaxGenerations {
		o.fail(badRequest("prompt", CodeInvalidValue, "prompt: found %d prompts times n = %d, expected at most %d in all", len(r.Prompts), r.N, MaxGenerations))
	}
	if o.err != nil {
		return nil, o.err
	}
	return r, nil
}

// parseCommon reads what all dialects share.
func parseCommon(body []byte, l Limits, d Dialect) (*object, *Request, *Error) {
	o, err := parseBody(body)
	if err != nil {
		return nil, nil, err
	}
	r := &Request{Dialect: d, Generate: *engine.NewRequest(nil), N: 1}
	g := &r.Generate
	o.model(l.Models)
	for i := range numbers {
		o.number(&numbers[i], r)
	}
	o.seed(&g.Sampling.Seed)
	o.maxTokens(&g.MaxTokens)
	o.choices(&r.N)
	o.int("id_slot", -1, max(l.Slots, 1)-1, &g.Slot)
	o.bool("stream", &r.Stream)
	o.bool("ignore_eos", &g.IgnoreEOS)
	o.bool("cache_prompt", &g.CachePrompt)
	o.bool("return_tokens", &r.ReturnTokens)
	o.bool("timings_per_token", &r.TimingsPerToken)
	o.bool("return_progress", &r.ReturnProgress)
	o.streamOptions(r)
	g.Stop = o.stop()
	g.Sampling.LogitBias = o.logitBias(l)
	o.samplers(&g.Sampling)
	o.ping(&r.Ping)
	r.Fields = o.stringList("response_fields", 64)
	o.unsupported(d, r.N)
	g.Progress = r.ReturnProgress && r.Stream
	g.Timings = r.TimingsPerToken && r.Stream
	return o, r, o.err
}

// model checks that the request means the model that is served. An empty name does.
func (o *object) model(served []string) {
	var name string
	if !o.string("model", &name) || name == "" || slices.Contains(served, name) {
		return
	}
	o.fail(ModelNotFound(name, served))
}

// ModelNotFound is the answer to a request for another model than the served one.
func ModelNotFound(name string, served []string) *Error {
	return &Error{
		Status: http.StatusNotFound, Type: TypeInvalidRequest, Param: "model", Code: CodeModelNotFound,
		Message: fmt.Sprintf("model: found %q, expected one of the served models: %s", shorten(name), strings.Join(served, ", ")),
	}
}

// shorten cuts a client's text for a message.
func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "..."
}

// seed reads seed. -1 and llama-server's 4294967295 (its default, which clients send back)
// ask for a random one.
func (o *object) seed(dst *int64) {
	m, ok := o.get("seed")
	if !ok {
		return
	}
	v, err := asInt64(m, join(o.path, "seed"), -1, 1<<63-1)
	if err != nil {
		o.fail(err)
		return
	}
	if v == 1<<32-1 {
		v = -1
	}
	*dst = v
}

// maxTokens reads the three spellings of the limit. Where several are given, the order of
// precedence is llama-server's: n_predict, max_completion_tokens, max_tokens.
func (o *object) maxTokens(dst *int) {
	for _, key := range []string{"max_tokens", "max_completion_tokens", "n_predict"} {
		o.int(key, -1, maxInt32, dst)
	}
}

// choices reads n and llama-server's n_cmpl, which has precedence.
func (o *object) choices(dst *int) {
	o.int("n", 1, MaxChoices, dst)
	o.int("n_cmpl", 1, MaxChoices, dst)
}

func (o *object) streamOptions(r *Request) {
	m, ok := o.get("stream_options")
	if !ok {
		return
	}
	opts, err := openObject(m, join(o.path, "stream_options"))
	if err != nil {
		o.fail(err)
		return
	}
	opts.bool("include_usage", &r.IncludeUsage)
	if opts.err != nil {
		o.fail(opts.err)
	}
}

// ping reads sse_ping_interval, in seconds; -1 turns the comments off.
func (o *object) ping(dst *time.Duration) {
	seconds := 0
	if o.int("sse_ping_interval", -1, 3600, &seconds) {
		*dst = time.Duration(seconds) * time.Second
	}
}

// stop reads a string or an array of strings.
func (o *object) stop() []string {
	m, ok := o.get("stop")
	if !ok {
		return nil
	}
	path := join(o.path, "stop")
	var out []string
	switch kindOf(m.raw) {
	case kindString:
		var s string
		if !o.string("stop", &s) {
			return nil
		}
		out = []string{s}
	case kindArray:
		if out = o.stringList("stop", MaxStop); o.err != nil {
			return nil
		}
	default:
		o.fail(badType(path, m, "a string or an array of strings"))
		return nil
	}
	for i, s := range out {
		if s == "" || len(s) > MaxStopBytes {
			name := fmt.Sprintf("%s[%d]", path, i)
			o.fail(badRequest(name, CodeInvalidValue, "%s: found %d bytes, expected 1 to %d", name, len(s), MaxStopBytes))
			return nil
		}
	}
	return out
}

// stringList reads an array of at most limit strings.
func (o *object) stringList(key string, limit int) []string {
	m, ok := o.get(key)
	if !ok {
		return nil
	}
	path := join(o.path, key)
	if kindOf(m.raw) != kindArray {
		o.fail(badType(path, m, "an array of strings"))
		return nil
	}
	if n := count(m.raw, limit+1); n > limit {
		o.fail(badRequest(path, CodeInvalidValue, "%s: found more than %d strings, expected at most that many", path, limit))
		return nil
	}
	var out []string
	for i, it := range elements(m.raw, m.at) {
		s, err := asString(it, fmt.Sprintf("%s[%d]", path, i))
		if err != nil {
			o.fail(err)
			return nil
		}
		out = append(out, s)
	}
	return out
}

// chatLogprobs reads OpenAI's pair: logprobs turns the report on, top_logprobs says how
// many alternatives it has. llama-server's n_probs works too.
func (o *object) chatLogprobs(r *Request) {
	on, top := false, 0
	o.bool("logprobs", &on)
	given := o.int("top_logprobs", 0, MaxTopChat, &top)
	if given && !on {
		o.fail(badRequest("top_logprobs", CodeInvalidValue, "top_logprobs: found without logprobs, expected logprobs to be true"))
	}
	if on {
		r.Generate.Logprobs = top
	}
	o.nProbs(r)
}

// promptLogprobs reads the completions' logprobs, a number: OpenAI reports the chosen
// token at 0 too, llama-server only above 0.
func (o *object) promptLogprobs(r *Request) {
	n := 0
	if o.int("logprobs", 0, MaxTop, &n) && (n > 0 || r.Dialect == Completion) {
		r.Generate.Logprobs = n
	}
	o.nProbs(r)
}

func (o *object) nProbs(r *Request) {
	n := 0
	if o.int("n_probs", 0, MaxTop, &n) && n > 0 {
		r.Generate.Logprobs = n
	}
}

// raw returns the value of a field as it is, or nil.
func (o *object) raw(key string) json.RawMessage {
	if m, ok := o.get(key); ok {
		return json.RawMessage(m.raw)
	}
	return nil
}
