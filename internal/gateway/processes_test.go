package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton/internal/engine"
	"baton/internal/remote"
	"baton/internal/rundir"
	"baton/internal/supervise"
)

// roleEnv makes the test binary a process of a server: "decoder SOCKET" or "provider
// SOCKET".
const roleEnv = "BATON_TEST_GATEWAY"

// play is a decoder that has no model, whose control API can hand nothing over; or a
// provider that does nothing but to register, which it does with a file.
func play(role string) int {
	role, arg, _ := strings.Cut(role, " ")
	switch role {
	case "broken":
		fmt.Fprintln(os.Stderr, "baton: the model is broken")
		return 1
	case "provider":
		if os.WriteFile(arg+".provider", fmt.Appendf(nil, `[{"name":"cpu","pid":%d}]`, os.Getpid()), 0o600) != nil {
			return 9
		}
		time.Sleep(time.Hour)
	case "decoder":
		return playDecoder(arg)
	}
	return 9
}

func playDecoder(socket string) int {
	dir, err := rundir.Open(filepath.Dir(socket))
	if err != nil {
		return 9
	}
	l, err := dir.Listen(filepath.Base(socket))
	if err != nil {
		return 9
	}
	d := newFakeDecoder(2).stepwise()
	go func() { // 200 tokens a second
		for range time.Tick(5 * time.Millisecond) {
			d.step <- struct{}{}
		}
	}()
	h := remote.NewHandler()
	h.SetEngine(d)
	mux := http.NewServeMux()
	mux.Handle("/engine/", h)
	mux.HandleFunc("POST /slots/{id}", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(w, `{"error":{"code":"provider_unreachable","message":"nobody is registered"}}`)
	})
	mux.HandleFunc("GET /providers", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, socket+".provider")
	})
	go http.Serve(l, mux)
	_, _ = io.Copy(io.Discard, os.NewFile(3, "lifeline"))
	return 0
}

// as plays a role in a child with a lifeline.
func as(role string) Command {
	return func(context.Context) (*supervise.Command, error) {
		return &supervise.Command{Env: append(os.Environ(), roleEnv+"="+role), Lifeline: !strings.HasPrefix(role, "provider")}, nil
	}
}

func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw") // t.TempDir's paths are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func startProcesses(t *testing.T, opt ProcessOptions) *Processes {
	t.Helper()
	p, err := Start(withLimit(t), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

func TestProcesses(t *testing.T) {
	socket := socketPath(t)
	log, logger := newLog()
	p := startProcesses(t, ProcessOptions{
		Socket: socket, Decoder: as("decoder " + socket), Logger: logger,
		Provider: &Provider{Name: "cpu", Command: as("provider " + socket), MinTokens: 512},
	})
	if err := p.Engine.Err(); err != nil {
		t.Errorf("after the start: %v", err)
	}
	// A handoff that nobody can do costs no answer.
	if text, r := finish(t, generate(t, p.Engine, request("one", 3, long(600, 0)...))); text != "abc" || r.Timings.Handoff.Route != engine.RouteLocal {
		t.Errorf("%q, %+v", text, r)
	}
	if !strings.Contains(log.String(), "code=provider_unreachable") {
		t.Errorf("log %q", log)
	}

	// Killed: what runs ends with a reason, what comes next is answered.
	for range 3 {
		first := generate(t, p.Engine, request("runs", 100000))
		if ev, err := first.Recv(withLimit(t)); err != nil || ev.Kind != engine.Token {
			t.Fatalf("%+v, %v", ev, err)
		}
		if err := syscall.Kill(p.decoder.State().PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, r := finish(t, first); r.Reason != engine.Failed || engine.AsError(r.Err).Code != engine.CodeAway {
			t.Errorf("%+v", r)
		}
		if text, r := finish(t, generate(t, p.Engine, request("next", 2))); text != "ab" {
			t.Errorf("%q, %+v", text, r)
		}
	}
	if got := p.decoder.State().Starts; got != 4 {
		t.Errorf("%d decoders", got)
	}
	eventually(t, "it is healthy again", func() bool { p.Engine.Stats(); return p.Engine.Err() == nil })

	// A provider that dies or hangs is no matter of health.
	killed := 0
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		var st supervise.State
		eventually(t, "the provider runs", func() bool { st = p.provider.State(); return st.Ready && st.PID != killed })
		if err := syscall.Kill(st.PID, sig); err != nil {
			t.Fatal(err)
		}
		killed = st.PID
		p.Engine.Stats()
		if err := p.Engine.Err(); err != nil {
			t.Errorf("%v: %v", sig, err)
		}
	}
}

// A decoder that stands still is noticed, without waiting for it.
func TestDecoderHangs(t *testing.T) {
	socket := socketPath(t)
	p := startProcesses(t, ProcessOptions{Socket: socket, Decoder: as("decoder " + socket)})
	pid := p.decoder.State().PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is away", func() bool { p.Engine.Stats(); return p.Engine.Err() != nil })
	if msg := p.Engine.Err().Error(); strings.Contains(msg, socket) {
		t.Errorf("%q names the socket", msg)
	}
	st := generate(t, p.Engine, request("one", 2))
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if text, r := finish(t, st); text != "ab" {
		t.Errorf("%q, %+v", text, r)
	}
	eventually(t, "it is back", func() bool { p.Engine.Stats(); return p.Engine.Err() == nil })
}

func TestCannotStart(t *testing.T) {
	if _, err := Start(withLimit(t), ProcessOptions{Socket: socketPath(t), Decoder: as("broken")}); err == nil || err.Error() != "the model is broken" {
		t.Errorf("%v, want the decoder's last words", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	socket := socketPath(t)
	if _, err := Start(ctx, ProcessOptions{Socket: socket, Decoder: as("decoder " + socket)}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
