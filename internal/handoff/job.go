package handoff

import (
	"errors"
	"fmt"
	"os"

	"baton/internal/kv"
	"baton/internal/shm"
)

// Job is an order as a provider works on it: the token ids, and the cells in mappings
// of the provider's own.
type Job struct {
	order  *Order
	runs   []kv.Run // of all positions
	mapped []*kv.Block
	page   *shm.Mapping
	filled int
}

// open maps everything that an order names. It takes the files over.
func (p *providing) open(o *Order, files []*os.File) (_ *Job, err error) {
	j := &Job{order: o, filled: o.Pos0}
	defer func() {
		err = errors.Join(err, closeAll(files)) // those that nobody has taken over
		if err != nil {
			err = errors.Join(err, j.close())
		}
	}()
	page, err := takeOver(files, o.Header)
	if err != nil {
		return nil, err
	}
	if page.Size() < HeaderSize {
		return nil, errors.Join(fmt.Errorf("handoff: a header page of %d bytes, want %d", page.Size(), HeaderSize), page.Close())
	}
	j.page, err = page.Map(shm.ReadWrite)
	if err := errors.Join(err, page.Close()); err != nil {
		return nil, err
	}
	for i, r := range o.Regions {
		b, err := p.mapRegion(j, &r, files)
		if err != nil {
			return nil, fmt.Errorf("handoff: region %d: %w", i, err)
		}
		j.runs = append(j.runs, kv.Run{Block: b, Cell: r.Cell, Len: r.Cells})
	}
	return j, nil
}

// mapRegion returns the block of a region: mapped now, or kept from an order before.
func (p *providing) mapRegion(j *Job, r *Region, files []*os.File) (*kv.Block, error) {
	if r.FD < 0 {
		b := p.kept[r.Block]
		if b == nil {
			return nil, fmt.Errorf("block %d is not mapped here", r.Block)
		}
		return b, nil
	}
	o, err := takeOver(files, r.FD)
	if err != nil {
		return nil, err
	}
	prot := shm.ReadOnly
	if r.Mode == ReadWrite {
		prot = shm.ReadWrite
	}
	b, err := kv.MapBlock(p.layout, o, prot)
	if err != nil {
		return nil, err
	}
	if j.order.Trust == Attached && r.Mode == ReadWrite {
		if old := p.kept[r.Block]; old != nil {
			if err := old.Unmap(); err != nil {
				return nil, errors.Join(err, b.Unmap())
			}
		}
		p.kept[r.Block] = b
	} else {
		j.mapped = append(j.mapped, b)
	}
	return b, b.Populate()
}

// takeOver makes an object of a received descriptor.
func takeOver(files []*os.File, i int) (*shm.Object, error) {
	f := files[i]
	files[i] = nil
	return shm.FromFile(f)
}

// close unmaps everything that is not kept.
func (j *Job) close() error {
	var err error
	for _, b := range j.mapped {
		err = errors.Join(err, b.Unmap())
	}
	if j.page != nil {
		err = errors.Join(err, j.page.Unmap())
	}
	return err
}

// Tokens are the ids of positions 0 to the last that is to be filled.
func (j *Job) Tokens() []int32 { return j.order.Tokens }

// Pos0 is the first position to fill. The cells before it are filled, and can be read.
func (j *Job) Pos0() int { return j.order.Pos0 }

// Params are the parameters that the decoder wants to be reproduced.
func (j *Job) Params() map[string]string { return j.order.Params }

// Runs appends to dst the cells of positions from to to-1, in order, and returns it.
func (j *Job) Runs(from, to int, dst []kv.Run) []kv.Run {
	pos := 0
	for _, r := range j.runs {
		a, b := max(from, pos), min(to, pos+r.Len)
		if a < b {
			dst = append(dst, kv.Run{Block: r.Block, Cell: r.Cell + a - pos, Len: b - a})
		}
		pos += r.Len
	}
	return dst
}

// Advance says that the rows of positions 0 to filled-1 are complete in all layers. It
// must not be called before they are written.
func (j *Job) Advance(filled int) error {
	if filled < j.filled || filled > len(j.order.Tokens) {
		return fmt.Errorf("handoff: advance to %d of %d cells, from %d", filled, len(j.order.Tokens), j.filled)
	}
	if err := fail(failAdvance); err != nil {
		return err
	}
	j.filled = filled
	storeFilled(j.page.Bytes(), uint64(filled))
	return nil
}
