package supervise

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// run is one life of a child.
type run struct {
	name   string
	pid    int
	logs   *logs
	exited chan struct{} // closed when the process and its group are gone

	mu       sync.Mutex
	lifeline *os.File // nil: none, or closed
	alive    bool     // pid is still this child's

	state *os.ProcessState // valid once exited
}

// outputGrace is how long a dead child's output is read: somebody who inherited it may
// still hold it open.
const outputGrace = time.Second

// start runs cmd and returns once it runs, or cannot.
func start(name string, cmd *Command, log *slog.Logger) (*run, error) {
	r := &run{name: name, logs: newLogs(name, log), exited: make(chan struct{})}
	path := cmd.Path
	if path == "" {
		path = "/proc/self/exe" // also after the file was replaced by a newer one
	}
	x := exec.Command(path, cmd.Args...)
	if cmd.Path == "" {
		x.Args[0] = os.Args[0] // what people know it by
	}
	x.Env = cmd.Env
	x.Stdin, x.Stdout, x.Stderr = cmd.Stdin, cmd.Stdout, r.logs
	if cmd.Stdout == nil {
		x.Stdout = r.logs
	}
	x.WaitDelay = outputGrace
	x.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	var remote *os.File
	if cmd.Lifeline {
		var err error
		if remote, r.lifeline, err = os.Pipe(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		x.ExtraFiles = append(x.ExtraFiles, remote)
	}
	x.ExtraFiles = append(x.ExtraFiles, cmd.Files...)

	started := make(chan error)
	go r.live(x, cmd.Nice, started)
	err := <-started
	if remote != nil {
		_ = remote.Close() // the child has its own
	}
	if err != nil {
		r.dropLifeline()
		return nil, fmt.Errorf("%s: cannot be started: %w", name, err)
	}
	return r, nil
}

// live is a child's life. It runs on a thread of its own, because the kernel sends the
// death signal when the thread ends that started the child, and because niceness is a
// thread's and cannot be taken back.
func (r *run) live(x *exec.Cmd, nice int, started chan<- error) {
	runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
	if nice != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, nice); err != nil {
			started <- fmt.Errorf("niceness %d: %w", nice, err)
			return
		}
	}
	if err := x.Start(); err != nil {
		started <- err
		return
	}
	r.pid, r.alive = x.Process.Pid, true
	started <- nil

	// Wait without reaping: as long as the zombie is there, the number of its process
	// group cannot be given to another one.
	for {
		err := unix.Waitid(unix.P_PID, r.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	r.mu.Lock()
	_ = unix.Kill(-r.pid, unix.SIGKILL) // whatever it has left behind; most often nothing
	_ = x.Wait()                        // the state says it all
	r.alive = false
	r.mu.Unlock()
	r.dropLifeline()
	r.logs.flush()
	r.state = x.ProcessState
	close(r.exited)
}

// kill ends the child and its process group at once.
func (r *run) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alive {
		_ = unix.Kill(-r.pid, unix.SIGKILL) // it fails only when the child is dead
	}
}

// goodbye is how long a child that will not become ready has to end by itself, and to say
// why.
const goodbye = time.Second

// giveUp ends a child that will not become ready.
func (r *run) giveUp(why string) {
	select {
	case <-r.exited:
	case <-time.After(goodbye):
		r.logs.note(why)
		r.kill()
	}
}

// askToEnd lets the child end in its own time.
func (r *run) askToEnd() {
	cut := r.dropLifeline()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.alive {
		return
	}
	// These fail only when the child is dead.
	if !cut {
		_ = unix.Kill(r.pid, unix.SIGTERM)
	}
	_ = unix.Kill(-r.pid, unix.SIGCONT) // one that somebody has stopped would not hear
}

// dropLifeline reports whether there was one.
func (r *run) dropLifeline() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lifeline == nil {
		return false
	}
	_ = r.lifeline.Close()
	r.lifeline = nil
	return true
}

// Ended is how a child ended.
type Ended struct {
	Name   string
	Status string // "exit status 1", "signal: killed"
	Last   string // its last words, if it left any
}

func (e *Ended) Error() string {
	if e.Last == "" || e.Status == "exit status 0" {
		return e.Name + ": " + e.Status
	}
	return e.Name + ": " + e.Status + ": " + e.Last
}

// end says how the child ended. It is called after exited is closed.
func (r *run) end() error {
	return &Ended{Name: r.name, Status: r.state.String(), Last: r.logs.last()}
}
