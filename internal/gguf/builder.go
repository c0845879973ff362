package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"unicode/utf8"

	"baton/internal/quant"
)

// Builder assembles a GGUF file. Metadata and tensors are written in the order in which
// they were first set. What would make a file that [Parse] refuses is reported by
// WriteTo, so that the calls before it need no error handling.
type Builder struct {
	// Version of the format, 2 or 3; 3 if zero.
	Version uint32

	entries []entry
	keys    map[string]int
	tensors []Tensor
	names   map[string]bool
	err     error // the first mistake
}

// NewBuilder returns an empty Builder.
func NewBuilder() *Builder {
	return &Builder{keys: map[string]int{}, names: map[string]bool{}}
}

// Set sets key to a value of a parsed file; like the other setters it replaces the value
// that the key had.
func (b *Builder) Set(key string, v Value) {
	switch {
	case key == "" || len(key) > maxKey || !utf8.ValidString(key):
		b.fail("key %s must be valid UTF-8 of 1 to %d bytes", quote(key), maxKey)
	case v.raw == nil:
		b.fail("key %s: the zero Value cannot be written", quote(key))
	}
	if i, ok := b.keys[key]; ok {
		b.entries[i].value = v
		return
	}
	b.keys[key] = len(b.entries)
	b.entries = append(b.entries, entry{key, v})
}

// SetUint32 sets an unsigned integer, the usual type of counts and token ids.
func (b *Builder) SetUint32(key string, v uint32) {
	b.Set(key, Value{Uint32, binary.LittleEndian.AppendUint32(nil, v)})
}

// SetUint64 sets a 64-bit unsigned integer.
func (b *Builder) SetUint64(key string, v uint64) {
	b.Set(key, Value{Uint64, binary.LittleEndian.AppendUint64(nil, v)})
}

// SetInt32 sets a signed integer.
func (b *Builder) SetInt32(key string, v int32) {
	b.Set(key, Value{Int32, binary.LittleEndian.AppendUint32(nil, uint32(v))})
}

// SetFloat32 sets a float.
func (b *Builder) SetFloat32(key string, v float32) {
	b.Set(key, Value{Float32, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))})
}

// SetFloat64 sets a 64-bit float.
func (b *Builder) SetFloat64(key string, v float64) {
	b.Set(key, Value{Float64, binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))})
}

// SetBool sets a bool.
func (b *Builder) SetBool(key string, v bool) {
	raw := []byte{0}
	if v {
		raw[0] = 1
	}
	b.Set(key, Value{Bool, raw})
}

// SetString sets a string, which may hold any bytes.
func (b *Builder) SetString(key, v string) {
	b.checkString(key, v)
	b.Set(key, Value{String, appendString(nil, v)})
}

// SetStrings sets an array of strings.
func (b *Builder) SetStrings(key string, v []string) {
	raw := appendArrayHead(nil, String, len(v))
	for _, s := range v {
		b.checkString(key, s)
		raw = appendString(raw, s)
	}
	b.Set(key, Value{Array, raw})
}

// SetInts sets an array of int32.
func (b *Builder) SetInts(key string, v []int32) {
	raw := appendArrayHead(nil, Int32, len(v))
	for _, n := range v {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(n))
	}
	b.Set(key, Value{Array, raw})
}

// SetFloats sets an array of float32.
func (b *Builder) SetFloats(key string, v []float32) {
	raw := appendArrayHead(nil, Float32, len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	b.Set(key, Value{Array, raw})
}

// AddTensor adds a tensor. Dims[0] is the contiguous dimension; data is not copied and
// must stay as it is until the file is written.
func (b *Builder) AddTensor(name string, t quant.Type, dims []uint64, data []byte) {
	if err := checkTensor(name, t, dims, uint64(len(data))); err != nil {
		b.fail("tensor %s: %w", quote(name), err)
	}
	if b.names[name] {
		b.fail("tensor %s is there already", quote(name))
	}
	b.names[name] = true
	b.tensors = append(b.tensors, Tensor{Name: name, Type: t, Dims: slices.Clone(dims), Data: data})
}

func checkTensor(name string, t quant.Type, dims []uint64, size uint64) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) {
		return fmt.Errorf("its name must be valid UTF-8 of 1 to %d bytes", maxName)
	}
	format, ok := t.Format()
	if !ok {
		return fmt.Errorf("unknown type %d", uint32(t))
	}
	if len(dims) < 1 || len(dims) > maxDims || slices.Contains(dims, 0) {
		return fmt.Errorf("dimensions %v must be 1 to %d numbers above zero", dims, maxDims)
	}
	if dims[0]%uint64(format.Elems) != 0 {
		return fmt.Errorf("dimension 0 is %d, not a whole number of %s blocks of %d", dims[0], format.Name, format.Elems)
	}
	if want := tensorBytes(t, dims); size != want {
		return fmt.Errorf("dimensions %v of %s take %d bytes, got %d", dims, format.Name, want, size)
	}
	return nil
}

// WriteTo writes the file.
func (b *Builder) WriteTo(w io.Writer) (int64, error) {
	head, alignment, err := b.head()
	if err != nil {
		return 0, err
	}
	cw := &countingWriter{w: w}
	if _, err := cw.Write(head); err != nil {
		return cw.n, fmt.Errorf("gguf: write: %w", err)
	}
	padding := make([]byte, alignment)
	for _, t := range b.tensors {
		// Padding goes before each tensor, so that the file ends with data.
		gap := alignUp(uint64(cw.n), alignment) - uint64(cw.n)
		for _, p := range [][]byte{padding[:gap], t.Data} {
			if _, err := cw.Write(p); err != nil {
				return cw.n, fmt.Errorf("gguf: write tensor %s: %w", quote(t.Name), err)
			}
		}
	}
	return cw.n, nil
}

// head returns everything before the padding and the data of the first tensor.
func (b *Builder) head() (head []byte, alignment uint64, err error) {
	if b.err != nil {
		return nil, 0, b.err
	}
	version := b.Version
	if version == 0 {
		version = 3
	}
	if version != 2 && version != 3 {
		return nil, 0, fmt.Errorf("gguf: build: version %d, must be 2 or 3", version)
	}
	alignment = defaultAlignment
	if i, ok := b.keys[alignmentKey]; ok {
		v := b.entries[i].value
		if v.typ != Uint32 || !validAlignment(v.uint()) {
			return nil, 0, fmt.Errorf("gguf: build: key %q must be a uint32 and a power of two from 1 to %d", alignmentKey, maxAlignment)
		}
		alignment = v.uint()
	}

	le := binary.LittleEndian
	head = append(head, "GGUF"...)
	head = le.AppendUint32(head, version)
	head = le.AppendUint64(head, uint64(len(b.tensors)))
	head = le.AppendUint64(head, uint64(len(b.entries)))
	for _, e := range b.entries {
		head = appendString(head, e.key)
		head = le.AppendUint32(head, uint32(e.value.typ))
		head = append(head, e.value.raw...)
	}
	offset := uint64(0)
	for _, t := range b.tensors {
		head = appendString(head, t.Name)
		head = le.AppendUint32(head, uint32(len(t.Dims)))
		for _, d := range t.Dims {
			head = le.AppendUint64(head, d)
		}
		head = le.AppendUint32(head, uint32(t.Type))
		head = le.AppendUint64(head, offset)
		offset = alignUp(offset+uint64(len(t.Data)), alignment)
	}
	if len(head) > maxHeader {
		return nil, 0, fmt.Errorf("gguf: build: header of %d bytes passes the limit of %d MiB", len(head), maxHeader>>20)
	}
	return head, alignment, nil
}

// WriteFile writes the file at path, replacing what is there only once it is complete.
func (b *Builder) WriteFile(path string) (err error) {
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(part)
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	_, err = b.WriteTo(w)
	if err == nil {
		err = w.Flush()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(part, path); err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	return nil
}

func (b *Builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("gguf: build: "+format, args...)
	}
}

func (b *Builder) checkString(key, s string) {
	if len(s) > maxString {
		b.fail("key %s: string of %d bytes, the limit is %d", quote(key), len(s), maxString)
	}
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendArrayHead(b []byte, elem ValueType, n int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(elem))
	return binary.LittleEndian.AppendUint64(b, uint64(n))
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
