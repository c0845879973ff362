package api

import (
	"math"

	"baton/internal/engine"
)

// GenerationSettings is llama-server's object of that name: the parameters of a request,
// under the names that a request may give them.
type GenerationSettings struct {
	NCtx             int         `json:"n_ctx,omitempty"`
	Model            string      `json:"model,omitempty"`
	Seed             uint64      `json:"seed"`
	Temperature      float32     `json:"temperature"`
	DynatempRange    float32     `json:"dynatemp_range"`
	DynatempExponent float32     `json:"dynatemp_exponent"`
	TopK             int         `json:"top_k"`
	TopP             float32     `json:"top_p"`
	MinP             float32     `json:"min_p"`
	TopNSigma        float32     `json:"top_n_sigma"`
	XTCProbability   float32     `json:"xtc_probability"`
	XTCThreshold     float32     `json:"xtc_threshold"`
	TypicalP         float32     `json:"typical_p"`
	RepeatLastN      int         `json:"repeat_last_n"`
	RepeatPenalty    float32     `json:"repeat_penalty"`
	PresencePenalty  float32     `json:"presence_penalty"`
	FrequencyPenalty float32     `json:"frequency_penalty"`
	Stop             []string    `json:"stop"`
	MaxTokens        int         `json:"max_tokens"`
	NPredict         int         `json:"n_predict"`
	IgnoreEOS        bool        `json:"ignore_eos"`
	Stream           bool        `json:"stream"`
	LogitBias        []tokenBias `json:"logit_bias"`
	NProbs           int         `json:"n_probs"`
	MinKeep          int         `json:"min_keep"`
	Samplers         []string    `json:"samplers"`
	TimingsPerToken  bool        `json:"timings_per_token"`
}

type tokenBias struct {
	Token int32   `json:"token"`
	Bias  float32 `json:"bias"` // -maxBias for a banned token, since JSON has no infinity
}

// randomSeed is what llama-server reports for a seed that will be chosen at random.
const randomSeed = math.MaxUint32

// Settings reports the parameters of r.
func Settings(r *engine.Request, ctx int, model string, stream, timings bool) GenerationSettings {
	s := &r.Sampling
	out := GenerationSettings{
		NCtx: ctx, Model: model, Seed: randomSeed, Temperature: s.Temperature,
		DynatempRange: s.DynatempRange, DynatempExponent: s.DynatempExponent,
		TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, TopNSigma: s.TopNSigma,
		XTCProbability: s.XTCProbability, XTCThreshold: s.XTCThreshold, TypicalP: s.TypicalP,
		RepeatLastN: s.RepeatLastN, RepeatPenalty: s.RepeatPenalty,
		PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty,
		Stop: append([]string{}, r.Stop...), MaxTokens: r.MaxTokens, NPredict: r.MaxTokens,
		IgnoreEOS: r.IgnoreEOS, Stream: stream, LogitBias: []tokenBias{},
		NProbs: max(r.Logprobs, 0), MinKeep: s.MinKeep, Samplers: samplerNames(), TimingsPerToken: timings,
	}
	if s.Seed >= 0 {
		out.Seed = uint64(s.Seed)
	}
	for _, b := range s.LogitBias {
		out.LogitBias = append(out.LogitBias, tokenBias{b.Token, max(b.Bias, -maxBias)})
	}
	return out
}

// Models answers GET /v1/models.
type Models struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// Model describes a served model: OpenAI's fields and llama-server's meta.
type Model struct {
	ID      string    `json:"id"`
	Aliases []string  `json:"aliases"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	OwnedBy string    `json:"owned_by"`
	Meta    ModelMeta `json:"meta"`
}

// ModelMeta holds the model's dimensions.
type ModelMeta struct {
	NVocab    int    `json:"n_vocab"`
	NCtxTrain int    `json:"n_ctx_train"`
	NCtx      int    `json:"n_ctx"`
	NEmbd     int    `json:"n_embd"`
	NLayer    int    `json:"n_layer"`
	NParams   uint64 `json:"n_params"`
	Size      uint64 `json:"size"`
	Arch      string `json:"arch"`
	Quant     string `json:"quant"`
}

// ModelOf describes the model of an engine; names are those that it is served under.
func ModelOf(i engine.Info, names []string, created int64) Model {
	return Model{
		ID: names[0], Aliases: append([]string{}, names[1:]...), Object: "model", Created: created, OwnedBy: "baton",
		Meta: ModelMeta{
			NVocab: i.VocabSize, NCtxTrain: i.CtxTrain, NCtx: i.CtxSlot, NEmbd: i.Embd, NLayer: i.Layers,
			NParams: i.Params, Size: i.ModelBytes, Arch: i.Arch, Quant: i.Quant,
		},
	}
}

// Slot is a slot as /slots shows it. It never holds a prompt or a text: they are other
// people's.
type Slot struct {
	ID           int                `json:"id"`
	NCtx         int                `json:"n_ctx"`
	Speculative  bool               `json:"speculative"`
	IsProcessing bool               `json:"is_processing"`
	RequestID    string             `json:"request_id,omitempty"`
	NPrompt      int                `json:"n_prompt_tokens"`
	NPromptDone  int                `json:"n_prompt_tokens_processed"`
	Params       GenerationSettings `json:"params"`
	NextToken    NextToken          `json:"next_token"`
}

// NextToken says how far a slot's generation is.
type NextToken struct {
	HasNextToken bool `json:"has_next_token"`
	NRemain      int  `json:"n_remain"`
	NDecoded     int  `json:"n_decoded"`
}

// SlotsOf answers GET /slots.
func SlotsOf(st engine.Stats) []Slot {
	out := make([]Slot, len(st.Slots))
	for i, s := range st.Slots {
		r := engine.Request{Sampling: s.Sampling, MaxTokens: -1, Logprobs: -1}
		if s.Remaining >= 0 {
			r.MaxTokens = s.Remaining + s.NDecoded
		}
		r.Sampling.LogitBias = nil
		out[i] = Slot{
			ID: s.ID, NCtx: s.NCtx, IsProcessing: s.Busy, RequestID: s.RequestID,
			NPrompt: s.NPrompt, NPromptDone: s.NPromptRun, Params: Settings(&r, 0, "", false, false),
			NextToken: NextToken{HasNextToken: s.Busy, NRemain: s.Remaining, NDecoded: s.NDecoded},
		}
	}
	return out
}

// Props answers GET /props: llama-server's fields, then ours.
type Props struct {
	Defaults   PropsDefaults   `json:"default_generation_settings"`
	TotalSlots int             `json:"total_slots"`
	ModelAlias string          `json:"model_alias"`
	ModelPath  string          `json:"model_path"`
	Modalities map[string]bool `json:"modalities"`
	Template   string          `json:"chat_template"`
	// TemplateHash is the SHA-256 of chat_template: another template makes other prompts
	// of the same messages, so that no cached prefix fits.
	TemplateHash string  `json:"chat_template_sha256"`
	BOS          string  `json:"bos_token"`
	BuildInfo    string  `json:"build_info"`
	NCtx         int     `json:"n_ctx"`
	NCtxTrain    int     `json:"n_ctx_train"`
	Arch         string  `json:"arch"`
	Quant        string  `json:"quant"`
	Kernels      string  `json:"kernels"`
	Threads      int     `json:"threads"`
	KV           PropsKV `json:"kv"`
}

// PropsDefaults is the shape in which llama-server wraps the default settings.
type PropsDefaults struct {
	ID           int                `json:"id"`
	NCtx         int                `json:"n_ctx"`
	Speculative  bool               `json:"speculative"`
	IsProcessing bool               `json:"is_processing"`
	Params       GenerationSettings `json:"params"`
}

// PropsKV describes the KV cache.
type PropsKV struct {
	LimitBytes    uint64 `json:"limit_bytes"`
	BytesPerToken int    `json:"bytes_per_token"`
}

// PropsOf describes the engine; the caller fills in what the engine does not know.
func PropsOf(i engine.Info) Props {
	return Props{
		Defaults:   PropsDefaults{NCtx: i.CtxSlot, Params: Settings(engine.NewRequest(nil), 0, "", false, false)},
		TotalSlots: i.Slots, ModelPath: i.Path,
		Modalities: map[string]bool{"vision": false, "audio": false},
		NCtx:       i.CtxSlot, NCtxTrain: i.CtxTrain, Arch: i.Arch, Quant: i.Quant,
		Kernels: i.Kernels, Threads: i.Threads,
		KV: PropsKV{LimitBytes: i.KVBytes, BytesPerToken: i.KVPerToken},
	}
}

// Health answers GET /health when all is well.
type Health struct {
	Status     string `json:"status"` // "ok"
	SlotsIdle  int    `json:"slots_idle"`
	SlotsBusy  int    `json:"slots_processing"`
	Waiting    int    `json:"requests_waiting"`
	LastStepMS int64  `json:"last_step_ms"` // milliseconds since the step loop last reported; -1: never
}
