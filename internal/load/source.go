package load

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"baton/internal/demo"
	"baton/internal/shm"
)

// Source is a model file held open, so that this process and those that it starts map
// the same file, whatever becomes of its name. The built-in model is copied into a sealed
// memfd, once, and is a file like any other from then on.
type Source struct {
	path string // empty for the built-in model
	file *os.File
}

// OpenSource opens the file at path; the empty path means the built-in model.
func OpenSource(path string) (*Source, error) {
	if path == "" {
		o, err := shm.FromBytes("baton-demo-model", demo.GGUF())
		if err != nil {
			return nil, err
		}
		file, err := o.Dup()
		if err := errors.Join(err, o.Close()); err != nil {
			return nil, err
		}
		return &Source{file: file}, nil
	}
	// A named pipe would otherwise be waited for until somebody writes to it.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return &Source{path: path, file: file}, nil
}

// InheritSource takes the descriptor over that the parent process has left, of the file
// that it knows as path.
func InheritSource(fd int, path string) (*Source, error) {
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, fmt.Errorf("load: the model's descriptor %d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	return &Source{path: path, file: os.NewFile(uintptr(fd), "model")}, nil
}

// File is the open file, for exec.Cmd.ExtraFiles. It stays the source's.
func (s *Source) File() *os.File { return s.file }

// Close closes the file; bundles that were opened stay.
func (s *Source) Close() error { return s.file.Close() }
