package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGTERM lets a running answer finish, and the process ends with status 0.
func TestTermDrains(t *testing.T) {
	s := startServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	resp, err := s.send(ctx, "POST", "/v1/completions", map[string]any{
		"prompt": "Once upon a time", "max_tokens": 200, "temperature": 0, "ignore_eos": true,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 1)
	if _, err := resp.Body.Read(first); err != nil {
		t.Fatalf("no first byte: %v", err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	evs, done, err := events(resp.Body)
	if err != nil || !done {
		t.Fatalf("the running answer was cut off after %d events: done %v, error %v", len(evs), done, err)
	}
	if got := evs[len(evs)-1].num("usage", "completion_tokens"); got != 200 {
		t.Errorf("the running answer has %d tokens, want 200", got)
	}
	s.wait(t)
}

// A second signal does not wait for the answers that are running.
func TestSecondTermEndsAtOnce(t *testing.T) {
	s := startServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	resp, err := s.send(ctx, "POST", "/v1/completions", map[string]any{
		"prompt": "Once upon a time", "max_tokens": 2500, "temperature": 0, "ignore_eos": true, "stream": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for range 2 {
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // pending signals of one kind would merge
	}
	select {
	case <-s.exited:
	case <-time.After(stopLimit):
		t.Fatalf("still running %v after a second SIGTERM", stopLimit)
	}
}

func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	r := runBaton(t, startLimit, "serve", "--host", "127.0.0.1", "--port", port)
	if r.code <= 0 {
		t.Fatalf("exit code %d, want an error: %s", r.code, r.out)
	}
	if !strings.Contains(r.out, port) || !strings.Contains(r.out, "in use") {
		t.Errorf("the message names neither the port %s nor that it is in use: %s", port, r.out)
	}
	if strings.Contains(r.out, "goroutine ") {
		t.Errorf("a stack trace is no message: %s", r.out)
	}
}

// Open to the network without a key: refused at start. With one: served.
func TestOpenHostNeedsKey(t *testing.T) {
	for _, host := range []string{"0.0.0.0", "::"} {
		r := runBaton(t, startLimit, "serve", "--host", host, "--port", "0")
		if r.code <= 0 || r.timedOut {
			t.Errorf("--host %s without a key: exit code %d, timed out %v, want a refusal: %s", host, r.code, r.timedOut, r.out)
		}
		if !strings.Contains(r.out, "--api-key-file") {
			t.Errorf("--host %s: the message does not say what to do: %s", host, r.out)
		}
	}

	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("first-key\nsecond-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--host", "0.0.0.0", "--api-key-file", keys)
	for _, tt := range []struct {
		path, key string
		want      int
	}{
		{"/health", "", http.StatusOK},
		{"/v1/models", "", http.StatusUnauthorized},
		{"/v1/models", "no-key", http.StatusUnauthorized},
		{"/metrics", "", http.StatusUnauthorized},
		{"/slots", "", http.StatusUnauthorized},
		{"/no-such-path", "", http.StatusUnauthorized},
		{"/v1/models", "first-key", http.StatusOK},
		{"/v1/models", "second-key", http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.key != "" {
			req.Header.Set("Authorization", "Bearer "+tt.key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("GET %s with key %q: %s, want %d", tt.path, tt.key, resp.Status, tt.want)
		}
	}
	if out := s.out.String(); strings.Contains(out, "first-key") || strings.Contains(out, "second-key") {
		t.Error("a key is in the output of the server")
	}
}

// With --log-format json every line of the log is an object with a level and a message.
func TestJSONLog(t *testing.T) {
	s := startServer(t, "--log-format", "json")
	s.mustPost(t, "/completion", map[string]any{"prompt": "Hello", "n_predict": 1})
	s.stop(t)
	logged := 0
	for line := range strings.Lines(s.out.String()) {
		if !strings.HasPrefix(line, "{") {
			if strings.Contains(line, "level=") {
				t.Errorf("a line of the log that is no JSON: %s", line)
			}
			continue // what is printed for people at the start
		}
		var o object
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.str("level") == "" || o.str("msg") == "" {
			t.Errorf("line %q: %v, level %q, msg %q", line, err, o.str("level"), o.str("msg"))
		}
		logged++
	}
	if logged < 2 { // ready, and the request
		t.Errorf("%d lines of log", logged)
	}
}

// /health, /metrics and /slots answer while long prompts are processed.
func TestHealthUnderLoad(t *testing.T) {
	s := startServer(t)
	const requests = 4
	answered := make(chan error, requests)
	for i := range requests {
		go func() {
			// Prompts that share no prefix, of about 2,000 tokens each.
			prompt := strings.Repeat(string(rune('a'+i))+" fox went to the river. ", 280)
			resp, err := s.send(t.Context(), "POST", "/completion", map[string]any{"prompt": prompt, "n_predict": 1})
			if err == nil {
				resp.Body.Close()
			}
			answered <- err
		}()
	}
	polls := map[string]int{}
	for left := requests; left > 0; {
		for _, path := range []string{"/health", "/metrics", "/slots"} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			resp, err := s.send(ctx, "GET", path, nil)
			if err != nil {
				t.Fatalf("GET %s under load: %v", path, err)
			}
			resp.Body.Close()
			cancel()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("GET %s under load: %s", path, resp.Status)
			}
		}
		select {
		case err := <-answered:
			if err != nil {
				t.Error(err)
			}
			left--
		default:
			if left == requests { // no answer yet: a poll in between
				polls["before"]++
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	if polls["before"] == 0 {
		t.Error("no round of /health, /metrics and /slots was answered before the first prompt was done")
	}
}

// The end of whoever reads the output, such as tee at an interrupt of the terminal, cuts no
// answer off, and leaves nothing behind.
func TestOutlivesItsReader(t *testing.T) {
	base, err := os.MkdirTemp("", "rd") // a short path, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := &server{client: http.DefaultClient, cmd: exec.Command(batonBin, "serve", "--port", "0"), out: &output{}, exited: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+base)
	s.cmd.Stdout, s.cmd.Stderr = w, w
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		_ = s.cmd.Wait() // the state is read from cmd.ProcessState
		close(s.exited)
	}()
	t.Cleanup(func() { s.stop(t) })
	read := make(chan struct{}) // the pipe is read until its reader is to end
	go func() {
		defer close(read)
		_, _ = io.Copy(s.out, r)
	}()
	if s.url, err = waitHealthy(s.out.String, s.exited); err != nil {
		t.Fatalf("%v; its output:\n%s", err, s.out)
	}
	body := s.open(t, 300)
	defer body.Close()
	r.Close()
	<-read
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil { // which it logs
		t.Fatal(err)
	}
	if _, done, err := events(body); err != nil || !done {
		t.Errorf("the running answer was cut off: done %v, error %v", done, err)
	}
	s.wait(t)
	if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
		t.Errorf("left in the run directory's place: %v, %v", left, err)
	}
}
