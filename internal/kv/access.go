package kv

import (
	"errors"
	"fmt"
	"os"

	"baton/internal/shm"
)

// sharing is what other processes have of a block, and what keeps them from changing
// it. It changes under Block.shareMu together with Pool.mu, or while the block is free
// under Pool.mu alone; so either is enough to read it.
type sharing struct {
	reader   *shm.Object // a read-only descriptor of the memory, which carries the lease
	writer   *os.File    // a read-write one to give away, opened beforehand
	readOnly bool        // this process maps the memory through reader
	stale    bool        // there may be rows in it of a former use
	leased   bool        // reader holds a lease
	sealed   bool        // nobody can write to it, ever again
	discard  bool        // not to be used again
	tended   bool        // taken out of its list by the pool's goroutine
	keeper   any         // who keeps a writable mapping
}

// ready reports whether makeShared has nothing to do.
func (s *sharing) ready() bool { return s.readOnly && !s.stale && !s.leased && s.writer != nil }

// unwritten is what the first element of a K row is set to before somebody else is to
// write the row: a NaN in half precision, which no computation leaves there.
const unwritten = 0x7e5a

// note changes what is known of the block's sharing; it needs shareMu or a block that
// only the caller holds.
func (b *Block) note(change func(*sharing)) {
	if b.pool == nil {
		change(&b.sharing)
		return
	}
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	change(&b.sharing)
}

// openReader makes sure that there is a read-only descriptor. It needs shareMu.
func (b *Block) openReader() error {
	if b.reader != nil {
		return nil
	}
	reader, err := b.object.ReopenReadOnly()
	if err != nil {
		return err
	}
	b.note(func(s *sharing) { s.reader = reader })
	return nil
}

// mapReadOnly takes the possibility to write from this process's mapping, in place. It
// needs shareMu, and that nobody is going to write.
func (b *Block) mapReadOnly() error {
	if b.readOnly {
		return nil
	}
	if err := b.openReader(); err != nil {
		return err
	}
	if err := b.mapping.Remap(b.reader, shm.ReadOnly); err != nil {
		return err
	}
	b.note(func(s *sharing) { s.readOnly = true })
	return b.mapping.Populate(b.layout.DataBytes)
}

// makeShared makes a block that only the caller has ready for somebody else to fill:
// read only here, and without rows.
func (b *Block) makeShared() error {
	b.shareMu.Lock()
	defer b.shareMu.Unlock()
	if b.leased {
		if err := b.reader.Unlease(); err != nil {
			return err
		}
		b.note(func(s *sharing) { s.leased = false })
	}
	if b.stale {
		if err := b.markStale(); err != nil {
			return err
		}
		b.note(func(s *sharing) { s.stale = false })
	}
	if b.writer == nil {
		writer, err := b.openWriter()
		if err != nil {
			return err
		}
		b.note(func(s *sharing) { s.writer = writer })
	}
	return b.mapReadOnly()
}

// makeLocal makes a free block ready for this process to fill.
func (b *Block) makeLocal() error {
	b.shareMu.Lock()
	defer b.shareMu.Unlock()
	if b.leased {
		if err := b.reader.Unlease(); err != nil {
			return err
		}
	}
	if err := b.closeWriter(); err != nil {
		return err
	}
	if err := b.mapping.Remap(b.object, shm.ReadWrite); err != nil {
		return err
	}
	b.note(func(s *sharing) { s.leased, s.readOnly = false, false })
	return b.mapping.Populate(b.layout.DataBytes)
}

// markStale marks every K row of every layer as unwritten.
func (b *Block) markStale() error {
	if !b.readOnly {
		for layer := range b.k {
			b.markRows(b.k[layer])
		}
		return nil
	}
	m, err := b.object.Map(shm.ReadWrite)
	if err != nil {
		return err
	}
	data := m.Bytes()
	for _, offset := range b.layout.KOffset {
		b.markRows(halves(data, offset, b.layout.CellsPerBlock*b.layout.KRowBytes))
	}
	return m.Unmap()
}

func (b *Block) markRows(k []uint16) {
	for i := 0; i < len(k); i += b.layout.KRowBytes / 2 {
		k[i] = unwritten
	}
}

// openWriter opens a read-write descriptor that counts as a writer for Lease.
func (b *Block) openWriter() (*os.File, error) {
	o, err := b.object.ReopenReadWrite()
	if err != nil {
		return nil, err
	}
	return o.Detach()
}

// closeWriter closes the descriptor that was not given away.
func (b *Block) closeWriter() error {
	if b.writer == nil {
		return nil
	}
	err := b.writer.Close()
	b.note(func(s *sharing) { s.writer = nil })
	return err
}

// WriterFile returns a descriptor that its receiver can write to the block with. It
// counts as a writer for Lease until it and every mapping made with it are gone.
func (b *Block) WriterFile() (*os.File, error) {
	b.shareMu.Lock()
	defer b.shareMu.Unlock()
	if file := b.writer; file != nil {
		b.note(func(s *sharing) { s.writer = nil })
		return file, nil
	}
	return b.openWriter()
}

// ReaderFile opens a descriptor that its receiver can read the block with. Unless the
// block is sealed, a receiver that has /proc can open it for writing.
func (b *Block) ReaderFile() (*os.File, error) {
	b.shareMu.Lock()
	defer b.shareMu.Unlock()
	if err := b.openReader(); err != nil {
		return nil, err
	}
	return b.reader.Dup()
}

// Lease has the kernel confirm that nobody but this process can write to the block, and
// keep it so; see shm.Object.Lease. The error wraps shm.ErrStillWritable if somebody
// can. The block must have been reserved with ReserveShared. Freeing it ends the lease.
func (b *Block) Lease() error {
	b.shareMu.Lock()
	defer b.shareMu.Unlock()
	if b.leased {
		return nil
	}
	if !b.readOnly {
		return errors.New("kv: lease: the block was not made for sharing")
	}
	if err := b.closeWriter(); err != nil {
		return err
	}
	if err := b.reader.Lease(); err != nil {
		return err
	}
	b.note(func(s *sharing) { s.leased = true })
	return nil
}

// leaseHeld reports whether the lease of a block that has one is in force; true if the
// block has none any more.
func (b *Block) leaseHeld() (bool, error) {
	b.shareMu.Lock()
	defer b.shareMu.Unlock()
	if !b.leased {
		return true, nil
	}
	return b.reader.Leased()
}

// Seal has the kernel confirm that nobody, not even this process, can write to the block
// any more, for ever; the error wraps shm.ErrStillWritable if somebody can. The block
// must be settled; it is discarded when it is freed.
func (b *Block) Seal() error {
	b.shareMu.Lock()
	defer b.shareMu.Unlock()
	if b.sealed {
		return nil
	}
	if err := b.mapReadOnly(); err != nil {
		return err
	}
	if err := b.object.Seal(shm.SealWrite | shm.SealSeal); err != nil {
		return err
	}
	b.note(func(s *sharing) { s.sealed = true })
	return nil
}

// Settled reports whether nothing will be appended to the block any more, because it is
// full or frozen: such a block can be sealed. It belongs to the step loop.
func (b *Block) Settled() bool { return b.frozen || b.used == b.layout.CellsPerBlock }

// Sealed reports whether nobody can write to the block any more, for ever.
func (b *Block) Sealed() bool { return b.shared().sealed }

// Leased reports whether the block was leased since it was reserved.
func (b *Block) Leased() bool { return b.shared().leased }

// Keeper is who keeps a writable mapping of the block, nil for nobody.
func (b *Block) Keeper() any { return b.shared().keeper }

func (b *Block) shared() sharing {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return b.sharing
}

// Condemn makes sure that the block's memory goes back to the kernel, and is not used
// again, when the block is freed.
func (b *Block) Condemn() { b.note(func(s *sharing) { s.discard = true }) }

// Drop makes the pool forget a keeper whose mappings are gone, because its process is.
func (p *Pool) Drop(keeper any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.blocks {
		if b.keeper == keeper {
			b.keeper = nil
		}
	}
}

// Unwritten says which row of the run nobody wrote: one whose K row starts with a NaN,
// as it was marked, or whose K or V row is zero, as new memory is. It is nil if there is
// none. It reads one element a row, in a run of n cells 2*n*layers of them.
func (r Run) Unwritten() error {
	n := r.Block.layout.RowElems
	for layer := range r.Block.k {
		k, v := r.K(layer), r.V(layer)
		for i := range r.Len {
			switch row := k[i*n : (i+1)*n]; {
			case row[0]&0x7c00 == 0x7c00 && row[0]&0x3ff != 0:
				return fmt.Errorf("cell %d, layer %d: the K row starts with a NaN: it was not written", r.Cell+i, layer)
			case allZero(row):
				return fmt.Errorf("cell %d, layer %d: the K row is zero: it was not written", r.Cell+i, layer)
			case allZero(v[i*n : (i+1)*n]):
				return fmt.Errorf("cell %d, layer %d: the V row is zero: it was not written", r.Cell+i, layer)
			}
		}
	}
	return nil
}

func allZero(row []uint16) bool {
	for _, x := range row {
		if x != 0 {
			return false
		}
	}
	return true
}
