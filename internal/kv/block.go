package kv

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"baton/internal/shm"
)

// Block is a fixed number of cells in one memory object. It lives as long as its pool
// and is used by one group of sequences after another.
type Block struct {
	id      uint64
	layout  *Layout
	pool    *Pool
	object  *shm.Object
	mapping *shm.Mapping
	k, v    [][]uint16 // by layer

	// Guarded by pool.mu: who uses the block. It is free when both are 0.
	holders  int // sequences, and callers of Pool.Alloc
	nodes    int // runs in nodes of the index
	direct   int // of holders: callers of Pool.Alloc
	recycled bool
	whole    bool // its pages are huge ones, or will never be

	// Of the step loop: how far the block is filled, and whose it is.
	pos    int       // position of cell 0 in every sequence that uses the block
	used   int       // cells [0, used) are taken
	frozen bool      // nothing is appended any more
	owner  *Sequence // who may append, nil for nobody

	shareMu sync.Mutex // taken before pool.mu
	sharing
}

// blockIDs counts the blocks that this process has made.
var blockIDs atomic.Uint64

// newBlock makes a block of new memory, all pages in place. One that is shared is for
// another process to fill: this one maps it read only.
func newBlock(p *Pool, shared bool) (*Block, error) {
	l := p.layout
	object, err := shm.Create("baton-kv", l.BlockBytes, shm.Options{HugePages: p.hugePages})
	if err != nil {
		return nil, err
	}
	b := &Block{id: blockIDs.Add(1), layout: l, pool: p, object: object, whole: object.Huge()}
	source, prot := object, shm.ReadWrite
	if shared {
		if b.reader, err = object.ReopenReadOnly(); err != nil {
			return nil, errors.Join(err, b.close())
		}
		b.readOnly = true
		source, prot = b.reader, shm.ReadOnly
	}
	if b.mapping, err = source.Map(prot); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if err := b.mapping.Populate(l.DataBytes); err != nil {
		return nil, errors.Join(err, b.close())
	}
	b.slice()
	return b, nil
}

// ID is the block's number, which no other block of this process ever has.
func (b *Block) ID() uint64 { return b.id }

// Layout says how the block is laid out.
func (b *Block) Layout() *Layout { return b.layout }

// Object is the block's memory object, which the block owns.
func (b *Block) Object() *shm.Object { return b.object }

// K is the K rows of a layer in f16, [cells][RowElems], for every cell of the block.
func (b *Block) K(layer int) []uint16 { return b.k[layer] }

// V is the V rows of a layer in f16, [cells][RowElems], for every cell of the block.
func (b *Block) V(layer int) []uint16 { return b.v[layer] }

// Freeze makes sure that nothing is appended to the block any more: sequences that end
// in it go on in new blocks. It thaws when nobody uses it any more.
func (b *Block) Freeze() { b.frozen = true }

// Release gives a block back that came from Pool.Alloc.
func (b *Block) Release() {
	p := b.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.direct == 0 {
		p.fault(b, "released by somebody who did not take it")
		return
	}
	b.direct--
	p.dropHolder(b)
}

// close gives the memory back to the kernel.
func (b *Block) close() error {
	var err error
	if b.mapping != nil {
		err = b.mapping.Unmap()
	}
	if b.writer != nil {
		err = errors.Join(err, b.writer.Close())
	}
	if b.reader != nil {
		err = errors.Join(err, b.reader.Close())
	}
	return errors.Join(err, b.object.Close())
}

// Run is consecutive cells of one block that hold consecutive tokens of a sequence.
type Run struct {
	Block *Block
	Cell  int // the first
	Len   int // cells
}

// K is the K rows of a layer in f16, [Len][RowElems].
func (r Run) K(layer int) []uint16 {
	n := r.Block.layout.RowElems
	return r.Block.k[layer][r.Cell*n : (r.Cell+r.Len)*n]
}

// V is the V rows of a layer in f16, [Len][RowElems].
func (r Run) V(layer int) []uint16 {
	n := r.Block.layout.RowElems
	return r.Block.v[layer][r.Cell*n : (r.Cell+r.Len)*n]
}

// end is the cell behind the last one.
func (r Run) end() int { return r.Cell + r.Len }

func (r Run) String() string {
	return fmt.Sprintf("cells %d to %d at position %d", r.Cell, r.end(), r.Block.pos+r.Cell)
}

// appendRun adds r to runs, as part of the last run where it continues that one's cells.
func appendRun(runs []Run, r Run) []Run {
	if n := len(runs); n > 0 && runs[n-1].Block == r.Block && runs[n-1].end() == r.Cell {
		runs[n-1].Len += r.Len
		return runs
	}
	return append(runs, r)
}
