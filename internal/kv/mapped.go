package kv

import (
	"errors"
	"fmt"
	"unsafe"

	"baton/internal/shm"
)

// MapBlock makes a block of memory that another process owns, for a run to read or
// write its rows. It takes o over, also when it returns an error, and closes the
// descriptor: the mapping is enough. The block belongs to no pool, so of its methods only
// Layout, K, V, Populate and Unmap can be used.
func MapBlock(l *Layout, o *shm.Object, prot shm.Prot) (*Block, error) {
	if o.Size() != l.BlockBytes {
		return nil, errors.Join(fmt.Errorf("kv: map block: the memory has %d bytes, a block of this layout %d", o.Size(), l.BlockBytes), o.Close())
	}
	m, err := o.Map(prot)
	if err := errors.Join(err, o.Close()); err != nil {
		if m != nil {
			err = errors.Join(err, m.Unmap())
		}
		return nil, err
	}
	b := &Block{layout: l, mapping: m}
	b.slice()
	return b, nil
}

// Populate enters all pages that hold rows in this process's
// page table, so that using them does not fault.
func (b *Block) Populate() error { return b.mapping.Populate(b.layout.DataBytes) }

// Unmap takes a block that MapBlock made out of the address space. Nobody may use its
// rows any more.
func (b *Block) Unmap() error {
	if b.pool != nil {
		return errors.New("kv: unmap: the block belongs to a pool")
	}
	return b.mapping.Unmap()
}

// slice makes the views of the rows.
func (b *Block) slice() {
	l, data := b.layout, b.mapping.Bytes()
	for i := range l.Layers {
		b.k = append(b.k, halves(data, l.KOffset[i], l.CellsPerBlock*l.KRowBytes))
		b.v = append(b.v, halves(data, l.VOffset[i], l.CellsPerBlock*l.VRowBytes))
	}
}

// halves is the n bytes of data at offset as 16-bit elements in the machine's byte
// order. The offsets of a layout are aligned for them.
func halves(data []byte, offset, n int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(&data[offset])), n/2)
}
