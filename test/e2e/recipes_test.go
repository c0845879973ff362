package e2e

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"baton/internal/demo"
	"baton/internal/server/servertest"
)

// The greedy continuations of the demo model, token by token through the HTTP API, are
// those of the independent float32 reference.
func TestGoldenContinuations(t *testing.T) {
	prompts, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t)
	for _, p := range prompts {
		t.Run(p.Name, func(t *testing.T) {
			want := p.Greedy
			if p.End != nil {
				want = want[:*p.End]
			}
			o := s.mustPost(t, "/completion", map[string]any{
				"prompt": p.Text, "n_predict": len(want), "temperature": 0, "return_tokens": true,
			})
			if got := ids(o["tokens"]); !slices.Equal(got, want) {
				t.Errorf("tokens differ from the reference\n got %v\nwant %v\nmargins %v", got, want, p.Margin)
			}
			if got := o.str("content"); got != p.Answer {
				t.Errorf("text %q, want %q", got, p.Answer)
			}
			if got := o.num("tokens_evaluated"); got != len(p.Tokens) {
				t.Errorf("prompt of %d tokens, want %d", got, len(p.Tokens))
			}
		})
	}
}

// ids converts a JSON array of numbers.
func ids(v any) []int32 {
	a, _ := v.([]any)
	out := make([]int32, 0, len(a))
	for _, x := range a {
		f, _ := x.(float64)
		out = append(out, int32(f))
	}
	return out
}

// T2: the same prompt twice gives the same text, the second time from the cache.
func TestSamePromptTwice(t *testing.T) {
	s := startServer(t)
	body := map[string]any{
		"messages":    []map[string]string{{"role": "user", "content": strings.Repeat("The locker of Maria Lopez holds a brass compass. ", 30) + "What does the locker of Maria Lopez hold?"}},
		"temperature": 0, "max_tokens": 24,
	}
	var prompt int
	var answer string
	for i := range 3 {
		o := s.mustPost(t, "/v1/chat/completions", body)
		got := o.choice().str("message", "content")
		if i == 0 {
			answer, prompt = got, o.num("usage", "prompt_tokens")
			if prompt < 300 {
				t.Fatalf("prompt of %d tokens, want a long one", prompt)
			}
			continue
		}
		if got != answer {
			t.Errorf("answer %d is %q, the first was %q", i+1, got, answer)
		}
		if cached := o.num("usage", "prompt_tokens_details", "cached_tokens"); cached < prompt-1 {
			t.Errorf("answer %d: %d of %d prompt tokens from the cache, want at least %d", i+1, cached, prompt, prompt-1)
		}
	}
}

// T8: both spellings of the token limit hold.
func TestTokenLimitSpellings(t *testing.T) {
	s := startServer(t)
	for _, field := range []string{"max_tokens", "max_completion_tokens"} {
		o := s.mustPost(t, "/v1/chat/completions", map[string]any{
			"messages": []map[string]string{{"role": "user", "content": "Tell me a story about a fox."}},
			field:      5, "temperature": 0,
		})
		if got := o.num("usage", "completion_tokens"); got > 5 || got < 1 {
			t.Errorf("%s 5: %d tokens", field, got)
		}
		if got := o.choice().str("finish_reason"); got != "length" {
			t.Errorf("%s 5: finish_reason %q, want length", field, got)
		}
	}
}

// T9: a stream has exactly one usage object if it was asked for, else none.
func TestStreamUsage(t *testing.T) {
	s := startServer(t)
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		for _, include := range []any{true, false, nil} {
			t.Run(fmt.Sprintf("%s include_usage %v", path, include), func(t *testing.T) {
				body := map[string]any{"stream": true, "max_tokens": 8, "temperature": 0}
				if path == "/v1/completions" {
					body["prompt"] = "Once upon a time"
				} else {
					body["messages"] = []map[string]string{{"role": "user", "content": "Tell me a story about a fox."}}
				}
				if include != nil {
					body["stream_options"] = map[string]any{"include_usage": include}
				}
				evs := s.stream(t, path, body)
				if len(evs) < 2 || text(evs) == "" {
					t.Fatalf("%d events with the text %q", len(evs), text(evs))
				}
				usages := 0
				for _, e := range evs {
					if e.at("usage") != nil {
						usages++
					}
				}
				want := 0
				if include == true {
					want = 1
					last := evs[len(evs)-1]
					if cs, ok := last["choices"].([]any); !ok || len(cs) != 0 {
						t.Errorf("choices of the last event: %v, want []", last["choices"])
					}
					if got := last.num("usage", "completion_tokens"); got != 8 {
						t.Errorf("usage of %d tokens, want 8: %v", got, last)
					}
				}
				if usages != want {
					t.Errorf("%d usage objects, want %d", usages, want)
				}
			})
		}
	}
}

// T15: /tokenize and usage.prompt_tokens agree with the golden ids.
func TestTokenizeGolden(t *testing.T) {
	prompts, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t)
	for _, p := range prompts {
		o := s.mustPost(t, "/tokenize", map[string]any{"content": p.Text, "parse_special": true})
		if got := ids(o["tokens"]); !slices.Equal(got, p.Tokens) {
			t.Errorf("%s: /tokenize gives %v, want %v", p.Name, got, p.Tokens)
		}
		if o := s.mustPost(t, "/detokenize", map[string]any{"tokens": p.Tokens}); o.str("content") != p.Text {
			t.Errorf("%s: /detokenize gives %q, want %q", p.Name, o.str("content"), p.Text)
		}
	}
	// The golden chat prompts were written out by hand in golden.py: the template has to
	// give the same text.
	o := s.mustPost(t, "/apply-template", map[string]any{"messages": []map[string]string{
		{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "Hello!"},
	}})
	for _, p := range prompts {
		if p.Name == "chat-hello" && o.str("prompt") != p.Text {
			t.Errorf("/apply-template gives %q, want %q", o.str("prompt"), p.Text)
		}
	}
}

// T12: a number that is negative, huge, no number or text is a 400 that names its field,
// and the server goes on.
func TestBadNumbers(t *testing.T) {
	s := startServer(t)
	always := []string{`"many"`, `true`, `[1]`, `{}`, `NaN`, `1e999`, `-1e30`}
	for _, tt := range []struct {
		path, rest string
		fields     []string
		more       []string // beside those that are wrong everywhere
	}{
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"Hello!"}]`,
			[]string{"max_tokens", "max_completion_tokens", "n", "top_logprobs"}, []string{"-2", "0.5", "9223372036854775808"}},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"Hello!"}],"max_tokens":1`,
			[]string{"temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"}, []string{"-1e3", "1e9"}},
		{"/v1/completions", `"prompt":"Hello"`, []string{"max_tokens", "logprobs", "n", "best_of"}, []string{"-2", "0.5"}},
		{"/completion", `"prompt":"Hello"`,
			[]string{"n_predict", "top_k", "repeat_last_n", "n_probs", "id_slot"}, []string{"-9", "0.5", "1e18"}},
		{"/completion", `"prompt":"Hello","n_predict":1`, []string{"repeat_penalty", "typical_p"}, []string{"-9", "1e9"}},
	} {
		for _, field := range tt.fields {
			for _, bad := range append(tt.more, always...) {
				body := fmt.Sprintf(`{%s,"%s":%s}`, tt.rest, field, bad)
				if strings.Count(body, `"`+field+`"`) > 1 {
					continue // given twice: a different mistake
				}
				code, o := s.post(t, tt.path, body)
				msg := o.str("error", "message")
				if code != http.StatusBadRequest || msg == "" {
					t.Errorf("%s with %s: status %d, message %q, want 400 and a message", tt.path, body, code, msg)
				} else if !strings.Contains(msg, field) && bad != "NaN" { // NaN is no JSON: the position is named
					t.Errorf("%s with %s: message %q does not name %s", tt.path, body, msg, field)
				}
			}
		}
	}
	s.alive(t)
	if got := s.mustPost(t, "/completion", map[string]any{"prompt": "Hello", "n_predict": 2}); got.num("tokens_predicted") < 1 {
		t.Errorf("a good request afterwards: %v", got)
	}
}

// The requests that any server must refuse with a clear error, sent to the real one.
func TestHostileRequests(t *testing.T) {
	s := startServer(t)
	servertest.Run(t, http.DefaultClient, s.url, nil, servertest.Hostile())
	s.alive(t)
}

// A client that goes away stops its generation and frees its slot.
func TestDisconnectFreesSlot(t *testing.T) {
	s := startServer(t)
	resp, err := s.send(t.Context(), "POST", "/completion", map[string]any{
		"prompt": "Once upon a time", "n_predict": 2400, "ignore_eos": true, "stream": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if n := busySlots(t, s); n != 1 {
		t.Errorf("%d slots are busy while one request runs", n)
	}
	resp.Body.Close() // the connection goes away with it
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if busySlots(t, s) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the slot is busy 10 s after its client went away")
		}
	}
	m := regexp.MustCompile(`(?m)^llamacpp:tokens_predicted_total (\S+)$`).FindStringSubmatch(get(t, s, "/metrics"))
	if m == nil {
		t.Fatal("no llamacpp:tokens_predicted_total in /metrics")
	}
	if generated, err := strconv.ParseFloat(m[1], 64); err != nil || generated >= 2400 {
		t.Errorf("%s tokens were generated for a client that read one", m[1])
	}
}

func busySlots(t *testing.T, s *server) (n int) {
	t.Helper()
	body := get(t, s, "/slots")
	return strings.Count(strings.ReplaceAll(body, " ", ""), `"is_processing":true`)
}

func get(t *testing.T, s *server, path string) string {
	t.Helper()
	resp, err := s.send(t.Context(), "GET", path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", path, resp.Status)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
