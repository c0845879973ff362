package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// Config says what child to keep running, and how.
type Config struct {
	Name string // in log lines and errors
	// Command says what to run; it is asked before every start. An error is treated
	// like a start that failed. It may wait for what the child needs, until ctx ends.
	Command func(ctx context.Context) (*Command, error)
	// Ready waits until the child, whose process is pid, is of use. Its context ends with
	// the child; an error ends the child. Nil: a child is ready once it runs.
	Ready func(ctx context.Context, pid int) error
	// Required: a child that ends before it was ready for the first time is not started
	// again; Wait returns why. What is wrong then is most likely the command line.
	Required bool
	// MinPause and MaxPause bound the time before a restart, which doubles each time;
	// default 100 ms and 5 s. It is at most half of the time that the child was ready, so
	// that what works most of the time is there most of the time.
	MinPause, MaxPause time.Duration
	// Changed, if set, is called when the child has become ready (true) and when a
	// child that was ready has ended (false), one call at a time.
	Changed func(ready bool)
	Log     *slog.Logger // default: discards
}

// Command is a program to run.
type Command struct {
	Path string   // default: this program itself
	Args []string // without the program's name
	Env  []string // default: this process's
	// Files are inherited from descriptor 4 on. They stay the caller's, unless Close is
	// set: then they are closed once the child has them, or cannot be started.
	Files []*os.File
	Close bool
	// Lifeline makes descriptor 3 a pipe that is closed when the child shall end, which
	// includes this process's end. Without it, Files begin at 3.
	Lifeline bool
	// Stdin is what the child reads; nil: nothing. Stdout gets what it prints; nil: the log.
	Stdin  io.Reader
	Stdout io.Writer
	// Nice is added to the child's scheduling niceness; 0 to 19.
	Nice int
}

// Child is a supervised child. Its methods are safe for concurrent use.
type Child struct {
	cfg  Config
	ctx  context.Context // ends when the child shall end
	stop context.CancelFunc
	done chan struct{} // closed when nothing runs any more and nothing will

	mu      sync.Mutex
	run     *run          // nil: none runs
	ready   chan struct{} // closed while the child is ready; replaced when it ends
	isReady bool
	starts  int
	err     error // why it was given up
}

// ErrStopped says that the child was stopped by Stop.
var ErrStopped = errors.New("stopped")

// Start starts the child and returns at once; see Wait.
func Start(cfg Config) *Child {
	if cfg.MinPause == 0 {
		cfg.MinPause = 100 * time.Millisecond
	}
	if cfg.MaxPause == 0 {
		cfg.MaxPause = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Child{cfg: cfg, done: make(chan struct{}), ready: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	go c.supervise()
	return c
}

// Wait waits until the child is ready, also through restarts. It returns ctx's error, or
// why there will be no child any more: ErrStopped, or the end of a required one.
func (c *Child) Wait(ctx context.Context) error {
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	select {
	case <-ready:
		return nil
	default:
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	}
}

// State is a snapshot of a child.
type State struct {
	Ready  bool
	PID    int // 0: none runs
	Starts int // times that it was started
}

// State returns a snapshot.
func (c *Child) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := State{Ready: c.isReady, Starts: c.starts}
	if c.run != nil {
		s.PID = c.run.pid
	}
	return s
}

// Restart kills the child, which is then started again like one that ended by itself.
// why goes into the log.
func (c *Child) Restart(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil || c.ctx.Err() != nil {
		return
	}
	c.cfg.Log.Warn("killing a child process", "process", c.cfg.Name, "pid", c.run.pid, "reason", why)
	c.run.kill()
}

// Stop asks the child to end and waits for that. When ctx ends first it is killed, and
// ctx's error returned. Stopping twice is no error.
func (c *Child) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stop()
	if c.run != nil {
		c.run.askToEnd()
	}
	c.mu.Unlock()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	if c.run != nil {
		c.run.kill()
	}
	c.mu.Unlock()
	<-c.done
	return fmt.Errorf("%s: killed, because it did not end in time: %w", c.cfg.Name, ctx.Err())
}

// supervise starts the child again and again.
func (c *Child) supervise() {
	defer close(c.done)
	pause := c.cfg.MinPause
	wasReady := false
	for {
		ready, lived, err := c.once()
		wasReady = wasReady || ready
		if c.ctx.Err() != nil {
			c.giveUp(ErrStopped)
			return
		}
		if c.cfg.Required && !wasReady {
			c.giveUp(err)
			return
		}
		if ready {
			pause = min(pause, max(c.cfg.MinPause, lived/2))
		}
		c.cfg.Log.Error("a child process ended and is started again", "process", c.cfg.Name, "error", err, "in", pause.String())
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			c.giveUp(ErrStopped)
			return
		}
		pause = min(2*pause, c.cfg.MaxPause)
	}
}

func (c *Child) giveUp(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// once runs the child once: whether it became ready, for how long it was, and how it
// ended.
func (c *Child) once() (ready bool, lived time.Duration, err error) {
	cmd, err := c.cfg.Command(c.ctx)
	if err != nil {
		return false, 0, fmt.Errorf("%s: %w", c.cfg.Name, err)
	}
	r, err := start(c.cfg.Name, cmd, c.cfg.Log)
	if cmd.Close {
		for _, f := range cmd.Files {
			_ = f.Close() // the child has its own, or there is none
		}
	}
	if err != nil {
		return false, 0, err
	}
	c.mu.Lock()
	c.run = r
	c.starts++
	if c.ctx.Err() != nil { // Stop came while it was being started
		r.askToEnd()
	}
	c.mu.Unlock()

	ctx, cancel := context.WithCancel(c.ctx)
	answer := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if c.cfg.Ready == nil {
			answer <- nil
		} else {
			answer <- c.cfg.Ready(ctx, r.pid)
		}
	})
	var since time.Time
	select {
	case err := <-answer:
		if err == nil {
			ready, since = true, time.Now()
			c.setReady(true)
		} else if c.ctx.Err() == nil {
			r.giveUp(fmt.Sprintf("not ready: %v", err))
		}
	case <-r.exited:
	}
	<-r.exited
	cancel()
	waiting.Wait()
	if ready {
		lived = time.Since(since)
		c.setReady(false)
	}
	c.mu.Lock()
	c.run = nil
	c.mu.Unlock()
	return ready, lived, r.end()
}

func (c *Child) setReady(ready bool) {
	c.mu.Lock()
	c.isReady = ready
	if ready {
		close(c.ready)
	} else {
		c.ready = make(chan struct{})
	}
	c.mu.Unlock()
	if c.cfg.Changed != nil {
		c.cfg.Changed(ready)
	}
}

// Run runs a command once, to its end or until ctx ends, which kills it. The error is
// ctx's, a *Ended, or why the command could not be started.
func Run(ctx context.Context, name string, cmd *Command, log *slog.Logger) error {
	r, err := start(name, cmd, log)
	if err != nil {
		return err
	}
	select {
	case <-r.exited:
	case <-ctx.Done():
		r.kill()
		<-r.exited
		return ctx.Err()
	}
	if r.state.Success() {
		return nil
	}
	return r.end()
}

// Env returns this process's environment without the named variables, for children whose
// options are all given by arguments.
func Env(without ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		for _, name := range without {
			if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
				return true
			}
		}
		return false
	})
}
