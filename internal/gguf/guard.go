package gguf

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrFault is the error of a read from mapped memory that the system could not serve:
// the file was truncated after it was mapped, or the disk failed.
var ErrFault = errors.New("mapped file could not be read: it was truncated or its disk failed")

// Guard runs fn and turns a memory fault in it into an error that wraps ErrFault.
// It covers fn's own goroutine only: goroutines that fn starts need a Guard of their
// own. Any other panic passes through.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		// The runtime gives the panics of faults an address, and only those.
		fault, ok := r.(interface{ Addr() uintptr })
		if !ok {
			panic(r)
		}
		err = fmt.Errorf("gguf: %w (address %#x)", ErrFault, fault.Addr())
	}()
	return fn()
}

// withName adds the file's name to an error of Guard; the parser's errors carry it.
func withName(err error, name string) error {
	if errors.Is(err, ErrFault) {
		return fmt.Errorf("gguf: %s: %w", name, ErrFault)
	}
	return err
}
