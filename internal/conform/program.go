package conform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"baton/internal/handoff"
)

// socketArg in an argument of a provider's command is replaced by the path of a socket
// that it shall connect to; without one it inherits a connection as descriptor 3.
const socketArg = "{}"

// program is a provider that runs.
type program struct {
	cmd    *exec.Cmd
	conn   *net.UnixConn
	exited chan struct{}
	state  error // of the exit; after exited
	stderr tail
	dir    string // of the socket
	hello  handoff.Hello
	trust  handoff.Trust
}

// startProgram starts a provider and connects with it.
func startProgram(ctx context.Context, argv []string) (_ *program, err error) {
	p := &program{exited: make(chan struct{})}
	var listener *net.UnixListener
	var theirs *os.File
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	args := append([]string{}, argv...)
	if strings.Contains(strings.Join(args[1:], " "), socketArg) {
		if p.dir, err = os.MkdirTemp("", "baton-conform-"); err != nil {
			return nil, err
		}
		path := filepath.Join(p.dir, "provider.sock")
		for i := range args[1:] {
			args[i+1] = strings.ReplaceAll(args[i+1], socketArg, path)
		}
		if listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
			return nil, err
		}
		defer listener.Close()
	} else if p.conn, theirs, err = inheritable(); err != nil {
		return nil, err
	}
	p.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	p.cmd.Stderr, p.cmd.Stdout = &p.stderr, &p.stderr
	p.cmd.WaitDelay = time.Second // children of its own may keep its output open
	if theirs != nil {
		defer theirs.Close()
		p.cmd.ExtraFiles = []*os.File{theirs}
	}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return nil, err
	}
	go func() {
		p.state = p.cmd.Wait()
		close(p.exited)
	}()
	if listener != nil {
		if err := listener.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return nil, err
		}
		if p.conn, err = listener.AcceptUnix(); err != nil {
			return nil, errors.New("it does not connect within 10 s")
		}
	}
	return p, nil
}

// inheritable is a connection with an end for a child.
func inheritable() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "decoder's end")
	theirs = os.NewFile(uintptr(fds[1]), "provider's end")
	c, err := net.FileConn(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return c.(*net.UnixConn), theirs, nil
}

// stop ends the program, if it has not ended.
func (p *program) stop() error {
	if p.conn != nil {
		_ = p.conn.Close() // it may be closed
	}
	if p.cmd != nil {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.exited
	}
	if p.dir != "" {
		return os.RemoveAll(p.dir)
	}
	return nil
}

// ended adds to an error how the program has ended, if it has.
func (p *program) ended(err error) error {
	select {
	case <-p.exited:
	case <-time.After(200 * time.Millisecond):
		return err
	}
	return fmt.Errorf("%w; the program has ended (%v): %s", err, p.cmd.ProcessState, p.stderr.String())
}

// holdings counts the descriptors and the memory files that the program has open.
func (p *program) holdings() (fds, maps int, err error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	mapped, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	return len(open), bytes.Count(mapped, []byte("memfd:conform-")), nil
}

// tail keeps the end of what a program prints.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 1000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text); n > most {
		t.text = t.text[n-most:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
