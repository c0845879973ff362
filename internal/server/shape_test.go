package server_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"baton/internal/server"
	"baton/internal/server/servertest"

	"github.com/google/go-cmp/cmp"
)

// post sends a body and returns the answer.
func (s *started) post(t *testing.T, path, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (s *started) get(t *testing.T, path string) (int, []byte) {
	t.Helper()
	resp, err := s.client.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, readAll(t, resp)
}

func readAll(t *testing.T, resp *http.Response) []byte {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// normal decodes JSON and blanks what differs from run to run.
func normal(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	if m, ok := v.(map[string]any); ok {
		if id, ok := m["id"].(string); ok {
			prefix, rest, _ := strings.Cut(id, "-")
			if len(rest) < 20 {
				t.Errorf("id %q is short", id)
			}
			m["id"] = prefix
		}
		if at, ok := m["created"].(float64); ok {
			if at < 1.7e9 {
				t.Errorf("created = %v", at)
			}
			m["created"] = 0.0
		}
	}
	return v
}

// events reads the data of a stream's events, and fails unless each is well formed.
func events(t *testing.T, r io.Reader) []string {
	t.Helper()
	var out []string
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		switch line := sc.Text(); {
		case line == "", strings.HasPrefix(line, ":"), strings.HasPrefix(line, "event: "):
		case strings.HasPrefix(line, "data: "):
			out = append(out, strings.TrimPrefix(line, "data: "))
		default:
			t.Errorf("line %q is no server-sent event", line)
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// The fake engine takes 2 ms for a prompt token and 4 ms between generated ones; its reply
// of four bytes is three characters.
const (
	reply   = "Hé!"
	timings = `{"cache_n": 0, "prompt_n": 2, "prompt_ms": 4, "prompt_per_token_ms": 2, "prompt_per_second": 500,
		"predicted_n": 4, "predicted_ms": 12, "predicted_per_token_ms": 4, "predicted_per_second": 250, "queue_ms": 1}`
	usage2 = `{"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 0}}`
)

// TestShapes compares whole answers with ones written by hand after OpenAI's API reference
// and llama.cpp's tools/server/README.md.
func TestShapes(t *testing.T) {
	tests := []struct{ name, path, body, want string }{
		{"completion", "/v1/completions", `{"prompt": "hi"}`, `{
			"id": "cmpl", "object": "text_completion", "created": 0, "model": "fake", "system_fingerprint": "baton-test",
			"choices": [{"index": 0, "text": "Hé!", "logprobs": null, "finish_reason": "stop"}],
			"usage": ` + usage2 + `, "timings": ` + timings + `}`},
		{"completion with probabilities", "/v1/completions", `{"prompt": "hi", "logprobs": 2, "max_tokens": 3}`, `{
			"id": "cmpl", "object": "text_completion", "created": 0, "model": "fake", "system_fingerprint": "baton-test",
			"choices": [{"index": 0, "text": "Hé", "finish_reason": "length", "logprobs": {
				"tokens": ["H", "\ufffd", "\ufffd"],
				"token_logprobs": [-0.5, -0.5, -0.5],
				"top_logprobs": [{"H": -0.5, "I": -1.5}, {"\ufffd": -0.5}, {"\ufffd": -0.5}],
				"text_offset": [0, 1, 2],
				"content": [
					{"id": 72, "token": "H", "bytes": [72], "logprob": -0.5, "top_logprobs": [
						{"id": 72, "token": "H", "bytes": [72], "logprob": -0.5}, {"id": 73, "token": "I", "bytes": [73], "logprob": -1.5}]},
					{"id": 195, "token": "\ufffd", "bytes": [195], "logprob": -0.5, "top_logprobs": [
						{"id": 195, "token": "\ufffd", "bytes": [195], "logprob": -0.5}, {"id": 196, "token": "\ufffd", "bytes": [196], "logprob": -1.5}]},
					{"id": 169, "token": "\ufffd", "bytes": [169], "logprob": -0.5, "top_logprobs": [
						{"id": 169, "token": "\ufffd", "bytes": [169], "logprob": -0.5}, {"id": 170, "token": "\ufffd", "bytes": [170], "logprob": -1.5}]}
				]}}],
			"usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}},
			"timings": {"cache_n": 0, "prompt_n": 2, "prompt_ms": 4, "prompt_per_token_ms": 2, "prompt_per_second": 500,
				"predicted_n": 3, "predicted_ms": 8, "predicted_per_token_ms": 4, "predicted_per_second": 250, "queue_ms": 1}}`},
		{"two prompts, two choices", "/v1/completions", `{"prompt": ["a", "bc"], "n": 2, "max_tokens": 1, "seed": 5}`, `{
			"id": "cmpl", "object": "text_completion", "created": 0, "model": "fake", "system_fingerprint": "baton-test",
			"choices": [
				{"index": 0, "text": "H", "logprobs": null, "finish_reason": "length", "timings": {"cache_n": 0, "prompt_n": 1, "prompt_ms": 2, "prompt_per_token_ms": 2, "prompt_per_second": 500, "predicted_n": 1, "predicted_ms": 0, "predicted_per_token_ms": 0, "predicted_per_second": 0, "queue_ms": 1}},
				{"index": 1, "text": "H", "logprobs": null, "finish_reason": "length", "timings": {"cache_n": 0, "prompt_n": 1, "prompt_ms": 2, "prompt_per_token_ms": 2, "prompt_per_second": 500, "predicted_n": 1, "predicted_ms": 0, "predicted_per_token_ms": 0, "predicted_per_second": 0, "queue_ms": 1}},
				{"index": 2, "text": "H", "logprobs": null, "finish_reason": "length", "timings": {"cache_n": 0, "prompt_n": 2, "prompt_ms": 4, "prompt_per_token_ms": 2, "prompt_per_second": 500, "predicted_n": 1, "predicted_ms": 0, "predicted_per_token_ms": 0, "predicted_per_second": 0, "queue_ms": 1}},
				{"index": 3, "text": "H", "logprobs": null, "finish_reason": "length", "timings": {"cache_n": 0, "prompt_n": 2, "prompt_ms": 4, "prompt_per_token_ms": 2, "prompt_per_second": 500, "predicted_n": 1, "predicted_ms": 0, "predicted_per_token_ms": 0, "predicted_per_second": 0, "queue_ms": 1}}],
			"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 0}}}`},
		{"chat", "/v1/chat/completions", `{"model": "fake", "messages": [{"role": "user", "content": "hi"}], "logprobs": true, "max_completion_tokens": 1}`, `{
			"id": "chatcmpl", "object": "chat.completion", "created": 0, "model": "fake", "system_fingerprint": "baton-test",
			"choices": [{"index": 0, "message": {"role": "assistant", "content": "H", "refusal": null}, "finish_reason": "length",
				"logprobs": {"content": [{"id": 72, "token": "H", "bytes": [72], "logprob": -0.5, "top_logprobs": []}], "refusal": null}}],
			"usage": {"prompt_tokens": 21, "completion_tokens": 1, "total_tokens": 22, "prompt_tokens_details": {"cached_tokens": 0}},
			"timings": {"cache_n": 0, "prompt_n": 21, "prompt_ms": 42, "prompt_per_token_ms": 2, "prompt_per_second": 500,
				"predicted_n": 1, "predicted_ms": 0, "predicted_per_token_ms": 0, "predicted_per_second": 0, "queue_ms": 1}}`},
		{"native", "/completion", `{"prompt": "hi", "stop": ["!"], "seed": 42, "temperature": 0.5, "return_tokens": true}`, `{
			"index": 0, "content": "Hé", "tokens": [72, 195, 169], "id_slot": 0, "stop": true, "model": "fake",
			"tokens_predicted": 4, "tokens_evaluated": 2, "prompt": "hi", "has_new_line": false, "truncated": false,
			"stop_type": "word", "stopping_word": "!", "tokens_cached": 0, "timings": ` + timings + `,
			"generation_settings": {"n_ctx": 512, "model": "fake", "seed": 42, "temperature": 0.5, "dynatemp_range": 0, "dynatemp_exponent": 1,
				"top_k": 40, "top_p": 0.95, "min_p": 0.05, "top_n_sigma": -1, "xtc_probability": 0, "xtc_threshold": 0.1, "typical_p": 1,
				"repeat_last_n": 64, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "stop": ["!"],
				"max_tokens": -1, "n_predict": -1, "ignore_eos": false, "stream": false, "logit_bias": [], "n_probs": 0, "min_keep": 0,
				"samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
				"timings_per_token": false}}`},
		{"native, chosen fields", "/completion", `{"prompt": "hi", "n_probs": 1, "n_predict": 1, "response_fields": ["content", "generation_settings/n_probs", "completion_probabilities", "nothing", "content/x"]}`, `{
			"content": "H", "generation_settings/n_probs": 1,
			"completion_probabilities": [{"id": 72, "token": "H", "bytes": [72], "logprob": -0.5, "top_logprobs": [{"id": 72, "token": "H", "bytes": [72], "logprob": -0.5}]}]}`},
		{"native, two prompts", "/completion", `{"prompt": [[104], [105, "i"]], "n_predict": 1, "response_fields": ["index", "prompt", "stop_type"]}`,
			`[{"index": 0, "prompt": "h", "stop_type": "limit"}, {"index": 1, "prompt": "ii", "stop_type": "limit"}]`},
		{"tokenize", "/tokenize", `{"content": "é<|im_end|>", "with_pieces": true}`,
			`{"tokens": [{"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}, {"id": 259, "piece": "<|im_end|>"}]}`},
		{"tokenize nothing", "/tokenize", `{"content": ""}`, `{"tokens": []}`},
		{"tokenize plainly", "/tokenize", `{"content": "</s>", "parse_special": false}`, `{"tokens": [60, 47, 115, 62]}`},
		{"detokenize", "/detokenize", `{"tokens": [72, 195, 169, 195, 257]}`, `{"content": "Hé\ufffd</s>"}`},
		{"template", "/apply-template", `{"messages": [{"role": "developer", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]}`,
			`{"prompt": "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"}`},
		{"template continued", "/apply-template", `{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "So,"}]}`,
			`{"prompt": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nSo,"}`},
		{"template without prompt", "/apply-template", `{"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": false, "chat_template_kwargs": {"a": 1}, "enable_thinking": false}`,
			`{"prompt": "<|im_start|>user\nhi<|im_end|>\n{\"a\":1,\"enable_thinking\":false}"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, server.Config{}, &servertest.Engine{Reply: reply, Slots: 1})
			if strings.Contains(tt.name, "two prompts") {
				// The fake's cache would depend on which choice comes first.
				tt.body = strings.TrimSuffix(tt.body, "}") + `, "cache_prompt": false}`
			}
			resp := s.post(t, tt.path, tt.body)
			b := readAll(t, resp)
			if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
				t.Fatalf("%d %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), b)
			}
			var want any
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, normal(t, b)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestStreams compares streams event by event.
func TestStreams(t *testing.T) {
	head := func(object, prefix string) string {
		return `{"id": "` + prefix + `", "object": "` + object + `", "created": 0, "model": "fake", "system_fingerprint": "baton-test", `
	}
	chat := head("chat.completion.chunk", "chatcmpl")
	delta := func(d, finish string) string {
		return chat + `"choices": [{"index": 0, "delta": ` + d + `, "logprobs": null, "finish_reason": ` + finish + `}]`
	}
	textChunk := func(s, finish string) string {
		return head("text_completion", "cmpl") + `"choices": [{"index": 0, "text": "` + s + `", "logprobs": null, "finish_reason": ` + finish + `}]`
	}
	chatTimings := `{"cache_n": 0, "prompt_n": 21, "prompt_ms": 42, "prompt_per_token_ms": 2, "prompt_per_second": 500,
		"predicted_n": 4, "predicted_ms": 12, "predicted_per_token_ms": 4, "predicted_per_second": 250, "queue_ms": 1}`
	const message = `"messages": [{"role": "user", "content": "hi"}]`
	opening := []string{
		delta(`{"role": "assistant", "content": ""}`, "null") + "}", delta(`{"content": "H"}`, "null") + "}",
		delta(`{"content": "é"}`, "null") + "}", delta(`{"content": "!"}`, "null") + "}",
	}
	tests := []struct {
		name, path, body string
		want             []string
	}{
		{"chat", "/v1/chat/completions", `{"stream": true, ` + message + `}`,
			append(opening[:4:4], delta(`{}`, `"stop"`)+`, "timings": `+chatTimings+`}`, "[DONE]")},
		{"chat with usage", "/v1/chat/completions", `{"stream": true, "stream_options": {"include_usage": true}, ` + message + `}`,
			append(opening[:4:4], delta(`{}`, `"stop"`)+"}",
				chat+`"choices": [], "usage": {"prompt_tokens": 21, "completion_tokens": 4, "total_tokens": 25, "prompt_tokens_details": {"cached_tokens": 0}}, "timings": `+chatTimings+`}`,
				"[DONE]")},
		{"chat, usage not wanted", "/v1/chat/completions", `{"stream": true, "stream_options": {"include_usage": false}, ` + message + `}`,
			append(opening[:4:4], delta(`{}`, `"stop"`)+`, "timings": `+chatTimings+`}`, "[DONE]")},
		{"completion, stop string held back", "/v1/completions", `{"stream": true, "prompt": "hi", "stop": "!?"}`,
			[]string{textChunk("H", "null") + "}", textChunk("é", "null") + "}", textChunk("!", `"stop"`) + `, "timings": ` + timings + `}`, "[DONE]"}},
		{"native", "/completion", `{"stream": true, "prompt": "hi", "n_predict": 2, "return_progress": true, "timings_per_token": true, "response_fields": ["stop", "tokens_predicted", "content"]}`,
			[]string{
				`{"index": 0, "content": "", "tokens": [], "stop": false, "tokens_predicted": 0, "tokens_evaluated": 2, "prompt_progress": {"total": 2, "cache": 0, "processed": 0, "time_ms": 4}}`,
				`{"index": 0, "content": "H", "tokens": [72], "stop": false, "tokens_predicted": 1, "tokens_evaluated": 2, "timings": {"cache_n": 0, "prompt_n": 2, "prompt_ms": 4, "prompt_per_token_ms": 2, "prompt_per_second": 500, "predicted_n": 1, "predicted_ms": 0, "predicted_per_token_ms": 0, "predicted_per_second": 0, "queue_ms": 1}}`,
				`{"index": 0, "content": "", "tokens": [195], "stop": false, "tokens_predicted": 2, "tokens_evaluated": 2, "timings": {"cache_n": 0, "prompt_n": 2, "prompt_ms": 4, "prompt_per_token_ms": 2, "prompt_per_second": 500, "predicted_n": 2, "predicted_ms": 4, "predicted_per_token_ms": 4, "predicted_per_second": 250, "queue_ms": 1}}`,
				`{"stop": true, "tokens_predicted": 2, "content": "\ufffd"}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, server.Config{}, &servertest.Engine{Reply: reply})
			resp := s.post(t, tt.path, tt.body)
			if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || !strings.HasPrefix(ct, "text/event-stream") {
				t.Fatalf("%d %s", resp.StatusCode, ct)
			}
			got := events(t, resp.Body)
			if len(got) != len(tt.want) {
				t.Fatalf("%d events, want %d:\n%s", len(got), len(tt.want), strings.Join(got, "\n"))
			}
			for i := range got {
				if tt.want[i] == "[DONE]" {
					if got[i] != "[DONE]" {
						t.Errorf("event %d: %s, want [DONE]", i, got[i])
					}
					continue
				}
				var want any
				if err := json.Unmarshal([]byte(tt.want[i]), &want); err != nil {
					t.Fatalf("want %d: %v", i, err)
				}
				if diff := cmp.Diff(want, normal(t, []byte(got[i]))); diff != "" {
					t.Errorf("event %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}
