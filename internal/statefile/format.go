package statefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"baton/internal/kv"
)

// Of the format; see the package comment.
const (
	magic         = 0x67677371
	formatVersion = 3
	typeF16       = 1 // of ggml
	cellBytes     = 12
	blockHeader   = 12 // of K and V, transposed or not
	wordBytes     = 4
	maxStreams    = 256
)

// llama-server's list of tokens: this mark, a version, the ids with their count, the
// number of images and the like.
const (
	packedMark    = -1
	packedVersion = 1
	packedExtra   = 4 // words beside the ids, without images
)

// State is what Save writes: a sequence.
type State struct {
	Layout *kv.Layout
	Tokens []int32
	Runs   []kv.Run // the cells of all tokens, in order
}

func (s *State) check() error {
	if err := checkLayout(s.Layout); err != nil {
		return err
	}
	if len(s.Tokens) == 0 {
		return errors.New("statefile: save: there are no cells to save")
	}
	if n := countCells(s.Runs); n != len(s.Tokens) {
		return fmt.Errorf("statefile: save: %d tokens in %d cells", len(s.Tokens), n)
	}
	return nil
}

// checkLayout refuses what the rows of a file cannot be moved into as they are.
func checkLayout(l *kv.Layout) error {
	if l.KType != kv.F16 || l.VType != kv.F16 {
		return fmt.Errorf("statefile: cache types are %s and %s, only f16 is supported", l.KType, l.VType)
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return errors.New("statefile: not supported on machines with big-endian numbers")
	}
	return nil
}

func countCells(runs []kv.Run) int {
	n := 0
	for _, r := range runs {
		n += r.Len
	}
	return n
}

// fileBytes is the size of a file that Save writes.
func fileBytes(l *kv.Layout, n int) int64 {
	head := 3*wordBytes + n*wordBytes + 2*wordBytes + n*cellBytes + 2*wordBytes
	return int64(head) + int64(l.Layers)*2*blockHeader + int64(n)*int64(l.CellBytes())
}

// header is a file up to the first K block.
func (s *State) header() []byte {
	n := uint32(len(s.Tokens))
	le := binary.LittleEndian
	b := make([]byte, 0, fileBytes(s.Layout, len(s.Tokens))-rowBytes(s.Layout, len(s.Tokens)))
	b = le.AppendUint32(b, magic)
	b = le.AppendUint32(b, formatVersion)
	b = le.AppendUint32(b, n)
	for _, t := range s.Tokens {
		b = le.AppendUint32(b, uint32(t))
	}
	b = le.AppendUint32(b, 1) // n_stream
	b = le.AppendUint32(b, n) // cell_count
	for pos := range n {
		b = le.AppendUint32(b, pos)
		b = le.AppendUint32(b, 1) // n_seq
		b = le.AppendUint32(b, 0) // seq_id
	}
	b = le.AppendUint32(b, 0) // v_trans
	return le.AppendUint32(b, uint32(s.Layout.Layers))
}

// rowBytes is the size of the rows of n cells.
func rowBytes(l *kv.Layout, n int) int64 { return int64(n) * int64(l.CellBytes()) }

// tensor is the rows of one layer: K or V.
type tensor struct {
	name       string // for errors
	v          bool
	layer      int
	rowBytes   int
	transposed bool
}

// tensors are those of a file, in its order.
func tensors(l *kv.Layout, transposed bool) []tensor {
	list := make([]tensor, 0, 2*l.Layers)
	for i := range l.Layers {
		list = append(list, tensor{name: fmt.Sprintf("k block of layer %d", i), layer: i, rowBytes: l.KRowBytes})
	}
	for i := range l.Layers {
		list = append(list, tensor{name: fmt.Sprintf("v block of layer %d", i), v: true, layer: i, rowBytes: l.VRowBytes, transposed: transposed})
	}
	return list
}

// header is what comes before the rows.
func (t *tensor) header() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(make([]byte, 0, blockHeader), typeF16)
	if t.transposed {
		b = le.AppendUint32(b, 2)
		return le.AppendUint32(b, uint32(t.rowBytes/2))
	}
	return le.AppendUint64(b, uint64(t.rowBytes))
}

// checkHeader compares a file's header with what it must be.
func (t *tensor) checkHeader(b []byte) error {
	le := binary.LittleEndian
	if typ := int32(le.Uint32(b)); typ != typeF16 {
		return wrong(Unfit, t.name+": type", fmt.Sprintf("%d", typ), "1 (f16)")
	}
	if !t.transposed {
		if n := le.Uint64(b[4:]); n != uint64(t.rowBytes) {
			return wrong(Unfit, t.name+": row_size", n, t.rowBytes)
		}
		return nil
	}
	if n := le.Uint32(b[4:]); n != 2 {
		return wrong(Unfit, t.name+": el_size", n, 2)
	}
	if n := le.Uint32(b[8:]); int(n) != t.rowBytes/2 {
		return wrong(Unfit, t.name+": width", n, t.rowBytes/2)
	}
	return nil
}

// rows are the tensor's rows in a run of cells.
func (t *tensor) rows(r kv.Run) []uint16 {
	if t.v {
		return r.V(t.layer)
	}
	return r.K(t.layer)
}

// raw is the memory of rows. A file has them as they lie there.
func raw(rows []uint16) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rows))), 2*len(rows))
}
