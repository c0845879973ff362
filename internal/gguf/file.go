package gguf

import (
	"fmt"
	"os"
	"slices"

	"baton/internal/quant"
)

// File is a parsed GGUF file. It is safe for concurrent use until Close.
//
// The fields describe the file and are not to be changed.
type File struct {
	Name       string // for messages: the path, or what the caller called it
	Version    uint32 // 2 or 3
	Alignment  uint64 // of the tensor data, a power of two
	Size       uint64 // bytes
	DataOffset uint64 // where the tensor data begins

	data    []byte // the whole file
	entries []entry
	keys    map[string]int // index into entries
	tensors []Tensor
	names   map[string]int // index into tensors
	unmap   func() error   // nil: data belongs to the caller, or the file is closed
}

type entry struct {
	key   string
	value Value
}

// Tensor describes one tensor and refers to its data.
type Tensor struct {
	Name   string
	Type   quant.Type
	Dims   []uint64 // 1 to 4, none zero; Dims[0] is contiguous
	Offset uint64   // of the data, from the start of the file
	Data   []byte   // a slice of the file, read only; aligned to File.Alignment bytes, which may be 1
}

// Elems returns the number of elements.
func (t Tensor) Elems() uint64 {
	n := uint64(1)
	for _, d := range t.Dims {
		n *= d // the parser has checked that this does not overflow
	}
	return n
}

// Open maps the file at path read-only and parses it. Close unmaps it.
func Open(path string) (*File, error) {
	osf, err := openRegular(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	defer osf.Close() // a mapping outlives its descriptor
	return openFile(osf, path)
}

// OpenFd maps and parses the file behind an open descriptor, a memfd for example. The
// descriptor stays the caller's, who may close it at once. The name is for messages.
func OpenFd(fd int, name string) (*File, error) {
	dup, err := dupFile(fd, name)
	if err != nil {
		return nil, fmt.Errorf("gguf: %s: descriptor %d: %w", name, fd, err)
	}
	defer dup.Close()
	return openFile(dup, name)
}

func openFile(osf *os.File, name string) (*File, error) {
	st, err := osf.Stat()
	if err != nil {
		return nil, fmt.Errorf("gguf: %s: %w", name, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("gguf: %s: is not a regular file (%s), cannot be mapped", name, st.Mode().Type())
	}
	if st.Size() == 0 {
		return nil, fmt.Errorf("gguf: %s: file is empty, expected a GGUF model", name)
	}
	if int64(int(st.Size())) != st.Size() {
		return nil, fmt.Errorf("gguf: %s: file of %d bytes does not fit this machine's address space", name, st.Size())
	}
	data, unmap, err := mapFile(osf, int(st.Size()))
	if err != nil {
		return nil, fmt.Errorf("gguf: %s: map %d bytes: %w", name, st.Size(), err)
	}
	f, err := parseMapped(data, name)
	if err != nil {
		_ = unmap() // err says what matters
		return nil, err
	}
	f.unmap = unmap
	return f, nil
}

// parseMapped parses data that somebody else may change or truncate at any time: the
// header is read once to find its extent, copied, and what is used comes from the copy.
func parseMapped(data []byte, name string) (*File, error) {
	var head []byte
	err := Guard(func() error {
		extent, err := headerExtent(data, name)
		if err != nil {
			return err
		}
		head = slices.Clone(data[:extent])
		return nil
	})
	if err != nil {
		return nil, withName(err, name)
	}
	f, err := parse(head, uint64(len(data)), name)
	if err != nil {
		return nil, fmt.Errorf("gguf: %s: the header changed while it was being read: %w", name, err)
	}
	f.attach(data)
	return f, nil
}

// Parse parses a file held in memory. Data stays the caller's, is not copied, and must
// not change while the File is in use. The name is for messages.
func Parse(data []byte, name string) (*File, error) {
	f, err := parse(data, uint64(len(data)), name)
	if err != nil {
		return nil, err
	}
	f.attach(data)
	return f, nil
}

// attach points the tensors at their data.
func (f *File) attach(data []byte) {
	f.data = data
	for i := range f.tensors {
		t := &f.tensors[i]
		end := t.Offset + tensorBytes(t.Type, t.Dims)
		t.Data = data[t.Offset:end:end]
	}
}

// Close unmaps the file. No tensor data may be touched afterwards; metadata stays
// valid. Closing twice is allowed.
func (f *File) Close() error {
	if f.unmap == nil {
		return nil
	}
	unmap := f.unmap
	f.unmap, f.data = nil, nil
	for i := range f.tensors {
		f.tensors[i].Data = nil
	}
	if err := unmap(); err != nil {
		return fmt.Errorf("gguf: %s: unmap: %w", f.Name, err)
	}
	return nil
}

// Bytes returns the whole file, read only, for checksums and the like.
func (f *File) Bytes() []byte { return f.data }

// Tensors returns all tensors in the order of the file. The slice is the File's own.
func (f *File) Tensors() []Tensor { return slices.Clip(f.tensors) }

// Tensor returns the tensor of that name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.names[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

// Keys returns the metadata keys in the order of the file.
func (f *File) Keys() []string {
	keys := make([]string, len(f.entries))
	for i, e := range f.entries {
		keys[i] = e.key
	}
	return keys
}

// Value returns the metadata value of key, whatever its type.
func (f *File) Value(key string) (Value, bool) {
	i, ok := f.keys[key]
	if !ok {
		return Value{}, false
	}
	return f.entries[i].value, true
}
