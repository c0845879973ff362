package supervise_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"baton/internal/supervise"
)

// limit bounds what would otherwise hang; no result depends on it.
const limit = 20 * time.Second

func withLimit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// stop is for cleaning up: it does not wait for children that are not asked politely.
func stop(t *testing.T, c *supervise.Child) {
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Stop(ctx)
	})
}

// send sends sig to c's process, once it is known: what a child prints can be here
// before State has its number, and number 0 would be the test's own process group.
func send(t *testing.T, c *supervise.Child, sig syscall.Signal) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		if pid := c.State().PID; pid > 0 {
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("the child does not run")
		}
	}
}

// gone waits until there is no process pid.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) {
			return
		}
	}
	t.Fatalf("process %d still lives", pid)
}

// zombie: dead, but its parent, which is not us, has not taken notice yet.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z")
}

func TestLifeline(t *testing.T) {
	rec, log := newRecord(t)
	c := supervise.Start(supervise.Config{Name: "kid", Log: log, Command: func(context.Context) (*supervise.Command, error) {
		return &supervise.Command{Env: append(os.Environ(), roleEnv+"=polite"), Lifeline: true}, nil
	}})
	if err := c.Wait(withLimit(t)); err != nil {
		t.Fatal(err)
	}
	rec.until(t, "waiting", "process=kid")
	pid := c.State().PID
	// A service manager's signal to everybody does not end it.
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- c.Stop(withLimit(t)) }()
	rec.until(t, "done")
	rec.drain()
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	if got := c.State(); got.PID != 0 || got.Ready || got.Starts != 1 {
		t.Errorf("state after the end: %+v", got)
	}
	if err := c.Wait(withLimit(t)); !errors.Is(err, supervise.ErrStopped) {
		t.Errorf("wait after the end: %v, want ErrStopped", err)
	}
	gone(t, pid)
}

func TestStop(t *testing.T) {
	t.Run("SIGTERM without a lifeline", func(t *testing.T) {
		rec, log := newRecord(t)
		c := supervise.Start(supervise.Config{Name: "kid", Log: log, Command: command("term")})
		rec.until(t, "waiting")
		rec.drain()
		if err := c.Stop(withLimit(t)); err != nil {
			t.Error(err)
		}
	})
	t.Run("killed when it does not listen", func(t *testing.T) {
		c := supervise.Start(supervise.Config{Name: "kid", Command: command("sleep")})
		if err := c.Wait(withLimit(t)); err != nil {
			t.Fatal(err)
		}
		pid := c.State().PID
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Stop(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("stop: %v, want the context's error", err)
		}
		gone(t, pid)
	})
	t.Run("asked although somebody has stopped it", func(t *testing.T) {
		rec, log := newRecord(t)
		c := supervise.Start(supervise.Config{Name: "kid", Log: log, Command: command("term")})
		rec.until(t, "waiting")
		rec.drain()
		send(t, c, syscall.SIGSTOP)
		if err := c.Stop(withLimit(t)); err != nil {
			t.Error(err)
		}
	})
	t.Run("killed although it is stopped", func(t *testing.T) {
		c := supervise.Start(supervise.Config{Name: "kid", Command: command("sleep")})
		if err := c.Wait(withLimit(t)); err != nil {
			t.Fatal(err)
		}
		pid := c.State().PID
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.Stop(ctx)
		gone(t, pid)
	})
	t.Run("while it waits for its command", func(t *testing.T) {
		c := supervise.Start(supervise.Config{Name: "kid", Command: func(ctx context.Context) (*supervise.Command, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		if err := c.Stop(withLimit(t)); err != nil {
			t.Error(err)
		}
	})
}

func TestRestarts(t *testing.T) {
	var mu sync.Mutex
	var changes []bool
	c := supervise.Start(supervise.Config{Name: "kid", Command: command("sleep"), MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond,
		Changed: func(ready bool) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, ready)
		}})
	stop(t, c)
	last := 0
	const lives = 5
	for range lives {
		var pid int
		for pid = last; pid == last; pid = c.State().PID {
			if err := c.Wait(withLimit(t)); err != nil {
				t.Fatal(err)
			}
		}
		if pid == 0 {
			continue // just between two lives
		}
		last = pid
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		gone(t, pid)
	}
	if got := c.State().Starts; got < 2 {
		t.Errorf("%d starts, want more", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Stop(ctx)
	mu.Lock()
	defer mu.Unlock()
	for i, ready := range changes {
		if ready != (i%2 == 0) {
			t.Fatalf("changes %v do not alternate", changes)
		}
	}
	if len(changes)%2 != 0 {
		t.Errorf("changes %v end with a child that is ready", changes)
	}
}

func TestRestart(t *testing.T) {
	c := supervise.Start(supervise.Config{Name: "kid", Command: command("sleep"), MinPause: time.Millisecond})
	stop(t, c)
	if err := c.Wait(withLimit(t)); err != nil {
		t.Fatal(err)
	}
	pid := c.State().PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // a process that hangs
		t.Fatal(err)
	}
	c.Restart("it hangs")
	gone(t, pid)
	for end := time.Now().Add(limit); c.State().PID == pid || !c.State().Ready; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not started again")
		}
	}
}

// What a required child cannot do at first it will not be able to do later; one that has
// been ready is started again.
func TestRequired(t *testing.T) {
	c := supervise.Start(supervise.Config{Name: "kid", Required: true, Command: command("fail no such model"),
		Ready: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }})
	err := c.Wait(withLimit(t))
	var end *supervise.Ended
	if !errors.As(err, &end) || end.Name != "kid" || end.Status != "exit status 1" || end.Last != "no such model" {
		t.Errorf("%#v, want the child's end with its last words", err)
	}
	if got := c.State().Starts; got != 1 {
		t.Errorf("%d starts, want 1", got)
	}

	c = supervise.Start(supervise.Config{Name: "kid", Required: true, Command: func(context.Context) (*supervise.Command, error) {
		return &supervise.Command{Path: "/no/such/program"}, nil
	}})
	if err := c.Wait(withLimit(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}

func TestNotReady(t *testing.T) {
	tries := make(chan struct{}, 100)
	c := supervise.Start(supervise.Config{Name: "kid", Command: command("sleep"), MinPause: time.Millisecond,
		Ready: func(_ context.Context, pid int) error {
			if err := syscall.Kill(pid, 0); err != nil {
				t.Errorf("process %d: %v", pid, err)
			}
			tries <- struct{}{}
			return errors.New("it does not answer")
		}})
	stop(t, c)
	<-tries
	<-tries // it was killed and started again
	if c.State().Ready {
		t.Error("ready although it does not answer")
	}
}

func TestInheritance(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("a message"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	rec, log := newRecord(t)
	c := supervise.Start(supervise.Config{Name: "kid", Log: log, Command: func(context.Context) (*supervise.Command, error) {
		return &supervise.Command{Env: append(os.Environ(), roleEnv+"=read"), Files: []*os.File{r}, Close: true, Lifeline: true}, nil
	}})
	stop(t, c)
	rec.until(t, "read a message <nil>")
	rec.drain()
	if _, err := r.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file is still open here: %v", err)
	}
}

func TestNice(t *testing.T) {
	rec, log := newRecord(t)
	c := supervise.Start(supervise.Config{Name: "kid", Log: log, Command: func(context.Context) (*supervise.Command, error) {
		return &supervise.Command{Env: append(os.Environ(), roleEnv+"=nice"), Nice: 7}, nil
	}})
	stop(t, c)
	rec.until(t, "niceness 7 <nil>")
	rec.drain()
}

func TestLogs(t *testing.T) {
	rec, log := newRecord(t)
	c := supervise.Start(supervise.Config{Name: "kid", Log: log, Command: command("log"), MinPause: limit})
	stop(t, c)
	if line := rec.until(t, "one line"); !strings.Contains(line, `level=INFO msg="one line" process=kid cells=7 ms=1.5 who=me`) {
		t.Errorf("record %s", line)
	}
	if line := rec.until(t, "not a record"); !strings.Contains(line, `level=INFO msg="not a record" process=kid`) {
		t.Errorf("line %s", line)
	}
	if line := rec.until(t, "xxxx"); len(line) > 70<<10 || len(line) < 60<<10 {
		t.Errorf("a line of 200 KiB is passed on with %d bytes", len(line))
	}
	if line := rec.until(t, "msg"); !strings.Contains(line, "no end of line") {
		t.Errorf("after the long line: %s", line)
	}
	rec.drain()
}

func TestRun(t *testing.T) {
	_, log := newRecord(t)
	var out strings.Builder
	cmd := &supervise.Command{Env: append(os.Environ(), roleEnv+"=echo"), Stdin: strings.NewReader("some text"), Stdout: &out}
	if err := supervise.Run(withLimit(t), "kid", cmd, log); err != nil || out.String() != "some text" {
		t.Errorf("%q, %v", out.String(), err)
	}
	cmd = &supervise.Command{Env: append(os.Environ(), roleEnv+"=fail nothing works")}
	var end *supervise.Ended
	if err := supervise.Run(withLimit(t), "kid", cmd, log); !errors.As(err, &end) || end.Last != "nothing works" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	cmd = &supervise.Command{Env: append(os.Environ(), roleEnv+"=sleep"), Stdout: &out}
	if err := supervise.Run(ctx, "kid", cmd, log); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// A child's own children end with it.
func TestFamily(t *testing.T) {
	rec, log := newRecord(t)
	c := supervise.Start(supervise.Config{Name: "kid", Log: log, Command: command("family"), MinPause: limit})
	stop(t, c)
	pid := number(t, rec.until(t, "grandchild"), "grandchild ")
	rec.drain()
	send(t, c, syscall.SIGKILL)
	gone(t, pid)
}

// A parent that is killed takes its child with it.
func TestParentKilled(t *testing.T) {
	x := exec.Command(os.Args[0])
	x.Env = append(os.Environ(), roleEnv+"=parent")
	out, err := x.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid := number(t, line, "child ")
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the child does not live: %v", err)
	}
	if err := x.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	x.Wait()
	gone(t, pid)
}

func number(t *testing.T, line, after string) (n int) {
	t.Helper()
	_, rest, _ := strings.Cut(line, after)
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("no number after %q in %q", after, line)
	}
	return n
}

func TestEnv(t *testing.T) {
	t.Setenv("BATON_TEST_A", "1")
	t.Setenv("BATON_TEST_AB", "2")
	got := supervise.Env("BATON_TEST_A", "BATON_TEST_C")
	joined := strings.Join(got, "\n")
	if strings.Contains(joined, "BATON_TEST_A=") || !strings.Contains(joined, "BATON_TEST_AB=2") {
		t.Errorf("environment: %v", got)
	}
}
