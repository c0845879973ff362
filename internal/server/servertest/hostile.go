package servertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"baton/internal/api"
)

// Case is a request that a server must refuse clearly and survive.
type Case struct {
	Name   string
	Method string // default POST
	Path   string
	Body   string
	Header map[string]string
	Status int
	// Says are pieces that the error's message must contain: the field at fault above
	// all.
	Says []string
}

const (
	chatPath   = "/v1/chat/completions"
	textPath   = "/v1/completions"
	nativePath = "/completion"
)

// chat is a body of chatPath with further fields.
func chat(fields string) string {
	return `{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1` + fields + `}`
}

// text is a body of textPath and nativePath with further fields.
func text(fields string) string { return `{"prompt": "hi", "max_tokens": 1` + fields + `}` }

// Hostile returns requests that are wrong for every model.
func Hostile() []Case {
	list := []Case{
		{Name: "empty body", Path: chatPath, Body: "", Status: 400, Says: []string{"body", "JSON object"}},
		{Name: "blank body", Path: chatPath, Body: " \n\t ", Status: 400, Says: []string{"body"}},
		{Name: "no JSON", Path: chatPath, Body: "hello", Status: 400, Says: []string{"body", "byte 0"}},
		{Name: "array body", Path: chatPath, Body: "[]", Status: 400, Says: []string{"body", "an array", "JSON object"}},
		{Name: "string body", Path: textPath, Body: `"hi"`, Status: 400, Says: []string{"body", "JSON object"}},
		{Name: "null body", Path: nativePath, Body: `null`, Status: 400, Says: []string{"body", "null"}},
		{Name: "cut JSON", Path: textPath, Body: `{"prompt": "hi", "temper`, Status: 400, Says: []string{"invalid JSON"}},
		{Name: "cut value", Path: textPath, Body: `{"prompt": "hi", "temperature": 0.`, Status: 400, Says: []string{"temperature", "invalid JSON"}},
		{Name: "trailing garbage", Path: textPath, Body: text("") + "x", Status: 400, Says: []string{"invalid JSON", "'x'"}},
		{Name: "two objects", Path: textPath, Body: text("") + text(""), Status: 400, Says: []string{"invalid JSON"}},
		{Name: "single quotes", Path: textPath, Body: `{'prompt': 'hi'}`, Status: 400, Says: []string{"invalid JSON"}},
		{Name: "trailing comma", Path: textPath, Body: `{"prompt": "hi",}`, Status: 400, Says: []string{"invalid JSON"}},
		{Name: "comment", Path: textPath, Body: "{\"prompt\": \"hi\" /* no */}", Status: 400, Says: []string{"prompt", "invalid JSON"}},
		{Name: "NUL byte", Path: textPath, Body: "{\"prompt\": \"h\x00i\"}", Status: 400, Says: []string{"prompt", "invalid JSON"}},
		{Name: "byte order mark", Path: textPath, Body: "\uFEFF" + text(""), Status: 400, Says: []string{"invalid JSON"}},
		{Name: "invalid UTF-8 in the prompt", Path: textPath, Body: "{\"prompt\": \"\xff\xfe\"}", Status: 400, Says: []string{"prompt", "UTF-8", "byte 12"}},
		{Name: "invalid UTF-8 in a message", Path: chatPath, Body: "{\"messages\": [{\"role\": \"user\", \"content\": \"\xc3(\"}]}", Status: 400, Says: []string{"messages", "UTF-8"}},
		{Name: "surrogate in UTF-8", Path: textPath, Body: "{\"prompt\": \"\xed\xa0\x80\"}", Status: 400, Says: []string{"prompt", "UTF-8"}},
		{Name: "duplicate field", Path: textPath, Body: `{"prompt": "a", "prompt": "b"}`, Status: 400, Says: []string{"prompt", "twice"}},
		{Name: "duplicate field, escaped", Path: textPath, Body: `{"prompt": "a", "pr\u006fmpt": "b"}`, Status: 400, Says: []string{"prompt", "twice"}},
		{Name: "duplicate role", Path: chatPath, Body: `{"messages": [{"role": "user", "role": "system", "content": "x"}]}`, Status: 400, Says: []string{"messages[0].role", "twice"}},
		{Name: "deep arrays", Path: textPath, Body: `{"prompt": ` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `}`, Status: 400, Says: []string{"prompt", "nested"}},
		{Name: "deep objects", Path: chatPath, Body: `{"metadata": ` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000) + `}`, Status: 400, Says: []string{"metadata", "nested"}},
		{Name: "deep and open", Path: textPath, Body: strings.Repeat("[", 1<<20), Status: 400, Says: []string{"nested"}},
		{Name: "too many fields", Path: textPath, Body: manyFields(20000), Status: 400, Says: []string{"fields"}},

		{Name: "no messages", Path: chatPath, Body: `{}`, Status: 400, Says: []string{"messages", "found nothing"}},
		{Name: "null messages", Path: chatPath, Body: `{"messages": null}`, Status: 400, Says: []string{"messages"}},
		{Name: "empty messages", Path: chatPath, Body: `{"messages": []}`, Status: 400, Says: []string{"messages", "found 0"}},
		{Name: "messages as string", Path: chatPath, Body: `{"messages": "hi"}`, Status: 400, Says: []string{"messages", `"hi"`, "array"}},
		{Name: "messages as object", Path: chatPath, Body: `{"messages": {"role": "user"}}`, Status: 400, Says: []string{"messages", "an object"}},
		{Name: "message as string", Path: chatPath, Body: `{"messages": ["hi"]}`, Status: 400, Says: []string{"messages[0]", "an object"}},
		{Name: "message null", Path: chatPath, Body: `{"messages": [null]}`, Status: 400, Says: []string{"messages[0]", "null"}},
		{Name: "no role", Path: chatPath, Body: `{"messages": [{"content": "hi"}]}`, Status: 400, Says: []string{"messages[0].role"}},
		{Name: "role as number", Path: chatPath, Body: `{"messages": [{"role": 1, "content": "hi"}]}`, Status: 400, Says: []string{"messages[0].role", "found 1"}},
		{Name: "unknown role", Path: chatPath, Body: `{"messages": [{"role": "root", "content": "hi"}]}`, Status: 400, Says: []string{"messages[0].role", "root"}},
		{Name: "tool role", Path: chatPath, Body: `{"messages": [{"role": "user", "content": "hi"}, {"role": "tool", "content": "1", "tool_call_id": "a"}]}`, Status: 400, Says: []string{"messages[1].role", "not supported"}},
		{Name: "no content", Path: chatPath, Body: `{"messages": [{"role": "user"}]}`, Status: 400, Says: []string{"messages[0].content"}},
		{Name: "null content", Path: chatPath, Body: `{"messages": [{"role": "user", "content": null}]}`, Status: 400, Says: []string{"messages[0].content"}},
		{Name: "content as number", Path: chatPath, Body: `{"messages": [{"role": "user", "content": 5}]}`, Status: 400, Says: []string{"messages[0].content", "found 5"}},
		{Name: "content part as string", Path: chatPath, Body: `{"messages": [{"role": "user", "content": ["hi"]}]}`, Status: 400, Says: []string{"messages[0].content[0]"}},
		{Name: "content part without type", Path: chatPath, Body: `{"messages": [{"role": "user", "content": [{"text": "hi"}]}]}`, Status: 400, Says: []string{"messages[0].content[0].type"}},
		{Name: "content part without text", Path: chatPath, Body: `{"messages": [{"role": "user", "content": [{"type": "text"}]}]}`, Status: 400, Says: []string{"messages[0].content[0].text"}},
		{Name: "image part", Path: chatPath, Body: `{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]}`, Status: 400, Says: []string{"messages[0].content[0].type", "image_url", "not supported"}},
		{Name: "audio part", Path: chatPath, Body: `{"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}]}`, Status: 400, Says: []string{"messages[0].content[0].type", "input_audio"}},
		{Name: "tool calls in history", Path: chatPath, Body: `{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]}`, Status: 400, Says: []string{"messages[1].tool_calls", "not supported"}},
		{Name: "two assistants at the end", Path: chatPath, Body: `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}]}`, Status: 400, Says: []string{"messages[2]", "two assistant"}},
		{Name: "prompt in a chat", Path: chatPath, Body: chat(`, "prompt": "x"`), Status: 400, Says: []string{"prompt"}},
		{Name: "template variable of the server's", Path: chatPath, Body: chat(`, "chat_template_kwargs": {"messages": []}`), Status: 400, Says: []string{"chat_template_kwargs.messages"}},
		{Name: "template variables as string", Path: chatPath, Body: chat(`, "chat_template_kwargs": "x"`), Status: 400, Says: []string{"chat_template_kwargs", "an object"}},
		{Name: "enable_thinking as string", Path: chatPath, Body: chat(`, "chat_template_kwargs": {"enable_thinking": "no"}`), Status: 400, Says: []string{"chat_template_kwargs.enable_thinking"}},
		{Name: "unknown effort", Path: chatPath, Body: chat(`, "reasoning_effort": "extreme"`), Status: 400, Says: []string{"reasoning_effort", "extreme"}},
		{Name: "continue nothing", Path: chatPath, Body: chat(`, "continue_final_message": true`), Status: 400, Says: []string{"continue_final_message"}},

		{Name: "no prompt", Path: textPath, Body: `{}`, Status: 400, Says: []string{"prompt", "found nothing"}},
		{Name: "no prompt, native", Path: nativePath, Body: `{"n_predict": 1}`, Status: 400, Says: []string{"prompt"}},
		{Name: "prompt as number", Path: textPath, Body: `{"prompt": 5}`, Status: 400, Says: []string{"prompt", "found 5"}},
		{Name: "prompt as bool", Path: nativePath, Body: `{"prompt": true}`, Status: 400, Says: []string{"prompt", "true"}},
		{Name: "empty prompt array", Path: textPath, Body: `{"prompt": []}`, Status: 400, Says: []string{"prompt", "empty array"}},
		{Name: "empty prompt in a batch", Path: textPath, Body: `{"prompt": ["a", []]}`, Status: 400, Says: []string{"prompt[1]", "empty array"}},
		{Name: "negative token", Path: textPath, Body: `{"prompt": [1, -1]}`, Status: 400, Says: []string{"prompt[1]", "-1"}},
		{Name: "token out of the vocabulary", Path: nativePath, Body: `{"prompt": [2147483647]}`, Status: 400, Says: []string{"prompt[0]", "2147483647"}},
		{Name: "fractional token", Path: nativePath, Body: `{"prompt": [1.5]}`, Status: 400, Says: []string{"prompt[0]", "1.5"}},
		{Name: "huge token", Path: nativePath, Body: `{"prompt": [1e300]}`, Status: 400, Says: []string{"prompt[0]"}},
		{Name: "null in a prompt", Path: textPath, Body: `{"prompt": [1, null]}`, Status: 400, Says: []string{"prompt[1]", "null"}},
		{Name: "array in a token prompt", Path: textPath, Body: `{"prompt": [1, [2]]}`, Status: 400, Says: []string{"prompt[1]", "an array"}},
		{Name: "prompt object without text", Path: nativePath, Body: `{"prompt": {}}`, Status: 400, Says: []string{"prompt", "prompt_string"}},
		{Name: "media in a prompt", Path: nativePath, Body: `{"prompt": {"prompt_string": "x", "multimodal_data": ["AAAA"]}}`, Status: 400, Says: []string{"prompt.multimodal_data", "not supported"}},
		{Name: "too many prompts", Path: textPath, Body: `{"prompt": [` + strings.Repeat(`"a",`, 64) + `"a"]}`, Status: 400, Says: []string{"prompt", "64"}},
		{Name: "too many prompts times n", Path: textPath, Body: `{"n": 8, "prompt": [` + strings.Repeat(`"a",`, 9) + `"a"]}`, Status: 400, Says: []string{"prompt", "n = 8"}},
		{Name: "prompt longer than the context", Path: textPath, Body: `{"prompt": "` + strings.Repeat("the cat ", 100000) + `"}`, Status: 400, Says: []string{"tokens", "context"}},
		{Name: "chat longer than the context", Path: chatPath, Body: `{"messages": [{"role": "user", "content": "` + strings.Repeat("the cat ", 100000) + `"}]}`, Status: 400, Says: []string{"tokens", "context"}},
		{Name: "10 MB body", Path: nativePath, Body: `{"prompt": "` + strings.Repeat("a b ", 10<<20/4) + `"}`, Status: 400, Says: []string{"tokens", "context"}},
		{Name: "body over the limit", Path: nativePath, Body: `{"prompt": "` + strings.Repeat("a b ", 17<<20/4) + `"}`, Status: 413, Says: []string{"body", "at most"}},
		{Name: "compressed body", Path: textPath, Body: "\x1f\x8b", Header: map[string]string{"Content-Encoding": "gzip"}, Status: 415, Says: []string{"gzip"}},

		{Name: "unknown model", Path: chatPath, Body: chat(`, "model": "gpt-17"`), Status: 404, Says: []string{"model", "gpt-17"}},
		{Name: "unknown model, completion", Path: textPath, Body: text(`, "model": "gpt-17"`), Status: 404, Says: []string{"model", "gpt-17"}},
		{Name: "model as number", Path: chatPath, Body: chat(`, "model": 1`), Status: 400, Says: []string{"model", "found 1"}},
		{Name: "stream as string", Path: chatPath, Body: chat(`, "stream": "yes"`), Status: 400, Says: []string{"stream", `"yes"`, "true or false"}},
		{Name: "stream as number", Path: nativePath, Body: text(`, "stream": 1`), Status: 400, Says: []string{"stream", "found 1"}},
		{Name: "stream_options as bool", Path: chatPath, Body: chat(`, "stream_options": true`), Status: 400, Says: []string{"stream_options", "an object"}},
		{Name: "include_usage as string", Path: chatPath, Body: chat(`, "stream_options": {"include_usage": "yes"}`), Status: 400, Says: []string{"stream_options.include_usage"}},
		{Name: "stop as number", Path: chatPath, Body: chat(`, "stop": 5`), Status: 400, Says: []string{"stop", "found 5"}},
		{Name: "empty stop", Path: chatPath, Body: chat(`, "stop": ""`), Status: 400, Says: []string{"stop", "found 0 bytes"}},
		{Name: "empty stop in a list", Path: chatPath, Body: chat(`, "stop": ["a", ""]`), Status: 400, Says: []string{"stop[1]"}},
		{Name: "number in stop", Path: textPath, Body: text(`, "stop": ["a", 1]`), Status: 400, Says: []string{"stop[1]", "found 1"}},
		{Name: "many stops", Path: textPath, Body: text(`, "stop": [` + strings.Repeat(`"a",`, 16) + `"a"]`), Status: 400, Says: []string{"stop", "16"}},
		{Name: "long stop", Path: textPath, Body: text(`, "stop": "` + strings.Repeat("a", 2000) + `"`), Status: 400, Says: []string{"stop", "2000"}},
		{Name: "logprobs as number in a chat", Path: chatPath, Body: chat(`, "logprobs": 5`), Status: 400, Says: []string{"logprobs", "found 5"}},
		{Name: "top_logprobs alone", Path: chatPath, Body: chat(`, "top_logprobs": 2`), Status: 400, Says: []string{"top_logprobs", "logprobs to be true"}},
		{Name: "many top_logprobs", Path: chatPath, Body: chat(`, "logprobs": true, "top_logprobs": 21`), Status: 400, Says: []string{"top_logprobs", "21"}},
		{Name: "logprobs as bool in a completion", Path: textPath, Body: text(`, "logprobs": true`), Status: 400, Says: []string{"logprobs", "true"}},
		{Name: "negative logprobs", Path: textPath, Body: text(`, "logprobs": -1`), Status: 400, Says: []string{"logprobs", "-1"}},
		{Name: "logit_bias as string", Path: chatPath, Body: chat(`, "logit_bias": "x"`), Status: 400, Says: []string{"logit_bias"}},
		{Name: "bias of no token", Path: chatPath, Body: chat(`, "logit_bias": {"-5": 1}`), Status: 400, Says: []string{"logit_bias.-5"}},
		{Name: "bias of an unknown token", Path: chatPath, Body: chat(`, "logit_bias": {"2147483647": 1}`), Status: 400, Says: []string{"logit_bias.2147483647"}},
		{Name: "bias of an empty text", Path: chatPath, Body: chat(`, "logit_bias": {"": 1}`), Status: 400, Says: []string{"logit_bias"}},
		{Name: "bias as string", Path: chatPath, Body: chat(`, "logit_bias": {"5": "1"}`), Status: 400, Says: []string{"logit_bias.5"}},
		{Name: "huge bias", Path: chatPath, Body: chat(`, "logit_bias": {"5": 1e30}`), Status: 400, Says: []string{"logit_bias.5", "1e30"}},
		{Name: "bias true", Path: nativePath, Body: text(`, "logit_bias": [[5, true]]`), Status: 400, Says: []string{"logit_bias[0]", "true"}},
		{Name: "bias of three", Path: nativePath, Body: text(`, "logit_bias": [[5, 1, 2]]`), Status: 400, Says: []string{"logit_bias[0]", "pair"}},
		{Name: "bias no pair", Path: nativePath, Body: text(`, "logit_bias": [5]`), Status: 400, Says: []string{"logit_bias[0]", "pair"}},
		{Name: "samplers out of order", Path: nativePath, Body: text(`, "samplers": ["temperature", "top_k"]`), Status: 400, Says: []string{"samplers[1]", "top_k"}},
		{Name: "unknown sampler", Path: nativePath, Body: text(`, "samplers": ["magic"]`), Status: 400, Says: []string{"samplers[0]", "magic"}},
		{Name: "samplers as string", Path: nativePath, Body: text(`, "samplers": "kpt"`), Status: 400, Says: []string{"samplers", "an array"}},
		{Name: "fields as string", Path: nativePath, Body: text(`, "response_fields": "content"`), Status: 400, Says: []string{"response_fields", "an array"}},
		{Name: "messages in a completion", Path: textPath, Body: text(`, "messages": []`), Status: 400, Says: []string{"messages"}},
		{Name: "ignore_eos as number", Path: nativePath, Body: text(`, "ignore_eos": 1`), Status: 400, Says: []string{"ignore_eos"}},
		{Name: "cache_prompt as string", Path: nativePath, Body: text(`, "cache_prompt": "no"`), Status: 400, Says: []string{"cache_prompt"}},
		{Name: "best_of beyond n", Path: textPath, Body: text(`, "best_of": 3`), Status: 400, Says: []string{"best_of", "not supported"}},
		{Name: "best_of as string", Path: textPath, Body: text(`, "best_of": "3"`), Status: 400, Says: []string{"best_of", `"3"`}},

		{Name: "tokenize nothing", Path: "/tokenize", Body: `{}`, Status: 400, Says: []string{"content"}},
		{Name: "tokenize a number", Path: "/tokenize", Body: `{"content": 5}`, Status: 400, Says: []string{"content", "found 5"}},
		{Name: "tokenize with a wrong flag", Path: "/tokenize", Body: `{"content": "a", "add_special": 1}`, Status: 400, Says: []string{"add_special"}},
		{Name: "detokenize nothing", Path: "/detokenize", Body: `{}`, Status: 400, Says: []string{"tokens"}},
		{Name: "detokenize a string", Path: "/detokenize", Body: `{"tokens": "a"}`, Status: 400, Says: []string{"tokens", "an array"}},
		{Name: "detokenize a negative id", Path: "/detokenize", Body: `{"tokens": [1, -1]}`, Status: 400, Says: []string{"tokens[1]"}},
		{Name: "detokenize an unknown id", Path: "/detokenize", Body: `{"tokens": [2147483647]}`, Status: 400, Says: []string{"tokens[0]"}},
		{Name: "detokenize a string id", Path: "/detokenize", Body: `{"tokens": ["1"]}`, Status: 400, Says: []string{"tokens[0]"}},
		{Name: "apply no template", Path: "/apply-template", Body: `{}`, Status: 400, Says: []string{"messages"}},

		{Name: "unknown path", Path: "/v1/nothing", Body: `{}`, Status: 404, Says: []string{"/v1/nothing"}},
		{Name: "path up", Method: "GET", Path: "/..%2f..%2fetc%2fpasswd", Status: 404, Says: []string{"no such route"}},
		{Name: "wrong method", Method: "GET", Path: chatPath, Status: 405, Says: []string{"GET", "POST"}},
		{Name: "wrong method for health", Method: "DELETE", Path: "/health", Status: 405, Says: []string{"DELETE", "GET"}},
		{Name: "unheard-of method", Method: "BREW", Path: textPath, Status: 405, Says: []string{"BREW"}},
		{Name: "unknown model's card", Method: "GET", Path: "/v1/models/gpt-17", Status: 404, Says: []string{"gpt-17"}},
		{Name: "embeddings", Path: "/v1/embeddings", Body: `{"input": "x"}`, Status: 501, Says: []string{"embeddings", "not supported"}},
		{Name: "infill", Path: "/infill", Body: `{}`, Status: 501, Says: []string{"not supported"}},
	}
	list = append(list, refused()...)
	return append(list, numeric()...)
}

func manyFields(n int) string {
	var b strings.Builder
	b.WriteString(`{"prompt": "x"`)
	for i := range n {
		fmt.Fprintf(&b, `,"f%d":0`, i)
	}
	return b.String() + "}"
}

// refused makes a case of each field that would change the answer.
func refused() []Case {
	wanting := map[string]string{
		"tools":             `[{"type": "function", "function": {"name": "f", "parameters": {}}}]`,
		"tool_choice":       `"required"`,
		"functions":         `[{"name": "f"}]`,
		"function_call":     `{"name": "f"}`,
		"response_format":   `{"type": "json_object"}`,
		"grammar":           `"root ::= \"a\""`,
		"json_schema":       `{}`,
		"modalities":        `["text", "audio"]`,
		"verbosity":         `"low"`,
		"reasoning_format":  `"deepseek"`,
		"generation_prompt": `"x"`,
		"chat_template":     `"{{ x }}"`,
		"regex":             `"a+"`,
		"ebnf":              `"root ::= \"a\""`,
		"stop_regex":        `"a+"`,
	}
	for _, name := range []string{"grammar_lazy", "echo", "post_sampling_probs", "reasoning_control",
		"include_stop_str_in_output", "use_beam_search", "prompt_logprobs"} {
		wanting[name] = "true"
	}
	var list []Case
	for _, name := range api.RefusedFields() {
		value, ok := wanting[name]
		if !ok {
			value = `["x"]`
		}
		list = append(list, Case{Name: name, Path: textPath, Body: text(`, "` + name + `": ` + value), Status: 400,
			Says: []string{name, "not supported"}})
	}
	for name, value := range map[string]string{"mirostat": "2", "dry_multiplier": "0.8", "n_discard": "5", "adaptive_target": "0.5",
		"min_tokens": "3", "repetition_penalty": "1.2"} {
		list = append(list, Case{Name: name, Path: nativePath, Body: text(`, "` + name + `": ` + value), Status: 400,
			Says: []string{name, "not supported"}})
	}
	return list
}

// numeric gives every numeric field values that are no number or out of its range.
func numeric() []Case {
	var list []Case
	for _, f := range api.NumericFields(1) {
		if f.Name == "id_slot" {
			f.Max = math.MaxInt32 // servers have different numbers of slots
		}
		bad := map[string]string{
			"string": `"1"`, "NaN": "NaN", "Infinity": "-Infinity", "bool": "true", "object": "{}", "array": "[1]",
			"infinite": "1e999", "hex": "0x10", "below": below(f.Min), "above": above(f.Max),
		}
		if f.Integer {
			bad["fraction"] = "1.5"
		}
		for kind, value := range bad {
			body := `{"prompt": "hi", "` + f.Name + `": ` + value + `}`
			list = append(list, Case{Name: f.Name + " " + kind, Path: nativePath, Body: body, Status: 400, Says: []string{f.Name}})
		}
	}
	return list
}

func below(v float64) string { return strconv.FormatFloat(v-1, 'f', -1, 64) }

func above(v float64) string {
	if v > 1<<53 {
		return "1e30"
	}
	return strconv.FormatFloat(v+1, 'f', -1, 64)
}

// Run sends every case to the server at base and checks the answer: the status, an error
// of OpenAI's shape that says what it must, and a server that is well afterwards. header
// is added to every request, for a key.
func Run(t *testing.T, client *http.Client, base string, header http.Header, cases []Case) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			status, body := do(t, client, base, header, c)
			if status != c.Status {
				t.Errorf("%s: status %d, want %d: %s", c.Path, status, c.Status, shorten(body))
			}
			var answer struct {
				Error *struct {
					Message, Type string
					Param, Code   *string
				}
			}
			if err := json.Unmarshal(body, &answer); err != nil || answer.Error == nil || answer.Error.Message == "" || answer.Error.Type == "" {
				t.Fatalf("answer is no error object: %s", shorten(body))
			}
			for _, want := range c.Says {
				if !strings.Contains(answer.Error.Message, want) {
					t.Errorf("message %q does not say %q", answer.Error.Message, want)
				}
			}
			if len(answer.Error.Message) > 1000 {
				t.Errorf("message has %d bytes", len(answer.Error.Message))
			}
		})
	}
	if status, body := do(t, client, base, header, Case{Method: "GET", Path: "/health"}); status != 200 {
		t.Errorf("health afterwards: %d %s", status, body)
	}
	status, body := do(t, client, base, header, Case{Path: textPath, Body: text("")})
	if status != 200 || !bytes.Contains(body, []byte(`"choices"`)) {
		t.Errorf("a good request afterwards: %d %s", status, shorten(body))
	}
}

func do(t *testing.T, client *http.Client, base string, header http.Header, c Case) (int, []byte) {
	t.Helper()
	method := c.Method
	if method == "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, base+c.Path, strings.NewReader(c.Body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	for k, v := range c.Header {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("answer breaks off: %v", err)
	}
	return resp.StatusCode, body
}

func shorten(b []byte) string {
	if len(b) > 300 {
		return string(b[:300]) + "..."
	}
	return string(b)
}
