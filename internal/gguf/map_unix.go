//go:build unix

package gguf

import (
	"os"

	"golang.org/x/sys/unix"
)

// openRegular opens path for reading. O_NONBLOCK keeps the open of a FIFO from waiting
// for a writer; it has no effect on regular files.
func openRegular(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// dupFile wraps a duplicate of fd, so that closing the result leaves fd open.
func dupFile(fd int, name string) (*os.File, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(dup), name), nil
}

// mapFile maps the first size bytes of f. The mapping is shared: all processes that
// serve the model use the same pages of the page cache.
func mapFile(f *os.File, size int) (data []byte, unmap func() error, err error) {
	data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}
