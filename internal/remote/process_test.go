package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"baton/internal/engine"
	"baton/internal/rundir"
	"baton/internal/server/servertest"
)

// A decoder that is killed ends its streams with an error, at once, and says that it is
// away. The next process at its address is found without being told of.
func TestKilledDecoder(t *testing.T) {
	path := socket(t)
	p := startProcess(t, path)
	c := dial(t, path)
	first := c.Info().Name
	if want := fmt.Sprint("decoder ", p.Process.Pid); first != want {
		t.Fatalf("reached %q, want %q", first, want)
	}
	var streams []engine.Stream
	for range 3 { // one of them waits for a slot
		streams = append(streams, generate(t, c, endless(t)))
	}
	for range 5 {
		next(t, streams[0])
	}
	until(t, c, func(s engine.Stats) bool { return s.Running == 2 && s.Waiting == 1 })
	cancelled := generate(t, c, endless(t))
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil { // so that the cancel stays unanswered
		t.Fatal(err)
	}
	cancelled.Cancel()
	p.kill(t)
	for i, st := range streams {
		r := last(collect(t, st))
		var e *engine.Error
		if r.Reason != engine.Failed || !errors.As(r.Err, &e) || e.Code != engine.CodeAway || !strings.Contains(e.Message, "the decoder process ended") {
			t.Errorf("stream %d ended with %+v", i, r)
		}
	}
	if r := last(collect(t, cancelled)); r.Reason != engine.Cancelled {
		t.Errorf("a request that was cancelled before ended with %+v", r)
	}
	if err := c.Err(); err == nil {
		t.Error("the client does not know that the decoder is gone")
	}
	if s := c.Stats(); len(s.Slots) != 2 {
		t.Errorf("the last snapshot is lost: %+v", s)
	}
	_, err := c.Generate(t.Context(), greedy(golden(t)[0].Tokens, 4))
	var e *engine.Error
	if !errors.As(err, &e) || e.Code != engine.CodeAway {
		t.Errorf("with no decoder: %v", err)
	}

	startProcess(t, path) // its socket replaces the dead one
	dial(t, path)         // it is ready
	events := collect(t, generate(t, c, greedy(golden(t)[0].Tokens, 32)))
	if got := text(events); got != golden(t)[0].Answer {
		t.Errorf("the new process answers %q", got)
	}
	until(t, c, idle)
	if err := c.Err(); err != nil {
		t.Errorf("the decoder is back, but: %v", err)
	}
	if second := c.Info().Name; second == first {
		t.Errorf("still described as %q", second)
	}
}

// A decoder that is stopped answers nothing. Statistics and contexts do not wait for it.
func TestStoppedDecoder(t *testing.T) {
	path := socket(t)
	p := startProcess(t, path)
	c := dial(t, path)
	st := generate(t, c, endless(t))
	next(t, st)
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(statsAge + time.Millisecond)
	begin := time.Now()
	for range 3 {
		c.Stats()
	}
	if took := time.Since(begin); took >= statsLimit { // as long as the decoder may take to answer
		t.Errorf("3 snapshots took %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	again, err := c.Generate(ctx, endless(t))
	if err != nil {
		t.Fatal(err)
	}
	if r := last(collect(t, again)); r.Reason != engine.Cancelled {
		t.Errorf("a request whose caller left ended with %+v", r)
	}
	for end := time.Now().Add(30 * time.Second); c.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if c.Stats(); time.Now().After(end) {
			t.Fatal("a stopped decoder does not count as away")
		}
	}
	if err := p.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	st.Cancel()
	if r := last(collect(t, st)); r.Reason != engine.Cancelled || r.Slot != 0 {
		t.Errorf("ended with %+v", r)
	}
	until(t, c, idle)
}

// A client that dies leaves nothing running.
func TestClientGone(t *testing.T) {
	d := newDecoder(t, smallOptions)
	c, _ := serve(t, d)
	st := generate(t, c, endless(t)).(*stream)
	next(t, st)
	st.conn.Close()
	until(t, d, idle)
	collect(t, st)
}

func TestDialWaits(t *testing.T) {
	path := socket(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, path); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("with nothing there: %v", err)
	}
	// One that is still loading its model is waited for.
	d, err := rundir.Open(strings.TrimSuffix(path, "/decoder.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l, err := d.Listen("decoder.sock")
	if err != nil {
		t.Fatal(err)
	}
	h := NewHandler()
	srv := &http.Server{Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	defer wg.Wait()
	defer srv.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, path); err == nil || !strings.Contains(err.Error(), "loading") {
		t.Errorf("while it loads: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { h.SetEngine(&servertest.Engine{Name: "late"}) })
	if c := dial(t, path); c.Info().Name != "late" {
		t.Errorf("got %+v", c.Info())
	}
}

// What is no decoder, or one of another version, is not waited for.
func TestDialRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"something else": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, "reading its answer"},
		"no such page":   {http.NotFound, "404"},
		"another version": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(instanceHeader, "x")
			if r.URL.Path == pathInfo {
				fmt.Fprint(w, `{"Protocol": "baton-engine/0"}`)
			} else {
				fmt.Fprint(w, `{}`)
			}
		}, "one version"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := rundir.Open("")
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			l, err := d.Listen("s")
			if err != nil {
				t.Fatal(err)
			}
			srv := &http.Server{Handler: c.answer}
			var wg sync.WaitGroup
			wg.Go(func() { _ = srv.Serve(l) })
			defer wg.Wait()
			defer srv.Close()
			if _, err := Dial(t.Context(), d.Socket("s")); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error with %q", err, c.says)
			}
		})
	}
}

// The handler refuses what is no request before it reaches the engine.
func TestHandlerRefuses(t *testing.T) {
	c, h := serve(t, &servertest.Engine{Reply: "Hello"})
	good, err := encodeRequest(engine.NewRequest([]int32{1}))
	if err != nil {
		t.Fatal(err)
	}
	post := func(method, path, upgrade, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://decoder"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if upgrade != "" {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", upgrade)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	for _, c := range []struct {
		name, method, path, upgrade, body string
		status                            int
		says                              string
	}{
		{"no upgrade", "POST", pathGenerate, "", string(good), http.StatusUpgradeRequired, protocol},
		{"another protocol", "POST", pathGenerate, "websocket", string(good), http.StatusUpgradeRequired, "websocket"},
		{"bad request", "POST", pathGenerate, protocol, `{"Temperature": 1}`, http.StatusBadRequest, "Temperature"},
		{"empty", "POST", pathGenerate, protocol, ``, http.StatusBadRequest, "EOF"},
		{"method", "GET", pathGenerate, protocol, ``, http.StatusMethodNotAllowed, ""},
		{"path", "GET", "/engine/", "", ``, http.StatusNotFound, ""},
	} {
		if status, text := post(c.method, c.path, c.upgrade, c.body); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s, want %d and %q", c.name, status, text, c.status, c.says)
		}
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.Generate(t.Context(), engine.NewRequest([]int32{1})); engine.AsError(err).Code != engine.CodeStopping {
		t.Errorf("after Shutdown: %v", err)
	}
}

// Shutdown lets running answers finish; when its time is over it cancels them, and their
// clients still get the last event.
func TestShutdown(t *testing.T) {
	d := newDecoder(t, smallOptions)
	c, h := serve(t, d)
	finishes := generate(t, c, greedy(golden(t)[0].Tokens, 50))
	next(t, finishes)
	endless := generate(t, c, endless(t))
	next(t, endless)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := h.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if r := last(collect(t, endless)); r.Reason != engine.Cancelled || r.Slot < 0 {
		t.Errorf("the endless request ended with %+v", r)
	}
	collect(t, finishes)
	until(t, d, idle)
}

// broken is an engine whose streams misbehave.
type broken struct {
	servertest.Engine
	recv func() (engine.Event, error)
}

type brokenStream struct{ recv func() (engine.Event, error) }

func (b *broken) Generate(context.Context, *engine.Request) (engine.Stream, error) {
	return &brokenStream{b.recv}, nil
}
func (s *brokenStream) Recv(context.Context) (engine.Event, error) { return s.recv() }
func (s *brokenStream) Cancel()                                    {}

func TestBrokenEngine(t *testing.T) {
	for name, c := range map[string]struct {
		recv func() (engine.Event, error)
		says string
	}{
		"an error":    {func() (engine.Event, error) { return engine.Event{}, os.ErrClosed }, "already closed"},
		"no result":   {func() (engine.Event, error) { return engine.Event{}, io.EOF }, "without a result"},
		"wrong event": {func() (engine.Event, error) { return engine.Event{Kind: 9}, nil }, "no event"},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := serve(t, &broken{recv: c.recv})
			r := last(collect(t, generate(t, client, engine.NewRequest([]int32{1}))))
			if r.Reason != engine.Failed || r.Err == nil || !strings.Contains(r.Err.Error(), c.says) {
				t.Errorf("ended with %+v, want an error with %q", r, c.says)
			}
		})
	}
}
