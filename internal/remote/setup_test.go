package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"baton/internal/decoder"
	"baton/internal/demo"
	"baton/internal/engine"
	"baton/internal/load"
	"baton/internal/rundir"
)

// childEnv makes the test binary a decoder process that listens on the socket named.
const childEnv = "BATON_TEST_DECODER_SOCKET"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := child(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// child serves the demo model until standard input ends.
func child(path string) error {
	b, err := load.Open("")
	if err != nil {
		return err
	}
	d, err := decoder.New(b.Model, b.Vocab, decoder.Options{Slots: 2, Threads: 1, Name: fmt.Sprint("decoder ", os.Getpid())})
	if err != nil {
		return err
	}
	dir, err := rundir.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	l, err := dir.Listen(filepath.Base(path))
	if err != nil {
		return err
	}
	h := NewHandler()
	h.SetEngine(d)
	go func() { _ = http.Serve(l, h) }() //nolint:gosec // a test's
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// process is a decoder process.
type process struct {
	*exec.Cmd
	stdin io.Closer
}

func startProcess(t *testing.T, path string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(self)}
	p.Env = append(os.Environ(), childEnv+"="+path)
	p.Stderr = os.Stderr
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill(t) })
	return p
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if p.ProcessState != nil {
		return
	}
	if err := p.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = p.Wait() // says that it was killed
}

// socket is a path for a Unix socket in a private directory.
func socket(t testing.TB) string {
	t.Helper()
	d, err := rundir.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d.Socket("decoder.sock")
}

// serve serves e in this process and returns a client of it, and the handler.
func serve(t testing.TB, e engine.Engine) (*Client, *Handler) {
	t.Helper()
	path := socket(t)
	d, err := rundir.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Listen(filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	h := NewHandler()
	h.SetEngine(e)
	srv := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("shutting the handler down: %v", err)
		}
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("shutting the server down: %v", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		d.Close()
	})
	return dial(t, path), h
}

func dial(t testing.TB, path string) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newDecoder is a decoder of the demo model in this process.
func newDecoder(t testing.TB, opt decoder.Options) *decoder.Decoder {
	t.Helper()
	b, err := load.Open("")
	if err != nil {
		t.Fatal(err)
	}
	opt.Threads = 1 // several decoders run at once
	d, err := decoder.New(b.Model, b.Vocab, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := errors.Join(d.Close(ctx), b.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

func golden(t testing.TB) []demo.Prompt {
	t.Helper()
	g, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// smallOptions are for tests that need no particular decoder.
var smallOptions = decoder.Options{Slots: 2, MicroBatch: 64}

func greedy(prompt []int32, n int) *engine.Request {
	r := engine.NewRequest(prompt)
	r.Sampling.Temperature, r.MaxTokens, r.Sampling.Seed = 0, n, 1
	return r
}

// endless is a request that runs until the context is full, after thousands of tokens.
func endless(t testing.TB) *engine.Request {
	r := greedy(golden(t)[0].Tokens, -1)
	r.IgnoreEOS = true
	return r
}

func generate(t testing.TB, e engine.Engine, r *engine.Request) engine.Stream {
	t.Helper()
	st, err := e.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// next returns the next event of a stream that has one.
func next(t testing.TB, st engine.Stream) engine.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := st.Recv(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// collect returns the events of a stream to its end, and checks that it has one.
func collect(t testing.TB, st engine.Stream) (events []engine.Event) {
	t.Helper()
	for {
		e := next(t, st)
		events = append(events, e)
		if e.Kind == engine.Done {
			break
		}
	}
	for range 2 {
		if e, err := st.Recv(context.Background()); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last event: %+v, %v", e, err)
		}
	}
	return events
}

func last(events []engine.Event) *engine.Result { return events[len(events)-1].Result }

// text joins what was generated.
func text(events []engine.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Text)
	}
	b.WriteString(last(events).Text)
	return b.String()
}
