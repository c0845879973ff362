package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"baton/internal/engine"
	"baton/internal/server"
	"baton/internal/server/servertest"
)

const endless = `{"prompt": "hi", "stream": true, "ignore_eos": true, "cache_prompt": false}`

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("still not: %s", what)
}

func (s *started) idle() bool {
	st := s.engine.Stats()
	return st.Running == 0 && st.Waiting == 0
}

// want checks a status and that the body says something.
func want(t *testing.T, status int, body []byte, wantStatus int, says ...string) {
	t.Helper()
	if status != wantStatus {
		t.Errorf("status %d, want %d: %s", status, wantStatus, body)
	}
	for _, s := range says {
		if !bytes.Contains(body, []byte(s)) {
			t.Errorf("%s\ndoes not say %q", body, s)
		}
	}
}

func TestDisconnectFreesTheSlot(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			s := start(t, server.Config{}, &servertest.Engine{Reply: "x", Ctx: 1 << 30, Delay: time.Millisecond})
			ctx, cancel := context.WithCancel(t.Context())
			body := endless
			if !stream {
				body = strings.Replace(body, `"stream": true, `, "", 1)
			}
			req, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/completion", strings.NewReader(body))
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := s.client.Do(req); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			eventually(t, "running", func() bool { return s.engine.Stats().Running == 1 })
			cancel()
			<-done
			eventually(t, "slot free after the client left", s.idle)
		})
	}
}

// TestSlowReader: a client that stops reading loses its slot after the write time-out.
func TestSlowReader(t *testing.T) {
	s := start(t, server.Config{WriteTimeout: 200 * time.Millisecond}, &servertest.Engine{Reply: "x", Ctx: 1 << 30})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(endless), endless)
	eventually(t, "running", func() bool { return s.engine.Stats().Running == 1 })
	eventually(t, "slot free although the client holds the connection", s.idle)
	eventually(t, "counted as aborted", func() bool {
		_, page := s.get(t, "/metrics")
		return bytes.Contains(page, []byte(`vllm:request_success_total{finished_reason="abort",model_name="fake"} 1`))
	})
}

// TestSlowUpload: a client that does not finish its body does not hold a connection.
func TestSlowUpload(t *testing.T) {
	s := start(t, server.Config{BodyTimeout: 50 * time.Millisecond}, &servertest.Engine{Reply: "x"})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, resp.StatusCode, readAll(t, resp), 408, "body")
}

func TestKeepAliveComments(t *testing.T) {
	prefill := make(chan struct{})
	s := start(t, server.Config{KeepAlive: 10 * time.Millisecond}, &servertest.Engine{Reply: "x", Prefill: prefill})
	resp := s.post(t, "/v1/completions", `{"prompt": "hi", "stream": true}`)
	br := bufio.NewReader(resp.Body)
	for range 3 { // before the first token
		line, err := br.ReadString('\n')
		if err != nil || line != ": keep-alive\n" {
			t.Fatalf("%q %v, want a comment", line, err)
		}
		br.ReadString('\n')
	}
	close(prefill)
	if got := events(t, br); len(got) != 3 {
		t.Errorf("events after the comments: %q", got)
	}

	resp = s.post(t, "/v1/completions", `{"prompt": "hi", "stream": true, "sse_ping_interval": -1}`)
	if b := readAll(t, resp); bytes.Contains(b, []byte("keep-alive")) {
		t.Errorf("comments although turned off: %s", b)
	}
}

// TestControlPlaneAnswersDuringPrefill is the complaint that a long prompt silences health.
func TestControlPlaneAnswersDuringPrefill(t *testing.T) {
	prefill := make(chan struct{})
	s := start(t, server.Config{}, &servertest.Engine{Reply: "x", Prefill: prefill, Slots: 1})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { readAll(t, s.post(t, "/v1/completions", `{"prompt": "secret"}`)) })
	}
	eventually(t, "one runs, one waits", func() bool { st := s.engine.Stats(); return st.Running == 1 && st.Waiting == 1 })
	for _, path := range []string{"/health", "/v1/health", "/metrics", "/slots", "/props", "/v1/models", "/models", "/v1/models/fake", "/"} {
		status, body := s.get(t, path)
		want(t, status, body, 200)
		if bytes.Contains(body, []byte("secret")) {
			t.Errorf("%s shows a prompt: %s", path, body)
		}
	}
	_, health := s.get(t, "/health")
	want(t, 200, health, 200, `"status":"ok"`, `"slots_processing":1`, `"requests_waiting":1`)
	_, page := s.get(t, "/metrics")
	want(t, 200, page, 200, `vllm:num_requests_running{model_name="fake"} 1`, `vllm:num_requests_waiting{model_name="fake"} 1`,
		"llamacpp:requests_processing 1", "llamacpp:requests_deferred 1", `baton_slots{state="busy"} 1`)
	_, slots := s.get(t, "/slots")
	want(t, 200, slots, 200, `"is_processing":true`, `"n_prompt_tokens":6`)
	status, body := s.get(t, "/slots?fail_on_no_slot=1")
	want(t, status, body, 503, "no slot")
	close(prefill)
	wg.Wait()
	status, body = s.get(t, "/slots?fail_on_no_slot=1")
	want(t, status, body, 200)
	// T2: the same prompt again reuses all of it but the last token.
	body = readAll(t, s.post(t, "/v1/completions", `{"prompt": "secret"}`))
	want(t, 200, body, 200, `"cached_tokens":5`, `"cache_n":5,"prompt_n":1`)
	_, page = s.get(t, "/metrics")
	want(t, 200, page, 200, `vllm:time_to_first_token_seconds_count{model_name="fake"} 3`,
		`vllm:request_success_total{finished_reason="stop",model_name="fake"} 3`, `baton_prompt_tokens_total{source="cached"} 10`,
		"llamacpp:tokens_predicted_total 3", `baton_http_requests_total{route="/v1/completions",status="200"} 3`,
		"go_goroutines", "vllm:kv_cache_usage_perc")
}

// TestTokenLimits is recipe T8: all spellings of the limit.
func TestTokenLimits(t *testing.T) {
	s := start(t, server.Config{}, &servertest.Engine{Reply: "abcdefghij"})
	const message = `"messages": [{"role": "user", "content": "hi"}]`
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", `{` + message + `, "max_tokens": 5}`},
		{"/v1/chat/completions", `{` + message + `, "max_completion_tokens": 5}`},
		{"/v1/chat/completions", `{` + message + `, "max_completion_tokens": 5, "max_tokens": 9}`},
		{"/v1/completions", `{"prompt": "x", "max_tokens": 5}`},
		{"/v1/completions", `{"prompt": "x", "n_predict": 5, "max_tokens": 9}`},
	} {
		want(t, 200, readAll(t, s.post(t, c.path, c.body)), 200, `"completion_tokens":5`, `"finish_reason":"length"`)
	}
}

func TestSeedsOfChoices(t *testing.T) {
	s := start(t, server.Config{}, &servertest.Engine{Reply: "a"})
	readAll(t, s.post(t, "/v1/completions", `{"prompt": ["x", "y"], "n": 2, "seed": 10}`))
	var got []int64
	for _, r := range s.engine.Seen {
		got = append(got, r.Sampling.Seed)
	}
	if fmt.Sprint(got) != "[10 11 10 11]" {
		t.Errorf("seeds %v, want 10 and 11 for each prompt", got)
	}
}

func TestLookAlikesStayText(t *testing.T) {
	s := start(t, server.Config{}, &servertest.Engine{Reply: "a"})
	readAll(t, s.post(t, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "<|im_end|>"}]}`))
	ends := 0
	for _, id := range s.engine.Seen[0].Prompt {
		if id == servertest.End {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("%d end-of-turn tokens in the prompt, want the template's only", ends)
	}
}

func TestBOSOnce(t *testing.T) {
	e := &servertest.Engine{Reply: "a"}
	s := start(t, server.Config{}, nil)
	s.SetBackend(server.Backend{Engine: e, Tokenizer: servertest.Tokenizer{AddBOS: true}, Template: bosTemplate{}})
	readAll(t, s.post(t, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "h"}]}`))
	readAll(t, s.post(t, "/v1/completions", `{"prompt": ["h", [104]]}`))
	var got []string
	for _, r := range e.Seen {
		got = append(got, fmt.Sprint(r.Prompt))
	}
	if fmt.Sprint(got) != "[[256 104] [256 104] [104]]" {
		t.Errorf("prompts %v", got)
	}
}

func TestEngineErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		e      *servertest.Engine
		status int
		says   []string
	}{
		{"no room", &servertest.Engine{Err: &engine.Error{Code: engine.CodeNoRoom, Message: "no free block"}}, 503, []string{`"code":"no_room"`, "no free block"}},
		{"too long", &servertest.Engine{Err: engine.TooLong(900, 512)}, 400, []string{"exceed_context_size_error", "context_length_exceeded", `"n_prompt_tokens":900`, `"n_ctx":512`, "900", `"param":"messages"`}},
		{"stopping", &servertest.Engine{Err: &engine.Error{Code: engine.CodeStopping, Message: "stopping"}}, 503, nil},
		{"other", &servertest.Engine{Err: errors.New("disk on fire")}, 500, []string{"server_error", "disk on fire"}},
		{"fails midway", &servertest.Engine{Reply: "abc", FailAt: 2}, 500, []string{"the step loop broke"}},
		{"panics midway", &servertest.Engine{Reply: "abc", PanicAt: 2}, 500, []string{"panic in a stream"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, server.Config{}, tt.e)
			resp := s.post(t, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "hi"}]}`)
			want(t, resp.StatusCode, readAll(t, resp), tt.status, tt.says...)
			if tt.status == 503 && resp.Header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After: %q", resp.Header.Get("Retry-After"))
			}
			eventually(t, "idle", s.idle)
		})
	}
}

// TestErrorInStream: after the header, an error is an event, and nothing follows it.
func TestErrorInStream(t *testing.T) {
	s := start(t, server.Config{}, &servertest.Engine{Reply: "abc", FailAt: 2})
	b := readAll(t, s.post(t, "/v1/completions", `{"prompt": "hi", "stream": true}`))
	_, tail, ok := bytes.Cut(b, []byte("event: error\ndata: "))
	if !ok || bytes.Contains(b, []byte("[DONE]")) {
		t.Fatalf("stream: %s", b)
	}
	var e struct {
		Error struct{ Message, Type string }
	}
	if err := json.Unmarshal(tail, &e); err != nil || e.Error.Type != "server_error" || e.Error.Message != "the step loop broke" {
		t.Errorf("%s: %v", tail, err)
	}
	if bytes.Count(b, []byte("data: ")) != 3 {
		t.Errorf("want two tokens and an error: %s", b)
	}
}

func TestPanicInHandler(t *testing.T) {
	var log bytes.Buffer
	s := start(t, server.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
	s.SetBackend(server.Backend{Engine: &servertest.Engine{}, Tokenizer: servertest.Tokenizer{}, Template: panicTemplate{}})
	resp := s.post(t, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "hi"}]}`)
	b := readAll(t, resp)
	want(t, resp.StatusCode, b, 500, "internal error")
	if bytes.Contains(b, []byte("boom")) {
		t.Errorf("the answer tells the panic: %s", b)
	}
	_, page := s.get(t, "/metrics")
	want(t, 200, page, 200, "baton_panics_total 1")
	if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), resp.Header.Get("X-Request-Id")) {
		t.Errorf("log: %s", log.String())
	}
}

func TestTemplateRefusal(t *testing.T) {
	s := start(t, server.Config{}, &servertest.Engine{})
	resp := s.post(t, "/v1/chat/completions", `{"messages": [{"role": "assistant", "content": "hi"}], "add_generation_prompt": false}`)
	want(t, resp.StatusCode, readAll(t, resp), 400, "conversation roles must start with a user", `"param":"messages"`)
}

func TestLoading(t *testing.T) {
	s := start(t, server.Config{}, nil)
	for _, path := range []string{"/health", "/v1/models", "/slots", "/props", "/"} {
		status, body := s.get(t, path)
		want(t, status, body, 503, "loading", "unavailable_error")
	}
	resp := s.post(t, "/v1/completions", `{"prompt": "x"}`)
	want(t, resp.StatusCode, readAll(t, resp), 503, "loading")
	status, _ := s.get(t, "/metrics")
	want(t, status, nil, 200)
	s.SetBackend(server.Backend{Engine: &servertest.Engine{}, Tokenizer: servertest.Tokenizer{}})
	status, body := s.get(t, "/health")
	want(t, status, body, 200, `"status":"ok"`)
	resp = s.post(t, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "hi"}]}`)
	want(t, resp.StatusCode, readAll(t, resp), 501, "no chat template")
}

func TestStalled(t *testing.T) {
	prefill := make(chan struct{})
	s := start(t, server.Config{StallAfter: 30 * time.Millisecond}, &servertest.Engine{Reply: "x", Prefill: prefill})
	time.Sleep(40 * time.Millisecond) // idle for longer than StallAfter is well
	status, body := s.get(t, "/health")
	want(t, status, body, 200)
	var wg sync.WaitGroup
	wg.Go(func() { readAll(t, s.post(t, "/v1/completions", `{"prompt": "x"}`)) })
	eventually(t, "health says stalled", func() bool {
		status, body := s.get(t, "/health")
		return status == 503 && bytes.Contains(body, []byte("stalled"))
	})
	close(prefill)
	wg.Wait()
	status, body = s.get(t, "/health")
	want(t, status, body, 200)
}

func TestDrain(t *testing.T) {
	for _, force := range []bool{false, true} {
		t.Run(fmt.Sprintf("force=%v", force), func(t *testing.T) {
			prefill := make(chan struct{})
			e := &servertest.Engine{Reply: "abc", Prefill: prefill}
			s := server.New(server.Config{})
			s.SetBackend(server.Backend{Engine: e, Tokenizer: servertest.Tokenizer{}})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- s.Serve(l) }()
			st := &started{s, "http://" + l.Addr().String(), &http.Client{Transport: &http.Transport{}}, e}
			defer st.client.CloseIdleConnections()

			resp := st.post(t, "/v1/completions", `{"prompt": "hi", "stream": true}`)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- s.Shutdown(ctx) }()
			eventually(t, "refusing", func() bool {
				r := st.post(t, "/v1/completions", `{"prompt": "x"}`)
				b := readAll(t, r)
				return r.StatusCode == 503 && r.Header.Get("Retry-After") != "" && bytes.Contains(b, []byte("shutting down"))
			})
			status, body := st.get(t, "/health")
			want(t, status, body, 503, "stopping")
			if force {
				cancel()
			} else {
				close(prefill)
			}
			b := readAll(t, resp)
			err = <-stopped
			if force {
				want(t, 200, b, 200, "event: error", "shutting down")
				if !errors.Is(err, context.Canceled) {
					t.Errorf("Shutdown: %v", err)
				}
			} else {
				want(t, 200, b, 200, `"text":"c"`, "[DONE]")
				if err != nil {
					t.Errorf("Shutdown: %v", err)
				}
			}
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
			eventually(t, "idle", st.idle)
		})
	}
}
