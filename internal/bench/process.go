package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Program is an engine's command line; it must answer the protocol on its standard
// input and output.
type Program struct {
	Path string
	Args []string
}

// process is a running engine.
type process struct {
	name   string // as it calls itself
	info   answer // of its first line
	load   time.Duration
	pid    int
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  *bufio.Scanner
	stderr tail
	over   bool // waited for
}

// start runs a program until it is ready; with priority, before all other work on the
// machine.
func start(ctx context.Context, p Program, priority bool) (*process, error) {
	e := &process{cmd: exec.CommandContext(ctx, p.Path, p.Args...)}
	e.cmd.Stderr = &e.stderr
	var err error
	if e.in, err = e.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.lines = bufio.NewScanner(out)
	began := time.Now()
	run := e.cmd.Start
	if priority {
		run = func() error { return startFirst(e.cmd) }
	}
	if err := run(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	e.pid = e.cmd.Process.Pid
	if e.info, err = e.receive("ready"); err != nil {
		_ = e.stop() // the first error says more
		return nil, err
	}
	e.load = time.Since(began)
	e.name = e.info["name"]
	return e, nil
}

// send gives one command and waits for the answer.
func (e *process) send(line string) (answer, error) {
	if _, err := io.WriteString(e.in, line+"\n"); err != nil {
		return nil, e.ended()
	}
	return e.receive("ok")
}

func (e *process) receive(word string) (answer, error) {
	if !e.lines.Scan() {
		return nil, e.ended()
	}
	return parseAnswer(word, e.lines.Text())
}

// ended is the error of a process that ended before it should, with the last that it
// said.
func (e *process) ended() error {
	if err := e.stop(); err != nil {
		return err
	}
	return fmt.Errorf("bench: %s ended without an answer%s", e.cmd.Path, e.stderr.text())
}

// sample is one run of one engine.
type sample struct {
	seconds float64
	answer  answer
	// waited is the part of the run that a thread of the engine was ready but had no
	// core; others is what all other processes used, as a share of all cores.
	waited, others float64
}

// run sends a command and watches the machine meanwhile.
func (e *process) run(line string) (sample, error) {
	before := takeUsage(e.pid)
	began := time.Now()
	a, err := e.send(line)
	if err != nil {
		return sample{}, err
	}
	wall := time.Since(began)
	s := sample{answer: a}
	s.waited, s.others = takeUsage(e.pid).since(before, wall)
	s.seconds, err = a.number("seconds")
	return s, err
}

// settle waits until the process uses no more CPU time, so that threads that still look
// for work do not take it from the other engine.
func (e *process) settle(ctx context.Context) error {
	const step, most = 30 * time.Millisecond, 3 * time.Second
	last, quiet := takeUsage(e.pid).process, 0
	for range int(most / step) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(step):
		}
		now := takeUsage(e.pid).process
		if quiet++; now != last {
			quiet = 0
		}
		if last = now; quiet == 2 {
			return nil
		}
	}
	return fmt.Errorf("bench: %s keeps using the CPU while it has nothing to do", e.name)
}

// stop ends the process and waits for it.
func (e *process) stop() error {
	if e.over {
		return nil
	}
	e.over = true
	e.in.Close()
	timer := time.AfterFunc(10*time.Second, func() { _ = e.cmd.Process.Kill() })
	defer timer.Stop()
	err := e.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("bench: %s: %w%s", e.cmd.Path, err, e.stderr.text())
	}
	return err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if n := len(t.b) - 2048; n > 0 {
		t.b = t.b[n:]
	}
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := bytes.TrimSpace(t.b)
	if len(b) == 0 {
		return ""
	}
	return ": " + strings.ReplaceAll(string(b), "\n", "; ")
}

// warmFile reads a file once, so that every engine finds it in the page cache.
func warmFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return err
}
