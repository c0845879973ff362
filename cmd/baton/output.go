package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// outliveReader lets a server survive whoever reads what it prints: in "baton serve | tee
// log" an interrupt of the terminal ends tee as well, and the next line would end the
// process while answers are running. A write to a pipe that nobody reads ends the returned
// context instead. What is printed must go through the returned writers.
func outliveReader(ctx context.Context, out io.Writer) (_ context.Context, stdout, stderr io.Writer) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // writes fail with EPIPE now
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watchedWriter{out, cancel}, &watchedWriter{os.Stderr, cancel}
}

// errUnread is the cause of the end of a server whose output nobody reads.
var errUnread = errors.New("nobody reads the output any more")

// watchedWriter tells when nobody reads what is written.
type watchedWriter struct {
	w      io.Writer
	broken context.CancelCauseFunc
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		w.broken(errUnread)
	}
	return n, err
}
