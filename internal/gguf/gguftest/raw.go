package gguftest

import "encoding/binary"

// raw appends the pieces of a GGUF file as they come, right or wrong.
type raw []byte

func file(version uint32, tensors, entries uint64) raw {
	return raw("GGUF").u32(version).u64(tensors).u64(entries)
}

func (r raw) u32(v uint32) raw    { return binary.LittleEndian.AppendUint32(r, v) }
func (r raw) u64(v uint64) raw    { return binary.LittleEndian.AppendUint64(r, v) }
func (r raw) bytes(b ...byte) raw { return append(r, b...) }
func (r raw) zeros(n int) raw     { return append(r, make([]byte, n)...) }
func (r raw) str(s string) raw    { return append(r.u64(uint64(len(s))), s...) }

// key appends a metadata key and the type of its value.
func (r raw) key(key string, valueType uint32) raw { return r.str(key).u32(valueType) }

// array appends what follows the type of an array value.
func (r raw) array(elemType uint32, n uint64) raw { return r.u32(elemType).u64(n) }

// tensor appends a tensor's description.
func (r raw) tensor(name string, tensorType uint32, offset uint64, dims ...uint64) raw {
	r = r.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		r = r.u64(d)
	}
	return r.u32(tensorType).u64(offset)
}

// data pads to 32 bytes, where the tensor data begins, and appends n bytes of it.
func (r raw) data(n int) raw { return r.zeros(-len(r) & 31).zeros(n) }

// The numbers of docs/gguf.md, written out once more: these files do not trust the
// package that they test.
const (
	vU8, vU32, vI32, vF32, vBool, vStr, vArr, vU64 = 0, 4, 5, 6, 7, 8, 9, 10

	tF32, tF16, tQ8_0, tQ4_K = 0, 1, 8, 12
)
