package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton/internal/demo"
)

// child is a process that a server has started.
type child struct {
	pid  int
	args []string
}

// role is the child's subcommand.
func (c child) role() string {
	if len(c.args) < 2 {
		return ""
	}
	return c.args[1]
}

// children are the direct children of a process that have not ended.
func children(t testing.TB, pid int) (list []child) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for _, f := range strings.Fields(string(b)) {
			id, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id)); err == nil && len(line) > 0 {
				list = append(list, child{id, strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")})
			}
		}
	}
	return list
}

// childOf waits for the child that plays a role and is not the process old.
func (s *server) childOf(t testing.TB, role string, old int) child {
	t.Helper()
	for end := time.Now().Add(startLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, c := range children(t, s.cmd.Process.Pid) {
			if c.role() == role && c.pid != old {
				return c
			}
		}
	}
	t.Fatalf("no %s among the children %v", role, children(t, s.cmd.Process.Pid))
	return child{}
}

// ends waits until a process is gone.
func ends(t testing.TB, pid int) {
	t.Helper()
	for end := time.Now().Add(stopLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		// The command line of a zombie, which nobody may reap here, is empty.
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || len(line) == 0 {
			return
		}
	}
	t.Errorf("process %d still runs", pid)
}

// healthy waits until /health says ok.
func (s *server) healthy(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(startLimit); s.get(t, "/health") != http.StatusOK; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not healthy again")
		}
	}
}

// open starts a long streamed answer and returns it after its first byte.
func (s *server) open(t testing.TB, tokens int) io.ReadCloser {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	t.Cleanup(cancel)
	resp, err := s.send(ctx, "POST", "/v1/completions", map[string]any{
		"prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0, "ignore_eos": true, "stream": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	var first [1]byte
	if _, err := resp.Body.Read(first[:]); err != nil {
		t.Fatalf("no first byte: %v", err)
	}
	return resp.Body
}

// The reference's own words for a short prompt.
func goldenAnswer(t testing.TB) (prompt, answer string) {
	g := goldenPrompts(t)[0]
	return g.Text, g.GreedyText
}

func (s *server) answersRight(t testing.TB) {
	t.Helper()
	prompt, want := goldenAnswer(t)
	o := s.mustPost(t, "/completion", map[string]any{"prompt": prompt, "n_predict": 32, "temperature": 0, "ignore_eos": true})
	if got := o.str("content"); got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

// A decoder that is killed ends the answers that it was giving with an error, at once.
// The server starts another, and the next request is answered.
func TestDecoderKilled(t *testing.T) {
	kills := 3
	if os.Getenv("BATON_SLOW") != "" {
		kills = 40 // the pauses before a restart grow to 5 s
	}
	s := startServer(t)
	s.answersRight(t)
	random := rand.New(rand.NewPCG(3, 1)) // the same moments every time
	old, leak := 0, newLeak(t, s.cmd.Process.Pid)
	for range kills {
		body := s.open(t, 2400)
		d := s.childOf(t, "decode", old)
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
		if err := syscall.Kill(d.pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		old = d.pid
		evs, done, err := events(body)
		if err != nil || done || len(evs) == 0 {
			t.Fatalf("a stream of %d events ended well: %v, %v", len(evs), done, err)
		}
		last := evs[len(evs)-1]
		if msg := last.str("error", "message"); !strings.Contains(msg, "decoder") || last.str("error", "code") != "decoder_away" {
			t.Errorf("the last event is %v, want an error about the decoder", last)
		}
		s.answersRight(t) // waits for the new decoder
	}
	s.healthy(t)
	leak.check(t)
}

// leak compares what a process holds before and after.
type leak struct {
	pid, fds int
}

func newLeak(t testing.TB, pid int) *leak { return &leak{pid, descriptors(t, pid)} }

func descriptors(t testing.TB, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func (l *leak) check(t testing.TB) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	now := 0
	for end := time.Now().Add(stopLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now = descriptors(t, l.pid); now <= l.fds {
			return
		}
	}
	t.Errorf("%d descriptors are open, before there were %d", now, l.fds)
}

// A decoder that stands still makes the server unhealthy, and nothing else.
func TestDecoderStopped(t *testing.T) {
	s := startServer(t)
	d := s.childOf(t, "decode", 0)
	if err := syscall.Kill(d.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(startLimit); s.get(t, "/health") != http.StatusServiceUnavailable; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("healthy without a decoder")
		}
	}
	if err := syscall.Kill(d.pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.healthy(t)
	s.answersRight(t)
}

// Whatever ends the server ends its processes, and the run directory is removed.
func TestNothingIsLeft(t *testing.T) {
	runDir := func(c child) string {
		for i, a := range c.args {
			if a == "--run-dir" {
				return c.args[i+1]
			}
		}
		t.Fatalf("no run directory in %q", c.args)
		return ""
	}
	s := startServer(t)
	d := s.childOf(t, "decode", 0)
	s.stop(t)
	ends(t, d.pid)
	if _, err := os.Stat(runDir(d)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the run directory: %v", err)
	}

	s = startServer(t)
	d = s.childOf(t, "decode", 0)
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	ends(t, d.pid)
	os.RemoveAll(runDir(d))
}

// A service manager's SIGTERM goes to all processes of a service. The answer that is
// running is given to its end.
func TestTermForEverybody(t *testing.T) {
	s := startServer(t)
	body := s.open(t, 300)
	for _, pid := range []int{s.childOf(t, "decode", 0).pid, s.cmd.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if evs, done, err := events(body); err != nil || !done {
		t.Errorf("the answer was cut off after %d events: %v, %v", len(evs), done, err)
	}
	s.wait(t)
}

// A decoder that is started again serves the file that the server was started with,
// although another one has taken its name.
func TestModelReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "-m", path)
	if err := os.WriteFile(path+".new", []byte("no model at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.childOf(t, "decode", 0).pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.answersRight(t)
}

// The server's own options are not taken for its children's.
func TestChildrenAndEnvironment(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("a-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BATON_API_KEY_FILE", keys)
	t.Setenv("BATON_LOG_FORMAT", "text")
	t.Setenv("BATON_PARALLEL", "3")
	s := startServer(t)
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.childOf(t, "decode", 0).pid))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(env), "BATON_API_KEY_FILE") || !strings.Contains(string(env), "PATH=") {
		t.Errorf("environment of the decoder: %q", env)
	}
	if s.get(t, "/slots") != http.StatusUnauthorized {
		t.Error("the key is not asked for")
	}
}
