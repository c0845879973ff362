package api

import (
	"math"

	"baton/internal/engine"
)

const maxInt32 = math.MaxInt32

// number is a numeric field of a generation request that goes straight into a parameter.
type number struct {
	name    string
	lo, hi  float64
	integer bool
	set     func(*engine.Sampling, float64)
}

// numbers are the sampling parameters that all dialects share, with the ranges in which
// they mean something. llama-server clamps most of them silently; here a value outside is
// refused. top_k accepts -1 for off, as vLLM's clients send it.
var numbers = []number{
	{"temperature", 0, 100, false, func(s *engine.Sampling, v float64) { s.Temperature = float32(v) }},
	{"dynatemp_range", 0, 100, false, func(s *engine.Sampling, v float64) { s.DynatempRange = float32(v) }},
	{"dynatemp_exponent", 0, 100, false, func(s *engine.Sampling, v float64) { s.DynatempExponent = float32(v) }},
	{"top_k", -1, maxInt32, true, func(s *engine.Sampling, v float64) { s.TopK = int(v) }},
	{"top_p", 0, 1, false, func(s *engine.Sampling, v float64) { s.TopP = float32(v) }},
	{"min_p", 0, 1, false, func(s *engine.Sampling, v float64) { s.MinP = float32(v) }},
	{"typical_p", 0, 1, false, func(s *engine.Sampling, v float64) { s.TypicalP = float32(v) }},
	{"top_n_sigma", -1, 100, false, func(s *engine.Sampling, v float64) { s.TopNSigma = float32(v) }},
	{"xtc_probability", 0, 1, false, func(s *engine.Sampling, v float64) { s.XTCProbability = float32(v) }},
	{"xtc_threshold", 0, 1, false, func(s *engine.Sampling, v float64) { s.XTCThreshold = float32(v) }},
	{"repeat_last_n", -1, maxInt32, true, func(s *engine.Sampling, v float64) { s.RepeatLastN = int(v) }},
	{"repeat_penalty", 0.01, 100, false, func(s *engine.Sampling, v float64) { s.RepeatPenalty = float32(v) }},
	{"presence_penalty", -100, 100, false, func(s *engine.Sampling, v float64) { s.PresencePenalty = float32(v) }},
	{"frequency_penalty", -100, 100, false, func(s *engine.Sampling, v float64) { s.FrequencyPenalty = float32(v) }},
	{"min_keep", 0, maxInt32, true, func(s *engine.Sampling, v float64) { s.MinKeep = int(v) }},

	// Read for their range only. Nothing is ever discarded from a full context (generation
	// ends there), so every n_keep is honoured; reuse by shifting (n_cache_reuse) is never
	// needed for a right answer.
	{"n_keep", -1, maxInt32, true, nil},
	{"n_cache_reuse", 0, maxInt32, true, nil},
	// These belong to samplers that are refused unless they are off.
	{"dry_base", 0, 100, false, nil},
	{"dry_allowed_length", 0, maxInt32, true, nil},
	{"dry_penalty_last_n", -1, maxInt32, true, nil},
	{"mirostat_tau", 0, 1000, false, nil},
	{"mirostat_eta", 0, 1000, false, nil},
	{"adaptive_decay", 0, 1, false, nil},
}

func (o *object) number(n *number, r *Request) {
	m, ok := o.get(n.name)
	if !ok {
		return
	}
	v, err := asNumber(m, join(o.path, n.name), n.lo, n.hi, n.integer)
	if err != nil {
		o.fail(err)
		return
	}
	if n.set != nil {
		n.set(&r.Generate.Sampling, v)
	}
}

// NumericField describes a numeric field of the generation requests.
type NumericField struct {
	Name    string
	Min     float64
	Max     float64
	Integer bool
}

// NumericFields lists every numeric field that all dialects share, with its range. slots
// is the number of slots of the server. seed's true upper bound is 2^63-1.
func NumericFields(slots int) []NumericField {
	out := make([]NumericField, 0, len(numbers)+len(quietNumbers)+9)
	for _, n := range numbers {
		out = append(out, NumericField{n.name, n.lo, n.hi, n.integer})
	}
	for _, q := range quietNumbers {
		out = append(out, NumericField{q.name, q.lo, q.hi, q.integer})
	}
	return append(out,
		NumericField{"seed", -1, math.MaxInt64, true},
		NumericField{"max_tokens", -1, maxInt32, true},
		NumericField{"max_completion_tokens", -1, maxInt32, true},
		NumericField{"n_predict", -1, maxInt32, true},
		NumericField{"n", 1, MaxChoices, true},
		NumericField{"n_cmpl", 1, MaxChoices, true},
		NumericField{"n_probs", 0, MaxTop, true},
		NumericField{"id_slot", -1, float64(max(slots, 1) - 1), true},
		NumericField{"sse_ping_interval", -1, 3600, true},
	)
}
