//go:build !unix

package gguf

import (
	"errors"
	"io"
	"os"
)

func openRegular(path string) (*os.File, error) { return os.Open(path) }

func dupFile(int, string) (*os.File, error) {
	return nil, errors.New("opening a descriptor is not supported on this system")
}

// mapFile reads the file where there is no mmap that we use.
func mapFile(f *os.File, size int) (data []byte, unmap func() error, err error) {
	data = make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, err
	}
	return data, func() error { return nil }, nil
}
