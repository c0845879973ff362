package e2e

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton/internal/demo"
	"baton/internal/engine"
	"baton/internal/remote"
)

// socketPath is a path for a socket, in a private directory whose own path is short.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "baton-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "decoder.sock")
}

// startDecode starts `baton decode` with its control socket at path and waits until it is
// healthy. Requests go over the socket.
func startDecode(t testing.TB, path string, args ...string) *server {
	t.Helper()
	s := launch(t, exec.Command(batonBin, append([]string{"decode", "--socket", path}, args...)...))
	s.url, s.client = "http://decoder", &http.Client{Transport: remote.Transport(path)}
	for end := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		resp, err := s.client.Get(s.url + "/health")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s
			}
		}
		select {
		case <-s.exited:
			t.Fatalf("baton decode %q ended before it was healthy: %s", args, s.out)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("baton decode %q is not healthy after %v: %v", args, startLimit, err)
		}
	}
}

// get returns the status of a GET.
func (s *server) get(t testing.TB, path string) int {
	t.Helper()
	resp, err := s.send(t.Context(), "GET", path, nil)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func goldenPrompts(t testing.TB) []demo.Prompt {
	t.Helper()
	g, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A decoder alone has llama-server's API on its socket.
func TestDecodeAPI(t *testing.T) {
	path := socketPath(t)
	s := startDecode(t, path, "-np", "3", "-c", "512")
	g := goldenPrompts(t)[0]
	o := s.mustPost(t, "/completion", map[string]any{"prompt": g.Text, "n_predict": len(g.Greedy), "temperature": 0, "return_tokens": true})
	if got := ids(o["tokens"]); !slices.Equal(got, g.Greedy) || o.str("content") != g.Answer {
		t.Errorf("answer %v %q, want %v %q", got, o.str("content"), g.Greedy, g.Answer)
	}
	if got := text(s.stream(t, "/v1/completions", map[string]any{"prompt": g.Text, "max_tokens": 32, "temperature": 0, "stream": true})); got != g.Answer {
		t.Errorf("streamed %q, want %q", got, g.Answer)
	}
	if got := ids(s.mustPost(t, "/tokenize", map[string]any{"content": g.Text, "add_special": true, "parse_special": true})["tokens"]); !slices.Equal(got, g.Tokens) {
		t.Errorf("tokens %v, want %v", got, g.Tokens)
	}
	for _, p := range []string{"/slots", "/props", "/metrics", "/v1/models"} {
		if status := s.get(t, p); status != http.StatusOK {
			t.Errorf("GET %s: %d", p, status)
		}
	}
	if i := dialEngine(t, path).Info(); i.Slots != 3 || i.CtxSlot != 512 {
		t.Errorf("described as %+v", i)
	}
}

// dialEngine returns the decoder at path as an engine.
func dialEngine(t testing.TB, path string) *remote.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := remote.Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// With no place given, the socket is in a fresh private directory, which goes away at the
// end.
func TestDecodeFreshRunDir(t *testing.T) {
	base := filepath.Dir(socketPath(t))
	cmd := exec.Command(batonBin, "decode")
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+base)
	s := launch(t, cmd)
	var sockets []string
	for end := time.Now().Add(startLimit); len(sockets) == 0; time.Sleep(20 * time.Millisecond) {
		sockets, _ = filepath.Glob(filepath.Join(base, "*", "decoder.sock"))
		if time.Now().After(end) {
			t.Fatalf("no socket in %s: %s", base, s.out)
		}
	}
	dialEngine(t, sockets[0]) // it is ready
	for path, want := range map[string]fs.FileMode{sockets[0]: fs.ModeSocket | 0o600, filepath.Dir(sockets[0]): fs.ModeDir | 0o700} {
		if st, err := os.Lstat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	if !strings.Contains(s.out.String(), sockets[0]) {
		t.Errorf("does not say where it is: %s", s.out)
	}
	s.stop(t)
	if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// SIGTERM lets running answers finish, those of the API and those of another process, and
// refuses new ones.
func TestDecodeDrains(t *testing.T) {
	path := socketPath(t)
	s := startDecode(t, path)
	c := dialEngine(t, path)
	r := engine.NewRequest(goldenPrompts(t)[0].Tokens)
	r.MaxTokens, r.IgnoreEOS = 400, true
	st, err := c.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.send(t.Context(), "POST", "/v1/completions", map[string]any{
		"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true, "stream": true})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := st.Recv(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil { // the same as SIGTERM
		t.Fatal(err)
	}
	for end := time.Now().Add(stopLimit); ; time.Sleep(5 * time.Millisecond) {
		extra, err := c.Generate(t.Context(), engine.NewRequest([]int32{1}))
		if err != nil {
			if code := engine.AsError(err).Code; code != engine.CodeStopping && code != engine.CodeAway {
				t.Errorf("while draining: %v", err)
			}
			break
		}
		extra.Cancel()
		if time.Now().After(end) {
			t.Fatal("still takes requests after the signal")
		}
	}
	tokens := 0
	for {
		ev, err := st.Recv(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == engine.Done {
			if ev.Result.Reason != engine.StopLimit {
				t.Errorf("another process's request ended with %+v", ev.Result)
			}
			break
		}
		tokens++
	}
	if tokens != 399 { // one was read before
		t.Errorf("%d tokens, want 399", tokens)
	}
	if _, done, err := events(resp.Body); err != nil || !done {
		t.Errorf("the API's answer was cut off: %v", err)
	}
	s.wait(t)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A killed decoder ends the streams of other processes with an error. The next one takes
// its place: the socket that is left is replaced, and clients find it by themselves.
func TestDecodeKilled(t *testing.T) {
	path := socketPath(t)
	s := startDecode(t, path)
	c := dialEngine(t, path)
	r := engine.NewRequest(goldenPrompts(t)[0].Tokens)
	r.IgnoreEOS = true
	st, err := c.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	for {
		ev, err := st.Recv(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind != engine.Done {
			continue
		}
		if ev.Result.Reason != engine.Failed || !strings.Contains(ev.Result.Err.Error(), "the decoder process ended") {
			t.Errorf("ended with %+v", ev.Result)
		}
		break
	}
	if c.Stats(); c.Err() == nil {
		t.Error("the client does not say that the decoder is away")
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("expected a dead socket: %v", err)
	}

	second := startDecode(t, path)
	if st, err = c.Generate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	st.Cancel()
	// Its socket is not taken from it while it lives.
	out := runBaton(t, startLimit, "decode", "--socket", path)
	if out.code != 1 || !strings.Contains(out.out, "in use") || !strings.Contains(out.out, path) {
		t.Errorf("a third on the same socket: exit code %d: %s", out.code, out.out)
	}
	second.alive(t)
}

func TestDecodeRefusesOpenDirectory(t *testing.T) {
	path := socketPath(t)
	dir := filepath.Dir(path)
	for _, mode := range []fs.FileMode{0o755, 0o710, 0o701, 0o770} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--socket", path}, {"--run-dir", dir}} {
			r := runBaton(t, startLimit, append([]string{"decode"}, args...)...)
			if r.code != 1 || !strings.Contains(r.out, "others can enter") || !strings.Contains(r.out, "chmod 700") {
				t.Errorf("%q with mode %#o: exit code %d: %s", args, mode, r.code, r.out)
			}
		}
	}
}

// Over TCP there is the API and nothing else, under the key if there is one.
func TestDecodeTCP(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := socketPath(t)
	s := startDecode(t, path, "--port", "0", "--api-key-file", keys)
	url, err := waitHealthy(s.out.String, s.exited)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, path, key string
		want              int
	}{
		{"GET", "/v1/models", "", http.StatusUnauthorized},
		{"GET", "/engine/info", "", http.StatusUnauthorized},
		{"GET", "/v1/models", "secret", http.StatusOK},
		{"GET", "/slots", "secret", http.StatusOK},
		{"GET", "/engine/info", "secret", http.StatusNotFound},
		{"GET", "/engine/stats", "secret", http.StatusNotFound},
		{"POST", "/engine/generate", "secret", http.StatusNotFound},
		{"POST", "/slots/0?action=share", "secret", http.StatusNotImplemented},
		{"POST", "/slots/0?action=adopt", "secret", http.StatusNotImplemented},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, url+tt.path, strings.NewReader("{}"))
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
			t.Errorf("%s %s with key %q: %s, want %d", tt.method, tt.path, tt.key, resp.Status, tt.want)
		}
	}
	dialEngine(t, path) // the socket's permissions are the key to the engine
}

// A child ends with its lifeline, although it has work, and with nothing else: signals are
// for its parent.
func TestDecodeChild(t *testing.T) {
	path := socketPath(t)
	lifeline, parent, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	// The model's file is the one that the parent has open, whatever its name leads to.
	if err := os.WriteFile(path+".gguf", demo.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	model, err := os.Open(path + ".gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	if err := os.Remove(path + ".gguf"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(batonBin, "decode", "--child", "--run-dir", filepath.Dir(path), "--model-fd", "4", "-m", path+".gguf")
	cmd.ExtraFiles = []*os.File{lifeline, model}
	s := launch(t, cmd)
	lifeline.Close()
	c := dialEngine(t, path)
	r := engine.NewRequest(goldenPrompts(t)[0].Tokens)
	r.IgnoreEOS = true
	st, err := c.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if ev, err := st.Recv(t.Context()); err != nil || ev.Kind != engine.Token {
				t.Fatalf("after %v: %+v, %v", sig, ev, err)
			}
		}
	}
	parent.Close()
	select {
	case <-s.exited:
	case <-time.After(stopLimit): // less than it may drain for
		t.Fatal("still there after its parent")
	}
	if _, err := net.Dial("unix", path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its socket is still there: %v", err)
	}
	if strings.Contains(s.out.String(), "Try it") {
		t.Errorf("a child talks to people: %s", s.out)
	}
}
