package conform

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"baton/internal/handoff"
	"baton/internal/kv"
	"baton/internal/shm"
)

// guardByte is what memory holds where nobody has written.
const guardByte = 0xa5

// memory is a block or a header page, as a decoder has it: the object, and a read-only
// mapping of it.
type memory struct {
	object, reader *shm.Object
	mapping        *shm.Mapping
}

// newMemory makes memory that holds what fill writes into it.
func newMemory(name string, size int, fill func(data []byte)) (m *memory, err error) {
	m = &memory{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if m.object, err = shm.Create(name, size, shm.Options{}); err != nil {
		return nil, err
	}
	w, err := m.object.Map(shm.ReadWrite)
	if err != nil {
		return nil, err
	}
	fill(w.Bytes())
	if err := w.Unmap(); err != nil {
		return nil, err
	}
	if m.reader, err = m.object.ReopenReadOnly(); err != nil {
		return nil, err
	}
	m.mapping, err = m.reader.Map(shm.ReadOnly)
	return m, err
}

// newBlock makes a block in which every byte is guarded.
func newBlock(l *kv.Layout) (*memory, error) {
	return newMemory("conform-block", l.BlockBytes, func(data []byte) {
		for i := range data {
			data[i] = guardByte
		}
	})
}

// newHeader makes a header page, all zero.
func newHeader() (*memory, error) {
	return newMemory("conform-header", handoff.HeaderSize, func([]byte) {})
}

func (m *memory) close() error {
	var err error
	if m.mapping != nil {
		err = m.mapping.Unmap()
	}
	for _, o := range []*shm.Object{m.reader, m.object} {
		if o != nil {
			err = errors.Join(err, o.Close())
		}
	}
	return err
}

// released waits until the kernel confirms that nobody can write any more. What has been
// let go may take it a moment to see.
func (m *memory) released() error {
	var err error
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err = m.reader.Lease(); err == nil {
			return m.reader.Unlease()
		}
		if !errors.Is(err, shm.ErrStillWritable) {
			return err
		}
	}
	return errors.New("it can still write 2 s after its reply: a mapping or a descriptor is not let go (or a child has it)")
}

// row is the bytes of a K row (v is 0) or V row of a cell.
func (m *memory) row(l *kv.Layout, layer, v, cell int) []byte {
	offset, n := l.KOffset[layer], l.KRowBytes
	if v == 1 {
		offset, n = l.VOffset[layer], l.VRowBytes
	}
	return m.mapping.Bytes()[offset+cell*n:][:n]
}

// cells are consecutive ones of a block.
type cells struct{ first, n int }

// untouched checks that every byte of a block but the rows of some cells is what it was.
func (m *memory) untouched(l *kv.Layout, except ...cells) error {
	data := bytes.Clone(m.mapping.Bytes())
	for layer := range l.Layers {
		for _, t := range []struct{ offset, row int }{{l.KOffset[layer], l.KRowBytes}, {l.VOffset[layer], l.VRowBytes}} {
			for _, c := range except {
				rows := data[t.offset+c.first*t.row:][:c.n*t.row]
				for i := range rows {
					rows[i] = guardByte
				}
			}
		}
	}
	for i, b := range data {
		if b != guardByte {
			return fmt.Errorf("byte %d of a block was written, which is %s", i, place(l, i))
		}
	}
	return nil
}

// place says what a byte of a block belongs to.
func place(l *kv.Layout, at int) string {
	for layer := range l.Layers {
		for _, t := range []struct {
			name        string
			offset, row int
		}{{"K", l.KOffset[layer], l.KRowBytes}, {"V", l.VOffset[layer], l.VRowBytes}} {
			if at >= t.offset && at < t.offset+l.CellsPerBlock*t.row {
				return fmt.Sprintf("in the %s row of cell %d, layer %d, that is not to be filled", t.name, (at-t.offset)/t.row, layer)
			}
		}
	}
	return "in no tensor"
}

// guarded reports whether a row is as it was handed out.
func guarded(row []byte) bool {
	for _, b := range row {
		if b != guardByte {
			return false
		}
	}
	return true
}

// halves is a row as elements.
func halves(row []byte) []uint16 {
	h := make([]uint16, len(row)/2)
	for i := range h {
		h[i] = binary.LittleEndian.Uint16(row[2*i:])
	}
	return h
}

// Fields of the header page; see docs/provider.md.
const (
	headerMagic   = "BATONKV1"
	headerVersion = 1
	atVersion     = 8
	atLayout      = 16
	atPrompt      = 48
	atTicket      = 80
	atFilled      = 128
)

// filled is what the header page says.
func (m *memory) filled() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&m.mapping.Bytes()[atFilled])))
}

// checkHeader compares a header page with what was ordered.
func (m *memory) checkHeader(o *handoff.Order) error {
	page := m.mapping.Bytes()
	prompt := handoff.PromptDigest(o.Tokens)
	for _, f := range []struct {
		name      string
		got, want []byte
	}{
		{"the magic", page[:atVersion], []byte(headerMagic)},
		{"the version", page[atVersion:][:4], binary.LittleEndian.AppendUint32(nil, headerVersion)},
		{"the layout digest", page[atLayout:][:32], o.Layout.LayoutDigest[:]},
		{"the digest of the token ids", page[atPrompt:][:32], prompt[:]},
		{"the ticket", page[atTicket:][:16], o.Ticket[:]},
	} {
		if !bytes.Equal(f.got, f.want) {
			return fmt.Errorf("%s in the header page is %x, want %x", f.name, f.got, f.want)
		}
	}
	return nil
}
