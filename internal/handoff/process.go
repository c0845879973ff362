package handoff

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Process is another process, held by a descriptor of it (pidfd), so that its number
// cannot come to mean another one.
type Process struct {
	pid   int // at the time it was opened
	file  *os.File
	group int // its process group, if it leads that; else 0
	ended chan struct{}
	close sync.Once
}

// OpenProcess takes hold of the process pid, which must be a child of the caller's or be
// known to live by other means.
func OpenProcess(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("handoff: process %d: %w", pid, os.NewSyscallError("pidfd_open", err))
	}
	return newProcess(pid, fd), nil
}

// newProcess takes over fd, which does not block.
func newProcess(pid, fd int) *Process {
	p := &Process{pid: pid, file: os.NewFile(uintptr(fd), "pidfd"), ended: make(chan struct{})}
	if group, err := unix.Getpgid(pid); err == nil && group == pid {
		p.group = group
	}
	go p.wait()
	return p
}

// wait closes ended when the process ends. It ends itself when the descriptor is closed.
func (p *Process) wait() {
	rc, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	var exited bool
	// A pidfd is readable once the process has ended.
	err = rc.Read(func(fd uintptr) bool {
		set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(set, 0)
		exited = err == nil && n == 1
		return exited
	})
	if err == nil && exited {
		close(p.ended)
	}
}

// Ended is closed when the process has ended, as a zombie too.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Gone reports whether the process has ended and, if it led a process group, nobody of
// that is left.
func (p *Process) Gone() bool {
	select {
	case <-p.ended:
	default:
		return false
	}
	return p.group == 0 || errors.Is(unix.Kill(-p.group, 0), unix.ESRCH) || !groupRuns(p.group)
}

// groupRuns reports whether a process of the group has not ended. The kernel keeps those
// that have until their parent asks for them; they have no memory any more.
func groupRuns(group int) bool {
	proc, err := os.Open("/proc")
	if err != nil {
		return true
	}
	names, err := proc.Readdirnames(-1)
	if err := errors.Join(err, proc.Close()); err != nil {
		return true
	}
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended since
		}
		// PID (NAME) STATE PPID PGRP ...; the name may contain anything.
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) >= 3 && f[2] == strconv.Itoa(group) && f[0] != "Z" && f[0] != "X" {
			return true
		}
	}
	return false
}

// Kill ends the process.
func (p *Process) Kill() error {
	var killErr error
	rc, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	err = rc.Control(func(fd uintptr) { killErr = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	if errors.Is(killErr, unix.ESRCH) {
		return nil // it is gone already
	}
	return errors.Join(err, os.NewSyscallError("pidfd_send_signal", killErr))
}

// Close lets go of the process.
func (p *Process) Close() error {
	var err error
	p.close.Do(func() { err = p.file.Close() })
	return err
}

// soPeerPidfd is SO_PEERPIDFD (Linux 6.5): a pidfd of whoever connected the socket.
const soPeerPidfd = 77

// peerOf returns the user and the process at the other end of c, as the kernel noted
// them when the two were connected. For a socketpair that is who made the pair. The
// process is nil where it cannot be had, because it is in another PID namespace or gone.
func peerOf(c *net.UnixConn) (uid int, _ *Process, _ error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	var cred *unix.Ucred
	var process *Process
	var credErr error
	err = rc.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if credErr != nil || cred.Pid == 0 || int(cred.Pid) == os.Getpid() {
			return
		}
		process = peerProcess(int(fd), int(cred.Pid))
	})
	if err := errors.Join(err, os.NewSyscallError("SO_PEERCRED", credErr)); err != nil {
		return 0, nil, fmt.Errorf("handoff: who is at the other end: %w", err)
	}
	return int(cred.Uid), process, nil
}

func peerProcess(socket, pid int) *Process {
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, soPeerPidfd)
	if err == nil {
		if err := unix.SetNonblock(fd, true); err == nil {
			return newProcess(pid, fd)
		}
		_ = unix.Close(fd) // nothing was done with it
	}
	// An older kernel. The number may have been given to another process since, but
	// only if this one is gone, and then so is the connection.
	p, err := OpenProcess(pid)
	if err != nil {
		return nil
	}
	return p
}

// watchHangup calls gone when the other end of c is closed, in a goroutine that ends
// then, or when c2, the returned duplicate of c, is closed. It reads nothing.
func watchHangup(c *net.UnixConn, gone func()) (c2 *net.UnixConn, err error) {
	file, err := c.File()
	if err != nil {
		return nil, fmt.Errorf("handoff: watch connection: %w", err)
	}
	dup, err := net.FileConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("handoff: watch connection: %w", err)
	}
	c2, ok := dup.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("handoff: watch connection: not a Unix socket"), dup.Close())
	}
	rc, err := c2.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, c2.Close())
	}
	go func() {
		err := rc.Read(func(fd uintptr) bool {
			set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			n, err := unix.Poll(set, 0)
			return err == nil && n > 0
		})
		if err == nil {
			gone()
		}
	}()
	return c2, nil
}
