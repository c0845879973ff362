package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startLimit = 30 * time.Second // for a server to answer on a busy machine
	stopLimit  = 20 * time.Second // for a server to drain after SIGTERM
)

// output collects what a process writes while it is read from.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// result is how a command that ends by itself ended.
type result struct {
	code     int // exit code; -1: ended by a signal
	signal   syscall.Signal
	out      string // standard output and error together
	cpu      time.Duration
	maxRSS   int64 // bytes; at least that of the process which started it
	timedOut bool
}

// runBaton runs a command that is expected to end by itself within limit.
func runBaton(t testing.TB, limit time.Duration, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, batonBin, args...)
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("baton %q: %v", args, err)
	}
	r := result{code: cmd.ProcessState.ExitCode(), out: out.String(), timedOut: ctx.Err() != nil}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.signal = ws.Signal()
	}
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.maxRSS = ru.Maxrss << 10
	}
	return r
}

// server is a running `baton serve`, or another command that serves the API.
type server struct {
	url    string // http://127.0.0.1:PORT
	client *http.Client
	cmd    *exec.Cmd
	out    *output
	exited chan struct{} // closed when the process has ended
}

var addressLine = regexp.MustCompile(`http://(127\.0\.0\.1|0\.0\.0\.0|\[::\]):(\d+)`)

// startServer starts `baton serve` on a free port and waits until it is healthy. The
// test's end stops it.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := launch(t, exec.Command(batonBin, append([]string{"serve", "--port", "0"}, args...)...))
	var err error
	if s.url, err = waitHealthy(s.out.String, s.exited); err != nil {
		t.Fatalf("baton serve %q: %v; its output:\n%s", args, err, s.out)
	}
	return s
}

// launch starts cmd, which the test's end stops.
func launch(t testing.TB, cmd *exec.Cmd) *server {
	t.Helper()
	s := &server{client: http.DefaultClient, cmd: cmd, out: &output{}, exited: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // the state is read from cmd.ProcessState
		close(s.exited)
	}()
	t.Cleanup(func() {
		s.stop(t)
		if t.Failed() {
			t.Logf("output of the server:\n%s", s.out)
		}
	})
	return s
}

// waitHealthy finds the address in what a server prints, and waits for its /health.
func waitHealthy(printed func() string, exited <-chan struct{}) (string, error) {
	for end := time.Now().Add(startLimit); time.Now().Before(end); {
		select {
		case <-exited:
			return "", errors.New("ended before it was healthy")
		case <-time.After(20 * time.Millisecond):
		}
		m := addressLine.FindStringSubmatch(printed())
		if m == nil {
			continue
		}
		url := "http://127.0.0.1:" + m[2]
		resp, err := http.Get(url + "/health")
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return url, nil
		}
	}
	return "", fmt.Errorf("not healthy after %v", startLimit)
}

// stop sends SIGTERM and checks that the server ends with status 0.
func (s *server) stop(t testing.TB) {
	t.Helper()
	select {
	case <-s.exited:
		return
	default:
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("SIGTERM: %v", err)
	}
	s.wait(t)
}

// wait waits for the end that SIGTERM brings.
func (s *server) wait(t testing.TB) {
	t.Helper()
	select {
	case <-s.exited:
	case <-time.After(stopLimit):
		_ = s.cmd.Process.Kill()
		<-s.exited
		t.Errorf("the server did not end within %v of SIGTERM", stopLimit)
		return
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the server ended with %v after SIGTERM, want exit code 0", s.cmd.ProcessState)
	}
}

// alive fails the test unless the server runs and answers.
func (s *server) alive(t testing.TB) {
	t.Helper()
	select {
	case <-s.exited:
		t.Fatalf("the server has ended: %v", s.cmd.ProcessState)
	default:
	}
	resp, err := s.client.Get(s.url + "/health")
	if err != nil {
		t.Fatalf("the server does not answer: %v", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("/health: %s", resp.Status)
	}
}
