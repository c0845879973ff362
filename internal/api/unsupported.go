package api

import (
	"bytes"
	"strconv"
)

// refusal is a field that would change the answer and that is not supported. neutral
// tells the values that ask for nothing, such as an empty list.
type refusal struct {
	name     string
	neutral  func(raw []byte) bool
	expected string // what is accepted, for the message
}

// quietNumber is a refusal by number: only its neutral values are accepted, but the whole
// range is checked first, so that nonsense is called nonsense.
type quietNumber struct {
	name    string
	lo, hi  float64
	integer bool
	off     func(v float64) bool
	say     string
}

func isZero(v float64) bool    { return v == 0 }
func isOne(v float64) bool     { return v == 1 }
func notAbove0(v float64) bool { return v <= 0 }
func below0(v float64) bool    { return v < 0 }

var quietNumbers = []quietNumber{
	{"mirostat", 0, 2, true, isZero, "0"},
	{"dry_multiplier", 0, 100, false, isZero, "0"},
	{"adaptive_target", -100, 1, false, below0, "a negative number"},
	{"n_discard", 0, maxInt32, true, isZero, "0"},
	{"n_indent", 0, maxInt32, true, isZero, "0"},
	{"t_max_predict_ms", -1, 1 << 53, true, notAbove0, "0"},
	{"t_max_prompt_ms", -1, 1 << 53, true, notAbove0, "0"},
	{"reasoning_budget_tokens", -1, maxInt32, true, below0, "-1"},
	{"thinking_budget_tokens", -1, maxInt32, true, below0, "-1"},
	{"min_tokens", 0, maxInt32, true, isZero, "0"},
	{"tfs_z", 0, 1, false, isOne, "1"},
	{"top_a", 0, 1, false, isZero, "0"},
	{"repetition_penalty", 0.01, 100, false, isOne, "1 (use repeat_penalty)"},
	{"length_penalty", -100, 100, false, isOne, "1"},
}

func emptyArray(raw []byte) bool { return kindOf(raw) == kindArray && count(raw, 1) == 0 }

func emptyString(raw []byte) bool { return string(raw) == `""` }

func isFalse(raw []byte) bool { return string(raw) == "false" }

func isTrue(raw []byte) bool { return string(raw) == "true" }

func emptyAny(raw []byte) bool {
	return emptyString(raw) || emptyArray(raw) || isFalse(raw) || bytes.Equal(raw, []byte("{}"))
}

func never([]byte) bool { return false }

func oneOf(words ...string) func([]byte) bool {
	return func(raw []byte) bool {
		for _, w := range words {
			if string(raw) == strconv.Quote(w) {
				return true
			}
		}
		return false
	}
}

// textFormat accepts {"type": "text"}.
func textFormat(raw []byte) bool {
	if kindOf(raw) != kindObject {
		return false
	}
	fields, err := members(raw, 0, "response_format")
	return err == nil && len(fields) == 1 && fields[0].key == "type" && string(fields[0].raw) == `"text"`
}

// textOnly accepts ["text"].
func textOnly(raw []byte) bool {
	if kindOf(raw) != kindArray {
		return false
	}
	for _, it := range elements(raw, 0) {
		if string(it.raw) != `"text"` {
			return false
		}
	}
	return true
}

// refusals are the fields of OpenAI, llama-server, vLLM and SGLang that change what is generated
// or reported and that are not supported yet.
var refusals = []refusal{
	{"tools", emptyArray, "no tools (tool calls are not supported yet)"},
	{"tool_choice", oneOf("none", "auto"), `"none" or "auto"`},
	{"functions", emptyArray, "no functions (tool calls are not supported yet)"},
	{"function_call", oneOf("none", "auto"), `"none" or "auto"`},
	{"response_format", textFormat, `{"type": "text"} (constrained output is not supported yet)`},
	{"grammar", emptyString, "no grammar (constrained output is not supported yet)"},
	{"json_schema", never, "no schema (constrained output is not supported yet)"},
	{"grammar_lazy", isFalse, "false"},
	{"grammar_triggers", emptyArray, "none"},
	{"preserved_tokens", emptyArray, "none"},
	{"guided_json", emptyAny, "none (constrained output is not supported yet)"},
	{"guided_regex", emptyAny, "none (constrained output is not supported yet)"},
	{"guided_choice", emptyAny, "none (constrained output is not supported yet)"},
	{"guided_grammar", emptyAny, "none (constrained output is not supported yet)"},
	{"structured_outputs", emptyAny, "none (constrained output is not supported yet)"},
	{"regex", emptyAny, "none (constrained output is not supported yet)"},
	{"ebnf", emptyAny, "none (constrained output is not supported yet)"},
	{"structural_tag", emptyAny, "none (constrained output is not supported yet)"},
	{"suffix", emptyString, "none (fill-in-the-middle is not supported yet)"},
	{"input_prefix", emptyString, "none (fill-in-the-middle is not supported yet)"},
	{"input_suffix", emptyString, "none (fill-in-the-middle is not supported yet)"},
	{"input_extra", emptyArray, "none (fill-in-the-middle is not supported yet)"},
	{"echo", isFalse, "false"},
	{"image_data", emptyArray, "no images"},
	{"images", emptyArray, "no images"},
	{"multimodal_data", emptyArray, "no media"},
	{"audio", never, "no audio"},
	{"modalities", textOnly, `["text"]`},
	{"prediction", never, "none"},
	{"web_search_options", never, "none"},
	{"verbosity", oneOf("medium"), `"medium"`},
	{"lora", emptyArray, "no adapters"},
	{"post_sampling_probs", isFalse, "false"},
	{"reasoning_format", oneOf("none", "auto"), `"none"`},
	{"reasoning_control", isFalse, "false"},
	{"reasoning_budget_message", emptyString, "none"},
	{"generation_prompt", emptyString, "none"},
	{"chat_template", emptyString, "none (the model's own template is used)"},
	{"documents", emptyArray, "none"},
	{"stop_token_ids", emptyArray, "none"},
	{"stop_regex", emptyAny, "none (use stop)"},
	{"skip_special_tokens", isTrue, "true"},
	{"logits_processors", emptyArray, "none"},
	{"bad_words", emptyArray, "none"},
	{"allowed_token_ids", emptyArray, "none"},
	{"include_stop_str_in_output", isFalse, "false"},
	{"use_beam_search", isFalse, "false"},
	{"prompt_logprobs", isFalse, "none"},
	{"truncate_prompt_tokens", oneOf(), "none"},
}

// unsupported refuses what would change the answer and cannot be done.
func (o *object) unsupported(d Dialect, n int) {
	for _, q := range quietNumbers {
		m, ok := o.get(q.name)
		if !ok {
			continue
		}
		path := join(o.path, q.name)
		v, err := asNumber(m, path, q.lo, q.hi, q.integer)
		if err != nil {
			o.fail(err)
		} else if !q.off(v) {
			o.fail(notSupported(path, m, q.say))
		}
	}
	for _, f := range refusals {
		if m, ok := o.get(f.name); ok && !f.neutral(m.raw) {
			o.fail(notSupported(join(o.path, f.name), m, f.expected))
		}
	}
	// best_of generates more than it returns; with as many as n it asks for nothing.
	if m, ok := o.get("best_of"); ok {
		v, err := asNumber(m, join(o.path, "best_of"), 1, MaxChoices, true)
		if err != nil {
			o.fail(err)
		} else if int(v) != n {
			o.fail(notSupported(join(o.path, "best_of"), m, "n ("+strconv.Itoa(n)+")"))
		}
	}
	if d != Chat {
		if m, ok := o.get("messages"); ok {
			o.fail(notSupported("messages", m, "a prompt (messages belong to /v1/chat/completions)"))
		}
	}
}

func notSupported(path string, m member, expected string) *Error {
	return badRequest(path, CodeUnsupported, "%s: found %s at byte %d, which is not supported, expected %s",
		path, describe(m.raw), m.at, expected)
}

// RefusedFields lists the names of the fields that are refused unless they are neutral.
func RefusedFields() []string {
	out := make([]string, 0, len(refusals))
	for _, f := range refusals {
		out = append(out, f.name)
	}
	return out
}
