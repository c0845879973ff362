package api_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"baton/internal/api"
	"baton/internal/engine"
	"baton/internal/server/servertest"

	"github.com/google/go-cmp/cmp"
)

var limits = api.Limits{Models: []string{"fake"}, Vocab: servertest.Vocab, Slots: 2, Tokenizer: servertest.Tokenizer{}}

// TestDefaults: an empty request has llama-server's defaults (llama.cpp common/common.h).
func TestDefaults(t *testing.T) {
	r, err := api.ParseNative([]byte(`{"prompt": "x"}`), limits)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Request{MaxTokens: -1, Logprobs: -1, CachePrompt: true, Slot: -1, Sampling: engine.Sampling{
		Seed: -1, Temperature: 0.8, DynatempExponent: 1, TopK: 40, TopP: 0.95, MinP: 0.05, TypicalP: 1,
		TopNSigma: -1, XTCThreshold: 0.1, RepeatLastN: 64, RepeatPenalty: 1,
	}}
	if diff := cmp.Diff(want, r.Generate); diff != "" || r.N != 1 || r.Stream {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFields gives every parameter a value of its own and looks where it went.
func TestFields(t *testing.T) {
	r, err := api.ParseNative([]byte(`{"prompt": "x", "model": "fake", "seed": 9223372036854775807, "temperature": 0, "dynatemp_range": 0.5,
		"dynatemp_exponent": 2, "top_k": 7, "top_p": 0.5, "min_p": 0.25, "typical_p": 0.75, "top_n_sigma": 1.5, "xtc_probability": 0.125,
		"xtc_threshold": 0.375, "repeat_last_n": -1, "repeat_penalty": 1.25, "presence_penalty": -1, "frequency_penalty": 2, "min_keep": 3,
		"logit_bias": [[5, 1.5], [6, false], ["ab", -2]], "stop": ["a", "b"], "n_predict": 10, "ignore_eos": true, "n_probs": 4,
		"cache_prompt": false, "id_slot": 1, "n_cmpl": 2, "stream": true, "return_tokens": true, "timings_per_token": true,
		"return_progress": true, "sse_ping_interval": 3, "stream_options": {"include_usage": true, "unknown": 1},
		"user": "me", "metadata": {"a": "b"}, "store": true, "speculative.n_max": 16, "n_keep": -1, "lora": [], "tools": [], "tool_choice": "auto",
		"response_format": {"type": "text"}, "grammar": "", "mirostat": 0, "dry_multiplier": 0.0, "modalities": ["text"], "best_of": 2,
		"json_schema": null, "echo": false, "suffix": null}`), limits)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Request{
		MaxTokens: 10, Logprobs: 4, Slot: 1, IgnoreEOS: true, Stop: []string{"a", "b"}, Progress: true, Timings: true,
		Sampling: engine.Sampling{
			Seed: math.MaxInt64, DynatempRange: 0.5, DynatempExponent: 2, TopK: 7, TopP: 0.5, MinP: 0.25, TypicalP: 0.75,
			TopNSigma: 1.5, XTCProbability: 0.125, XTCThreshold: 0.375, RepeatLastN: -1, RepeatPenalty: 1.25,
			PresencePenalty: -1, FrequencyPenalty: 2, MinKeep: 3,
			LogitBias: []engine.TokenBias{{Token: 5, Bias: 1.5}, {Token: 6, Bias: float32(math.Inf(-1))}, {Token: 'a', Bias: -2}, {Token: 'b', Bias: -2}},
		},
	}
	if diff := cmp.Diff(want, r.Generate); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.N != 2 || !r.Stream || !r.IncludeUsage || !r.ReturnTokens || !r.TimingsPerToken || !r.ReturnProgress || r.Ping != 3*time.Second {
		t.Errorf("%+v", r)
	}
}

// TestBounds: the ends of every range are accepted, also written as floats.
func TestBounds(t *testing.T) {
	for _, f := range api.NumericFields(limits.Slots) {
		for _, v := range []float64{f.Min, f.Max} {
			lit, _ := json.Marshal(v)
			if v > 1<<53 {
				lit = []byte("9223372036854775807")
			}
			body := `{"prompt": "x", "` + f.Name + `": ` + string(lit) + `}`
			_, err := api.ParseNative([]byte(body), limits)
			if err != nil && err.Code != api.CodeUnsupported {
				t.Errorf("%s = %s: %v", f.Name, lit, err)
			}
		}
	}
	for lit, want := range map[string]int{"5": 5, "5.0": 5, "5e0": 5, "50e-1": 5, "0": 0, "-0": 0, "null": 40} {
		r, err := api.ParseNative([]byte(`{"prompt": "x", "top_k": `+lit+`}`), limits)
		if err != nil || r.Generate.Sampling.TopK != want {
			t.Errorf("top_k %s: %v", lit, err)
		}
	}
}

func TestRandomSeeds(t *testing.T) {
	for lit, want := range map[string]int64{"-1": -1, "4294967295": -1, "null": -1, "0": 0, "4294967296": 4294967296} {
		r, err := api.ParseNative([]byte(`{"prompt": "x", "seed": `+lit+`}`), limits)
		if err != nil || r.Generate.Sampling.Seed != want {
			t.Errorf("seed %s: %v %v", lit, r, err)
		}
	}
}

func TestPrompts(t *testing.T) {
	b := func(s string) (ids []int32) { // the tokenizer's ids are bytes
		for _, c := range []byte(s) {
			ids = append(ids, int32(c))
		}
		return ids
	}
	bos := func(ids []int32) []int32 { return append([]int32{servertest.BOS}, ids...) }
	tests := []struct {
		prompt string
		want   [][]int32
	}{
		{`"hi"`, [][]int32{bos(b("hi"))}},
		{`["hi"]`, [][]int32{bos(b("hi"))}},
		{`[1, 2]`, [][]int32{{1, 2}}},
		{`[[1, 2]]`, [][]int32{{1, 2}}},
		{`["a", "b"]`, [][]int32{bos(b("a")), bos(b("b"))}},
		{`[1, "a", 2, 3, "b"]`, [][]int32{{1, 'a', 2, 3, 'b'}}},
		{`["a", 1]`, [][]int32{{servertest.BOS, 'a', 1}}},
		{`[[1, "a"], "b", {"prompt_string": "c"}]`, [][]int32{{1, 'a'}, bos(b("b")), bos(b("c"))}},
		{`{"prompt_string": "c", "multimodal_data": []}`, [][]int32{bos(b("c"))}},
		{`"</s>"`, [][]int32{{servertest.BOS, servertest.EOS}}},
		{`""`, [][]int32{{servertest.BOS}}},
		{` [ 1 , 2 ] `, [][]int32{{1, 2}}},
	}
	for _, tt := range tests {
		r, err := api.ParseCompletion([]byte(`{"prompt": `+tt.prompt+`}`), limits)
		if err != nil {
			t.Errorf("%s: %v", tt.prompt, err)
			continue
		}
		var got [][]int32
		for _, p := range r.Prompts {
			got = append(got, p.Encode(servertest.Tokenizer{AddBOS: true}))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.prompt, diff)
		}
	}
}

func TestSamplersLeftOutAreOff(t *testing.T) {
	r, err := api.ParseNative([]byte(`{"prompt": "x", "temperature": 0.5, "xtc_probability": 0.5, "samplers": ["top_k", "typical_p"]}`), limits)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.DefaultSampling()
	want.RepeatLastN, want.TopP, want.MinP, want.XTCProbability, want.Temperature = 0, 1, 0, 0, 1
	if diff := cmp.Diff(want, r.Generate.Sampling); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all := `["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]`
	r, err = api.ParseNative([]byte(`{"prompt": "x", "samplers": `+all+`}`), limits)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(engine.DefaultSampling(), r.Generate.Sampling); diff != "" {
		t.Errorf("all samplers (-want +got):\n%s", diff)
	}
}

func TestLogprobs(t *testing.T) {
	chat := func(f string) (*api.Request, *api.Error) {
		return api.ParseChat([]byte(`{"messages": [{"role": "user", "content": "x"}]`+f+`}`), limits)
	}
	text := func(f string) (*api.Request, *api.Error) {
		return api.ParseCompletion([]byte(`{"prompt": "x"`+f+`}`), limits)
	}
	native := func(f string) (*api.Request, *api.Error) {
		return api.ParseNative([]byte(`{"prompt": "x"`+f+`}`), limits)
	}
	for _, tt := range []struct {
		parse  func(string) (*api.Request, *api.Error)
		fields string
		want   int
	}{
		{chat, ``, -1}, {chat, `, "logprobs": false`, -1}, {chat, `, "logprobs": true`, 0},
		{chat, `, "logprobs": true, "top_logprobs": 3`, 3}, {chat, `, "n_probs": 2`, 2}, {chat, `, "logprobs": null, "top_logprobs": null`, -1},
		{text, ``, -1}, {text, `, "logprobs": 0`, 0}, {text, `, "logprobs": 5`, 5}, {text, `, "logprobs": null`, -1},
		{native, `, "n_probs": 0`, -1}, {native, `, "n_probs": 5`, 5}, {native, `, "logprobs": 0`, -1}, {native, `, "logprobs": 3`, 3},
	} {
		r, err := tt.parse(tt.fields)
		if err != nil || r.Generate.Logprobs != tt.want {
			t.Errorf("%s: %v, want %d", tt.fields, err, tt.want)
		}
	}
}

func TestMessages(t *testing.T) {
	const user = `{"role": "user", "content": "u"}`
	tests := []struct {
		name, body string
		want       api.Messages
	}{
		{"kept as they are", `{"messages": [` + user + `, {"role":"assistant","content":null,"reasoning_content":"r"} , ` + user + `]}`,
			api.Messages{JSON: []byte(`[` + user + `,{"role":"assistant","content":null,"reasoning_content":"r"},` + user + `]`), AddGenerationPrompt: true}},
		{"developer", `{"messages": [{"content": "d", "role" :  "developer", "name": "x"}]}`,
			api.Messages{JSON: []byte(`[{"content": "d", "role" :  "system", "name": "x"}]`), AddGenerationPrompt: true}},
		{"continued", `{"messages": [` + user + `, {"role": "assistant", "content": [{"type": "text", "text": "So"}, {"type": "text", "text": ","}]}]}`,
			api.Messages{JSON: []byte(`[` + user + `]`), Continue: "So,", AddGenerationPrompt: true}},
		{"not continued", `{"continue_final_message": false, "messages": [` + user + `, {"role": "assistant", "content": "a"}]}`,
			api.Messages{JSON: []byte(`[` + user + `,{"role": "assistant", "content": "a"}]`), AddGenerationPrompt: true}},
		{"finished", `{"add_generation_prompt": false, "messages": [` + user + `, {"role": "assistant", "content": "a"}]}`,
			api.Messages{JSON: []byte(`[` + user + `,{"role": "assistant", "content": "a"}]`)}},
		{"variables", `{"messages": [` + user + `], "chat_template_kwargs": {"enable_thinking": true, "b": [1]}, "reasoning_effort": "none"}`,
			api.Messages{JSON: []byte(`[` + user + `]`), AddGenerationPrompt: true, Kwargs: []byte(`{"b":[1],"enable_thinking":false}`)}},
		{"effort", `{"messages": [` + user + `], "reasoning_effort": "low"}`,
			api.Messages{JSON: []byte(`[` + user + `]`), AddGenerationPrompt: true, Kwargs: []byte(`{"reasoning_effort":"low"}`)}},
	}
	for _, tt := range tests {
		m, err := api.ParseTemplate([]byte(tt.body), limits)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(&tt.want, m); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestErrorPlaces: an error says where in the body its value stands.
func TestErrorPlaces(t *testing.T) {
	for body, want := range map[string]string{
		`{"prompt": "x", "top_p": "hot"}`:                            `top_p: found the string "hot" at byte 25, expected a number from 0 to 1`,
		`{"prompt": "x", "top_k": 1.5}`:                              `top_k: found 1.5 at byte 25, expected an integer from -1 to 2147483647`,
		`{"stop": ["a", 5], "prompt": "x"}`:                          `stop[1]: found 5 at byte 15, expected a string`,
		`{"prompt": {"prompt_string": 5}}`:                           `prompt.prompt_string: found 5 at byte 29, expected a string`,
		`{"prompt": "x", "tools": [1]}`:                              `tools: found an array at byte 25, which is not supported, expected no tools (tool calls are not supported yet)`,
		`{"prompt": "x", "temperature": NaN}`:                        `temperature: invalid JSON at byte 31: invalid character 'N' looking for beginning of value`,
		`{"a": {"b": 1}, "top_p": tru}`:                              `top_p: invalid JSON at byte 28: invalid character '}' in literal true (expecting 'e')`,
		`{"prompt": "x", "echo": "` + strings.Repeat("é", 40) + `"}`: `echo: found the string "` + strings.Repeat("é", 19) + `... at byte 24, which is not supported, expected false`,
	} {
		_, err := api.ParseNative([]byte(body), limits)
		if err == nil || err.Message != want {
			t.Errorf("%s:\n got %v\nwant %s", body, err, want)
		}
	}
}

func TestErrorJSON(t *testing.T) {
	for _, tt := range []struct {
		err  *api.Error
		want string
	}{
		{&api.Error{Message: "m", Type: "t"}, `{"error":{"message":"m","type":"t","param":null,"code":null}}`},
		{api.FromEngine(engine.TooLong(9, 8)), `{"error":{"message":"the prompt has 9 tokens, the context of a slot 8: shorten the prompt or start with a larger -c","type":"exceed_context_size_error","param":"prompt","code":"context_length_exceeded","n_prompt_tokens":9,"n_ctx":8}}`},
	} {
		b, err := json.Marshal(tt.err)
		if err != nil || string(b) != tt.want {
			t.Errorf("got %s %v\nwant %s", b, err, tt.want)
		}
	}
}

func TestImprobable(t *testing.T) {
	r, err := api.ParseNative([]byte(`{"prompt": "x", "n_probs": 2}`), limits)
	if err != nil {
		t.Fatal(err)
	}
	enc := api.NewEncoder(r, api.Reply{Tokenizer: servertest.Tokenizer{}})
	c := api.NewChoice(r, 0, []int32{1})
	ev := engine.Event{Kind: engine.Token, Token: 'a', Logprob: engine.TokenLogprob{Token: 'a', Logprob: float32(math.NaN())},
		Top: []engine.TokenLogprob{{Token: 'b', Logprob: float32(math.Inf(-1))}}}
	c.Add(ev)
	b, jerr := json.Marshal(enc.Event(c, ev))
	if jerr != nil || strings.Count(string(b), "-9999") != 2 {
		t.Errorf("%s %v", b, jerr)
	}
}
