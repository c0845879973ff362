package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lifelineFD is where a child finds its lifeline (supervise.Command): a pipe that closes
// when it shall end, which the end of its parent does, too.
const lifelineFD = 3

// childLimit is how long a child may take to end before it ends regardless: a step of a
// large model is not interrupted.
const childLimit = 10 * time.Second

// errReleased is the cause of a child's end.
var errReleased = errors.New("the parent has ended, or wants no more")

// asChild makes this process the child of another of Baton's. The context ends, for
// errReleased, with the lifeline and with nothing else: what a terminal or a service
// manager signals to everybody is the parent's to handle, which still needs its children
// then.
func asChild() (context.Context, error) {
	var st unix.Stat_t
	if err := unix.Fstat(lifelineFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil, fmt.Errorf("--child is for processes that baton serve starts: descriptor %d is no lifeline", lifelineFD)
	}
	unix.CloseOnExec(lifelineFD)
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(lifelineFD, "lifeline")) // nothing is ever sent
		cancel(errReleased)
		time.Sleep(childLimit)
		os.Exit(1)
	}()
	return ctx, nil
}
