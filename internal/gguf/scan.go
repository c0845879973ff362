package gguf

import (
	"encoding/binary"
	"fmt"
)

// parser walks the header. Every read goes through need.
type parser struct {
	name string
	head []byte // the file from its start, up to maxHeader bytes
	size uint64 // of the file
	pos  uint64

	// What is being read, for messages.
	part  string // "metadata" or "tensor"; empty in the fixed header
	index int
	label string // key or tensor name, once known
}

func newParser(head []byte, size uint64, name string) *parser {
	return &parser{name: name, head: head[:min(len(head), maxHeader)], size: size}
}

// skip checks the value of type t at pos and moves behind it; depth is how many levels
// of arrays it may have.
func (p *parser) skip(t ValueType, depth int) error {
	switch t {
	case Bool:
		return p.bools(1)
	case String:
		_, err := p.string("string", maxString)
		return err
	case Array:
	default:
		return p.advance(valueTypes[t].size, t.String())
	}

	if depth == 0 {
		return p.errorf(p.pos, "array", "is nested deeper than %d levels", maxDepth)
	}
	elem, err := p.valueType("element type")
	if err != nil {
		return err
	}
	n, err := p.count("array length", valueTypes[elem].size)
	if err != nil {
		return err
	}
	switch elem {
	case String, Array:
		for range n {
			if err := p.skip(elem, depth-1); err != nil {
				return err
			}
		}
		return nil
	case Bool:
		return p.bools(n)
	}
	return p.advance(n*valueTypes[elem].size, "array") // count has checked the product
}

// bools checks n values of one byte each.
func (p *parser) bools(n uint64) error {
	at := p.pos
	if err := p.advance(n, "bool"); err != nil {
		return err
	}
	for i, b := range p.head[at:p.pos] {
		if b > 1 {
			return p.errorf(at+uint64(i), "bool", "is %d, must be 0 or 1", b)
		}
	}
	return nil
}

// need checks that n more bytes are there.
func (p *parser) need(n uint64, field string) error {
	left := uint64(len(p.head)) - p.pos
	if n <= left {
		return nil
	}
	if n <= p.size-p.pos {
		return p.errorf(p.pos, field, "the header passes the limit of %d MiB", maxHeader>>20)
	}
	left = p.size - p.pos
	return p.errorf(p.pos, field, "needs %d bytes, %d are left: the file of %d bytes is truncated (at least %d bytes are missing) or its header is wrong", n, left, p.size, n-left)
}

func (p *parser) advance(n uint64, field string) error {
	if err := p.need(n, field); err != nil {
		return err
	}
	p.pos += n
	return nil
}

func (p *parser) uint32(field string) (uint32, error) {
	if err := p.advance(4, field); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(p.head[p.pos-4:]), nil
}

func (p *parser) uint64(field string) (uint64, error) {
	if err := p.advance(8, field); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(p.head[p.pos-8:]), nil
}

// count reads the number of items that follow, each of at least least bytes. The
// product of the two does not overflow afterwards.
func (p *parser) count(field string, least uint64) (uint64, error) {
	at := p.pos
	n, err := p.uint64(field)
	if err != nil {
		return 0, err
	}
	if left := p.size - p.pos; n > left/least {
		return 0, p.errorf(at, field, "is %d, but the %d bytes that are left hold at most %d (%d bytes each)", n, left, left/least, least)
	}
	if left := uint64(len(p.head)) - p.pos; n > left/least {
		return 0, p.errorf(at, field, "is %d: the header passes the limit of %d MiB", n, maxHeader>>20)
	}
	return n, nil
}

// string reads a string of at most limit bytes; the result is a slice of the header.
func (p *parser) string(field string, limit uint64) ([]byte, error) {
	at := p.pos
	n, err := p.uint64(field)
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, p.errorf(at, field, "length is %d, the limit is %d", n, limit)
	}
	if err := p.advance(n, field); err != nil {
		return nil, err
	}
	return p.head[p.pos-n : p.pos], nil
}

func (p *parser) valueType(field string) (ValueType, error) {
	at := p.pos
	n, err := p.uint32(field)
	if err != nil {
		return 0, err
	}
	if t := ValueType(n); t < numValueTypes {
		return t, nil
	}
	return 0, p.errorf(at, field, "%d is unknown", n)
}

// errorf makes an error about a field at an offset of the file.
func (p *parser) errorf(at uint64, field, format string, args ...any) error {
	return fmt.Errorf("gguf: %s: %s%s at offset %d: %s", p.name, p.where(), field, at, fmt.Sprintf(format, args...))
}

// fail makes an error about the current entry or tensor as a whole.
func (p *parser) fail(format string, args ...any) error {
	return fmt.Errorf("gguf: %s: %s%s", p.name, p.where(), fmt.Sprintf(format, args...))
}

func (p *parser) where() string {
	switch {
	case p.part == "":
		return ""
	case p.label == "":
		return fmt.Sprintf("%s %d: ", p.part, p.index)
	}
	return fmt.Sprintf("%s %d %s: ", p.part, p.index, quote(p.label))
}

// quote shows a name out of a file, cut to a length fit for a message.
func quote(s string) string {
	const limit = 96
	if len(s) > limit {
		return fmt.Sprintf("%q...", s[:limit])
	}
	return fmt.Sprintf("%q", s)
}
