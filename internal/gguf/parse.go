package gguf

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"

	"baton/internal/quant"
)

// Limits beyond those that the file's size sets. Real headers stay under 32 MiB: a
// vocabulary of 256 Ki tokens with its merges takes about half of that.
const (
	maxHeader    = 256 << 20 // bytes before the tensor data
	maxString    = 16 << 20  // bytes of one string
	maxKey       = 1<<16 - 1 // bytes; docs/gguf.md
	maxName      = 64        // bytes of a tensor's name; docs/gguf.md
	maxDims      = 4
	maxDepth     = 4 // arrays in arrays
	maxAlignment = 64 << 10
	maxExtent    = 1 << 60 // elements, bytes or offset of a tensor; sums of a few never wrap

	defaultAlignment = 32
	alignmentKey     = "general.alignment"

	// The least an entry can take: key of one byte and a one-byte value; name of one
	// byte, one dimension. They bound the counts, and so the memory for the tables.
	minEntry  = stringHead + 1 + 4 + 1
	minTensor = stringHead + 1 + 4 + 8 + 4 + 8
)

// headerExtent parses the header in data and returns where it ends.
func headerExtent(data []byte, name string) (uint64, error) {
	p := newParser(data, uint64(len(data)), name)
	_, err := p.file()
	return p.pos, err
}

// parse reads the header at the start of head; size is that of the whole file.
func parse(head []byte, size uint64, name string) (*File, error) {
	return newParser(head, size, name).file()
}

func (p *parser) file() (*File, error) {
	f := &File{Name: p.name, Size: p.size}
	tensors, entries, err := p.fixed(f)
	if err != nil {
		return nil, err
	}
	if err := p.metadata(f, entries); err != nil {
		return nil, err
	}
	if err := p.alignment(f); err != nil {
		return nil, err
	}
	if err := p.tensors(f, tensors); err != nil {
		return nil, err
	}
	if err := p.place(f); err != nil {
		return nil, err
	}
	return f, nil
}

// fixed reads the magic, the version and the two counts.
func (p *parser) fixed(f *File) (tensors, entries uint64, err error) {
	if err := p.magic(); err != nil {
		return 0, 0, err
	}
	at := p.pos
	if f.Version, err = p.uint32("version"); err != nil {
		return 0, 0, err
	}
	switch v := f.Version; {
	case v == 2 || v == 3:
	case v == 1:
		return 0, 0, p.errorf(at, "version", "is 1, whose layout is another; convert the model again with a current tool")
	case v != 0 && v&0xffff == 0:
		return 0, 0, p.errorf(at, "version", "is %#08x: a big-endian file; Baton reads little-endian files", v)
	default:
		return 0, 0, p.errorf(at, "version", "is %d, Baton reads 2 and 3", v)
	}
	if tensors, err = p.count("tensor count", minTensor); err != nil {
		return 0, 0, err
	}
	entries, err = p.count("metadata count", minEntry)
	return tensors, entries, err
}

func (p *parser) magic() error {
	if len(p.head) == 0 {
		return fmt.Errorf("gguf: %s: file is empty, expected a GGUF model", p.name)
	}
	b := p.head[:min(4, len(p.head))]
	switch string(b) {
	case "GGUF":
		p.pos = 4
		return nil
	case "FUGG":
		return p.errorf(0, "magic", `is "FUGG": a big-endian file; Baton reads little-endian files`)
	case "lmgg", "fmgg", "tjgg", "algg":
		return p.errorf(0, "magic", "is %q: a format from before GGUF; convert the model again with a current tool", b)
	case "vers":
		return p.errorf(0, "magic", `is %q, expected "GGUF"; the file may be a Git LFS pointer: fetch the real one with "git lfs pull"`, b)
	}
	if len(b) < 4 && string(b) == "GGUF"[:len(b)] {
		return p.need(4, "magic")
	}
	return p.errorf(0, "magic", `is %q, expected "GGUF"; this is not a GGUF model`, b)
}

func (p *parser) metadata(f *File, n uint64) error {
	f.entries = make([]entry, 0, n)
	f.keys = make(map[string]int, n)
	for i := range int(n) {
		p.part, p.index, p.label = "metadata", i, ""
		at := p.pos
		key, err := p.string("key", maxKey)
		if err != nil {
			return err
		}
		if len(key) == 0 {
			return p.errorf(at, "key", "is empty")
		}
		if !utf8.Valid(key) {
			return p.errorf(at, "key", "%s is not valid UTF-8", quote(string(key)))
		}
		p.label = string(key)
		if first, dup := f.keys[p.label]; dup {
			return p.errorf(at, "key", "is a duplicate of metadata %d", first)
		}
		t, err := p.valueType("value type")
		if err != nil {
			return err
		}
		start := p.pos
		if err := p.skip(t, maxDepth); err != nil {
			return err
		}
		f.keys[p.label] = i
		f.entries = append(f.entries, entry{p.label, Value{t, p.head[start:p.pos:p.pos]}})
	}
	return nil
}

func (p *parser) alignment(f *File) error {
	f.Alignment = defaultAlignment
	i, ok := f.keys[alignmentKey]
	if !ok {
		return nil
	}
	v := f.entries[i].value
	p.part, p.index, p.label = "metadata", i, alignmentKey
	if v.typ != Uint32 {
		return p.fail("is of type %s, must be uint32", v.Kind())
	}
	f.Alignment = v.uint()
	if !validAlignment(f.Alignment) {
		return p.fail("is %d, must be a power of two from 1 to %d", f.Alignment, maxAlignment)
	}
	return nil
}

func validAlignment(a uint64) bool { return bits.OnesCount64(a) == 1 && a <= maxAlignment }

func (p *parser) tensors(f *File, n uint64) error {
	f.tensors = make([]Tensor, 0, n)
	f.names = make(map[string]int, n)
	for i := range int(n) {
		p.part, p.index, p.label = "tensor", i, ""
		at := p.pos
		t, err := p.tensor()
		if err != nil {
			return err
		}
		if first, dup := f.names[t.Name]; dup {
			return p.errorf(at, "name", "is a duplicate of tensor %d", first)
		}
		f.names[t.Name] = i
		f.tensors = append(f.tensors, t)
	}
	return nil
}

// tensor reads one tensor's description. Its offset is still relative to the data.
func (p *parser) tensor() (t Tensor, err error) {
	at := p.pos
	name, err := p.string("name", maxName)
	if err != nil {
		return t, err
	}
	if len(name) == 0 {
		return t, p.errorf(at, "name", "is empty")
	}
	if !utf8.Valid(name) {
		return t, p.errorf(at, "name", "%s is not valid UTF-8", quote(string(name)))
	}
	t.Name = string(name)
	p.label = t.Name

	at = p.pos
	n, err := p.uint32("number of dimensions")
	if err != nil {
		return t, err
	}
	if n < 1 || n > maxDims {
		return t, p.errorf(at, "number of dimensions", "is %d, must be 1 to %d", n, maxDims)
	}
	t.Dims = make([]uint64, n)
	dims := p.pos
	for i := range t.Dims {
		at := p.pos
		if t.Dims[i], err = p.uint64("dimension"); err != nil {
			return t, err
		}
		if t.Dims[i] == 0 {
			return t, p.errorf(at, "dimension", "%d is 0, must be at least 1", i)
		}
	}

	at = p.pos
	typ, err := p.uint32("type")
	if err != nil {
		return t, err
	}
	t.Type = quant.Type(typ)
	format, ok := t.Type.Format()
	if !ok {
		return t, p.errorf(at, "type", "%d is unknown", typ)
	}
	if t.Dims[0]%uint64(format.Elems) != 0 {
		return t, p.errorf(dims, "dimension", "0 is %d, not a whole number of %s blocks of %d", t.Dims[0], format.Name, format.Elems)
	}
	if tensorBytes(t.Type, t.Dims) == math.MaxUint64 {
		return t, p.errorf(dims, "dimensions", "%v of %s pass 2^60 elements or bytes", t.Dims, format.Name)
	}
	t.Offset, err = p.uint64("data offset")
	return t, err
}

// tensorBytes is the size of the data, MaxUint64 if the number of elements or of bytes
// passes maxExtent. Dims[0] is a whole number of blocks.
func tensorBytes(t quant.Type, dims []uint64) uint64 {
	format, _ := t.Format()
	elems := uint64(1)
	for _, d := range dims {
		hi, lo := bits.Mul64(elems, d)
		if hi != 0 || lo > maxExtent {
			return math.MaxUint64
		}
		elems = lo
	}
	hi, n := bits.Mul64(elems/uint64(format.Elems), uint64(format.Bytes))
	if hi != 0 || n > maxExtent {
		return math.MaxUint64
	}
	return n
}

// place makes the tensors' offsets absolute, and checks that every tensor is aligned,
// inside the file and apart from the others.
func (p *parser) place(f *File) error {
	f.DataOffset = min(alignUp(p.pos, f.Alignment), p.size)
	if len(f.tensors) == 0 {
		return nil
	}
	base := alignUp(p.pos, f.Alignment)
	outside, need := -1, uint64(0) // first tensor outside; where the last one ends
	for i := range f.tensors {
		t := &f.tensors[i]
		p.part, p.index, p.label = "tensor", i, t.Name
		if t.Offset%f.Alignment != 0 {
			return p.fail("data offset %d is not a multiple of the alignment %d", t.Offset, f.Alignment)
		}
		if t.Offset > maxExtent {
			return p.fail("data offset %d passes 2^60; the file has %d bytes", t.Offset, p.size)
		}
		end := base + t.Offset + tensorBytes(t.Type, t.Dims)
		if end > p.size && outside < 0 {
			outside = i
		}
		need = max(need, end)
		t.Offset += base
	}
	if outside >= 0 {
		t := f.tensors[outside]
		p.index, p.label = outside, t.Name
		return p.fail("its %d bytes at offset %d pass the end of the file at %d; the file is truncated (%d bytes are missing in all) or its header is wrong",
			tensorBytes(t.Type, t.Dims), t.Offset, p.size, need-p.size)
	}

	order := make([]int, len(f.tensors))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(f.tensors[a].Offset, f.tensors[b].Offset)
	})
	for i, b := range order[1:] {
		prev, t := f.tensors[order[i]], f.tensors[b]
		if end := prev.Offset + tensorBytes(prev.Type, prev.Dims); end > t.Offset {
			p.part, p.index, p.label = "tensor", b, t.Name
			return p.fail("its data at offset %d overlaps tensor %d %s, which ends at %d", t.Offset, order[i], quote(prev.Name), end)
		}
	}
	return nil
}

func alignUp(n, alignment uint64) uint64 { return (n + alignment - 1) &^ (alignment - 1) }
