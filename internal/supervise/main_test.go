package supervise_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"baton/internal/supervise"
)

// roleEnv makes the test binary play a child.
const roleEnv = "BATON_TEST_ROLE"

// TestMain runs the tests, or a child's role.
func TestMain(m *testing.M) {
	role, arg, _ := strings.Cut(os.Getenv(roleEnv), " ")
	if role == "" {
		goleak.VerifyTestMain(m)
		return
	}
	os.Exit(play(role, arg))
}

func play(role, arg string) int {
	switch role {
	case "sleep": // until killed; SIGTERM is ignored
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("asleep")
		time.Sleep(time.Hour)
	case "polite": // until the lifeline is closed
		signal.Ignore(syscall.SIGTERM)
		life := os.NewFile(3, "lifeline")
		fmt.Println("waiting")
		if _, err := io.Copy(io.Discard, life); err != nil {
			return 9
		}
		fmt.Println("done")
		return 0
	case "term": // until SIGTERM
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("waiting")
		<-c
		return 0
	case "echo":
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			return 9
		}
		return 0
	case "fail":
		fmt.Fprintln(os.Stderr, "baton: "+arg)
		return 1
	case "nice":
		prio, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
		fmt.Println("niceness", 20-prio, err) // the system call returns 20 less the niceness
		time.Sleep(time.Hour)
	case "read": // prints what is in descriptor 4
		b, err := io.ReadAll(os.NewFile(4, "inherited"))
		fmt.Println("read", string(b), err)
		time.Sleep(time.Hour)
	case "log":
		slog.New(slog.NewJSONHandler(os.Stderr, nil)).Info("one line", "cells", 7, "ms", 1.5, "who", "me")
		fmt.Fprintln(os.Stderr, "not a record")
		fmt.Fprint(os.Stderr, strings.Repeat("x", 200<<10)+"\n")
		fmt.Fprint(os.Stderr, "no end of line")
		return 0
	case "family": // a child that leaves a child of its own behind
		x := exec.Command(os.Args[0])
		x.Env = []string{roleEnv + "=sleep"}
		if x.Start() != nil {
			return 9
		}
		fmt.Println("grandchild", x.Process.Pid)
		time.Sleep(time.Hour)
	case "parent": // supervises a child and waits to be killed
		c := supervise.Start(supervise.Config{Name: "kid", Command: command("sleep")})
		if c.Wait(context.Background()) != nil {
			return 9
		}
		fmt.Println("child", c.State().PID)
		time.Sleep(time.Hour)
	}
	return 9
}

// command plays a role in a child.
func command(role string) func(context.Context) (*supervise.Command, error) {
	return func(context.Context) (*supervise.Command, error) {
		return &supervise.Command{Env: append(os.Environ(), roleEnv+"="+role)}, nil
	}
}

// record is a log that tests can wait for.
type record struct {
	r *bufio.Reader
	w *io.PipeWriter
}

func newRecord(t *testing.T) (*record, *slog.Logger) {
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close(); r.Close() })
	return &record{bufio.NewReader(r), w}, slog.New(slog.NewTextHandler(w, nil))
}

// until reads lines until one has all the words, and returns it.
func (r *record) until(t *testing.T, words ...string) string {
	t.Helper()
next:
	for {
		line, err := r.r.ReadString('\n')
		if err != nil {
			t.Fatalf("the log ended before a line with %q", words)
		}
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		return line
	}
}

// drain keeps the log from blocking who writes it.
func (r *record) drain() { go io.Copy(io.Discard, r.r) }
