package kv

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"baton/internal/shm"
)

// Type is the element type of K or V rows.
type Type uint8

// The types that rows are kept in.
const (
	F16 Type = iota // IEEE 754 half precision, 2 bytes
)

// types says how each type lies in memory. Types in blocks of several elements fit in
// as well: elems of them take bytes.
var types = []struct {
	name         string
	elems, bytes int
}{
	F16: {"f16", 1, 2},
}

// ParseType returns the type of that name.
func ParseType(name string) (Type, error) {
	var names []string
	for t, f := range types {
		if f.name == name {
			return Type(t), nil
		}
		names = append(names, f.name)
	}
	return 0, fmt.Errorf("kv: cache type %q is not supported, only %s", name, strings.Join(names, ", "))
}

func (t Type) String() string {
	if int(t) < len(types) {
		return types[t].name
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// rowBytes is the size of a row of n elements.
func (t Type) rowBytes(n int) (int, error) {
	if int(t) >= len(types) {
		return 0, fmt.Errorf("kv: unknown cache type %d", uint8(t))
	}
	f := types[t]
	if n%f.elems != 0 {
		return 0, fmt.Errorf("kv: a row of %d elements is not a whole number of %s blocks of %d", n, f.name, f.elems)
	}
	return n / f.elems * f.bytes, nil
}

// Bounds of what a model may ask for: far beyond every model, and small enough that no
// size overflows.
const (
	maxLayers  = 1 << 12
	maxHeads   = 1 << 12
	maxHeadDim = 1 << 12
	maxCells   = 1 << 20
	maxBlock   = 1 << 30 // bytes
	maxExtra   = 1 << 10
)

const (
	tensorAlign  = 64 // a cache line, and the widest vector register
	defaultCells = 256
	defaultExtra = 2
	minAutoBlock = 2 << 20
	maxAutoBlock = 32 << 20
)

// Config is what a layout follows from.
type Config struct {
	Layers  int
	KVHeads int // heads of K and V a layer
	HeadDim int // elements a head
	KType   Type
	VType   Type
	// CellsPerBlock is a power of two. 0 chooses the one nearest to 256 that makes a
	// block 2 to 32 MiB: large enough for huge pages and few descriptors, small enough
	// that a short sequence does not waste much.
	CellsPerBlock int
	// Extra is how many blocks more than full ones would need a sequence may hold
	// because some of its blocks are only partly filled; 0 means 2. Every prompt that
	// another process fills leaves a short block behind. It is no part of the layout
	// that two processes must agree on.
	Extra int
}

// Layout says where everything lies in a block: layer by layer, the K rows of all
// cells, then the V rows of all cells, each tensor at a multiple of 64 bytes. It does
// not change.
type Layout struct {
	Config           // CellsPerBlock and Extra are set
	RowElems   int   // elements of a K row, and of a V row: KVHeads * HeadDim
	KRowBytes  int   // bytes of a K row
	VRowBytes  int   // bytes of a V row
	KOffset    []int // by layer, bytes from the start of the block to K row 0
	VOffset    []int // by layer, bytes from the start of the block to V row 0
	DataBytes  int   // bytes of a block up to the end of the last tensor
	BlockBytes int   // bytes of a block: DataBytes rounded up to whole 2 MiB
}

// NewLayout returns the layout for c.
func NewLayout(c Config) (*Layout, error) {
	for _, v := range []struct {
		name        string
		value, most int
	}{{"layers", c.Layers, maxLayers}, {"kv heads", c.KVHeads, maxHeads}, {"head size", c.HeadDim, maxHeadDim}} {
		if v.value < 1 || v.value > v.most {
			return nil, fmt.Errorf("kv: %s: %d, must be 1 to %d", v.name, v.value, v.most)
		}
	}
	l := &Layout{Config: c, RowElems: c.KVHeads * c.HeadDim}
	var err error
	if l.KRowBytes, err = c.KType.rowBytes(l.RowElems); err != nil {
		return nil, err
	}
	if l.VRowBytes, err = c.VType.rowBytes(l.RowElems); err != nil {
		return nil, err
	}
	if c.CellsPerBlock == 0 {
		l.CellsPerBlock = autoCells(l.CellBytes())
	}
	if n := l.CellsPerBlock; n < 1 || n > maxCells || n&(n-1) != 0 {
		return nil, fmt.Errorf("kv: %d cells a block, must be a power of two up to %d", n, maxCells)
	}
	if need := int64(l.CellsPerBlock) * int64(l.CellBytes()); need > maxBlock {
		return nil, fmt.Errorf("kv: a block of %d cells of %d bytes has more than %d bytes", l.CellsPerBlock, l.CellBytes(), maxBlock)
	}
	if c.Extra == 0 {
		l.Extra = defaultExtra
	}
	if l.Extra < 0 || l.Extra > maxExtra {
		return nil, fmt.Errorf("kv: %d extra blocks a sequence, must be up to %d", l.Extra, maxExtra)
	}
	end := 0
	for range c.Layers {
		k := roundUp(end, tensorAlign)
		v := roundUp(k+l.CellsPerBlock*l.KRowBytes, tensorAlign)
		end = v + l.CellsPerBlock*l.VRowBytes
		l.KOffset, l.VOffset = append(l.KOffset, k), append(l.VOffset, v)
	}
	l.DataBytes = end
	l.BlockBytes = roundUp(end, shm.HugePageSize)
	return l, nil
}

// autoCells is the power of two nearest to 256 that makes a block of cells of that many
// bytes 2 to 32 MiB.
func autoCells(cellBytes int) int {
	n := defaultCells
	for n < maxCells && n*cellBytes < minAutoBlock {
		n *= 2
	}
	for n > 1 && n*cellBytes > maxAutoBlock {
		n /= 2
	}
	return n
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// CellBytes is the size of a cell: K and V rows of all layers, without padding.
func (l *Layout) CellBytes() int { return l.Layers * (l.KRowBytes + l.VRowBytes) }

// BlocksFor is the most blocks that a sequence of n tokens holds, whatever cells it was
// attached to: a pool with BlocksFor of the context length for every slot has always
// room. Each fork, each freezing of the block that it ends in, and each truncation to
// cells that others use as well can add one.
func (l *Layout) BlocksFor(n int) int {
	return (n+l.CellsPerBlock-1)/l.CellsPerBlock + l.Extra
}

// Describe is the layout together with params, by name, which are whatever else two
// processes must agree on to compute the same rows: one "name value" a line.
func (l *Layout) Describe(params map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "baton kv layout 1\nlayers %d\nkv_heads %d\nhead_dim %d\nk_type %s\nv_type %s\ncells %d\n",
		l.Layers, l.KVHeads, l.HeadDim, l.KType, l.VType, l.CellsPerBlock)
	fmt.Fprintf(&b, "k_row %d\nv_row %d\nk_offset %d\nv_offset %d\nblock %d\n",
		l.KRowBytes, l.VRowBytes, l.KOffset, l.VOffset, l.BlockBytes)
	for _, name := range slices.Sorted(maps.Keys(params)) {
		// Quoted, so that no value can look like another parameter.
		fmt.Fprintf(&b, "param %q %q\n", name, params[name])
	}
	return b.String()
}

// Hash is the SHA-256 of Describe. Equal hashes mean that one process can use the
// other's blocks.
func (l *Layout) Hash(params map[string]string) [sha256.Size]byte {
	return sha256.Sum256([]byte(l.Describe(params)))
}
