package statefile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"baton/internal/kv"
)

// Fit says what a file must be like to be restored.
type Fit struct {
	Layout    *kv.Layout
	Vocab     int    // token ids are below it
	MaxTokens int    // the most cells that there is room for
	Model     string // fingerprint, 64 hexadecimal digits
}

// content is a file but for its rows.
type content struct {
	tokens     []int32
	order      []int32 // the position of each cell, in the order of the file
	transposed bool
	before     int // empty streams before the cells'
	after      int // and behind it
	head       []byte
}

// parse reads and checks everything but the rows; r has size bytes.
func parse(r io.ReaderAt, size int64, fit *Fit) (*content, error) {
	p := &parser{r: r, size: size}
	c := &content{}
	if err := c.parseTokens(p, fit); err != nil {
		return nil, err
	}
	if err := c.parseCells(p); err != nil {
		return nil, err
	}
	if err := c.parseShape(p, fit); err != nil {
		return nil, err
	}
	c.head = p.head
	return c, c.checkTensors(r, size, fit.Layout)
}

func (c *content) parseTokens(p *parser, fit *Fit) error {
	if err := p.expect("magic", Damaged, magic); err != nil {
		return err
	}
	if err := p.expect("version", Damaged, formatVersion); err != nil {
		return err
	}
	n, err := p.word("n_tokens")
	if err != nil {
		return err
	}
	if int64(n) > int64(fit.MaxTokens)+packedExtra {
		return wrong(TooLong, "n_tokens", n, fmt.Sprintf("at most %d", fit.MaxTokens))
	}
	words, err := p.words("tokens", int(n))
	if err != nil {
		return err
	}
	if c.tokens, err = unpack(words); err != nil {
		return err
	}
	switch n := len(c.tokens); {
	case n == 0:
		return wrong(Damaged, "n_tokens", 0, "at least 1")
	case n > fit.MaxTokens:
		return wrong(TooLong, "n_tokens", n, fmt.Sprintf("at most %d", fit.MaxTokens))
	}
	for i, t := range c.tokens {
		if t < 0 || int(t) >= fit.Vocab {
			return wrong(Unfit, fmt.Sprintf("token %d", i), t, fmt.Sprintf("0 to %d", fit.Vocab-1))
		}
	}
	return nil
}

// unpack returns the ids of a list of tokens, which is llama-server's if it begins with
// the mark of that.
func unpack(words []int32) ([]int32, error) {
	if len(words) == 0 || words[0] != packedMark {
		return words, nil
	}
	if len(words) < packedExtra {
		return nil, wrong(Damaged, "packed tokens", fmt.Sprintf("%d words", len(words)), fmt.Sprintf("at least %d", packedExtra))
	}
	if words[1] != packedVersion {
		return nil, wrong(Damaged, "packed tokens: version", words[1], packedVersion)
	}
	ids := words[3 : len(words)-1]
	if int64(words[2]) != int64(len(ids)) {
		if media := int64(words[2]) + 3; words[2] >= 0 && media < int64(len(words)) && words[media] != 0 {
			return nil, wrong(Unfit, "packed tokens: media count", words[media], "0 (text only)")
		}
		return nil, wrong(Damaged, "packed tokens: count", words[2], len(ids))
	}
	if media := words[len(words)-1]; media != 0 {
		return nil, wrong(Unfit, "packed tokens: media count", media, "0 (text only)")
	}
	return ids, nil
}

func (c *content) parseCells(p *parser) error {
	streams, err := p.word("n_stream")
	if err != nil {
		return err
	}
	if streams < 1 || streams > maxStreams {
		return wrong(Damaged, "n_stream", streams, fmt.Sprintf("1 to %d", maxStreams))
	}
	var n uint32
	for i := range int(streams) {
		if n, err = p.word("cell_count"); err != nil {
			return err
		}
		if n > 0 {
			c.before, c.after = i, int(streams)-i-1
			break
		}
	}
	if int64(n) != int64(len(c.tokens)) {
		return wrong(Damaged, "cell_count", n, fmt.Sprintf("%d, one for each token", len(c.tokens)))
	}
	words, err := p.words("cells", 3*len(c.tokens))
	if err != nil {
		return err
	}
	seen := make([]bool, n)
	c.order = make([]int32, n)
	for i := range c.order {
		pos, nSeq := words[3*i], words[3*i+1] // and the id of the sequence, which is ours to choose
		if pos < 0 || int64(pos) >= int64(n) || seen[pos] {
			return wrong(Damaged, fmt.Sprintf("cell %d: pos", i), pos, fmt.Sprintf("each of 0 to %d once", n-1))
		}
		if nSeq != 1 {
			return wrong(Damaged, fmt.Sprintf("cell %d: n_seq", i), uint32(nSeq), 1)
		}
		seen[pos], c.order[i] = true, pos
	}
	return nil
}

func (c *content) parseShape(p *parser, fit *Fit) error {
	v, err := p.word("v_trans")
	if err != nil {
		return err
	}
	if v > 1 {
		return wrong(Damaged, "v_trans", v, "0 or 1")
	}
	c.transposed = v == 1
	return p.expect("n_layer", Unfit, uint32(fit.Layout.Layers))
}

// checkTensors checks what stands between the rows, and that the file ends behind them.
func (c *content) checkTensors(r io.ReaderAt, size int64, l *kv.Layout) error {
	at := int64(len(c.head))
	n := int64(len(c.tokens))
	for _, t := range tensors(l, c.transposed) {
		var b [blockHeader]byte
		if err := readAt(r, b[:], at, size, t.name); err != nil {
			return err
		}
		if err := t.checkHeader(b[:]); err != nil {
			return err
		}
		at += blockHeader + n*int64(t.rowBytes)
	}
	if at > size {
		return cutShort("rows", size, at)
	}
	p := &parser{r: r, size: size, base: at}
	for range c.after {
		if err := p.expect("cell_count of another stream", Damaged, 0); err != nil {
			return err
		}
	}
	if end := at + int64(len(p.head)); end != size {
		return wrong(Damaged, "file", fmt.Sprintf("%d bytes", size), fmt.Sprintf("%d bytes: something follows the last row", end))
	}
	return nil
}

// segments are the cells of a sequence, whose runs they are cut from, in the order of
// the file.
func (c *content) segments(runs []kv.Run) []kv.Run {
	var list []kv.Run
	for i := 0; i < len(c.order); {
		j := i + 1
		for j < len(c.order) && c.order[j] == c.order[j-1]+1 {
			j++
		}
		list = cut(runs, int(c.order[i]), int(c.order[i])+j-i, list)
		i = j
	}
	return list
}

// cut appends the cells from to to-1 of runs to dst.
func cut(runs []kv.Run, from, to int, dst []kv.Run) []kv.Run {
	pos := 0
	for _, r := range runs {
		if a, b := max(from, pos), min(to, pos+r.Len); a < b {
			dst = append(dst, kv.Run{Block: r.Block, Cell: r.Cell + a - pos, Len: b - a})
		}
		pos += r.Len
	}
	return dst
}

// readRows reads the rows into cells and returns the hash of the whole file, and how
// many bytes of rows were moved.
func (c *content) readRows(ctx context.Context, f *os.File, l *kv.Layout, runs []kv.Run) (sum [sha256.Size]byte, moved int64, err error) {
	s := newReader(ctx, f)
	defer s.close()
	s.skip(c.head)
	cells := c.segments(runs)
	list := tensors(l, c.transposed)
	headers := make([]byte, blockHeader*len(list))
	moved = rowBytes(l, len(c.tokens))
	for i, t := range list {
		if err := s.add(headers[i*blockHeader:][:blockHeader]); err != nil {
			return sum, 0, readError(err)
		}
		if t.transposed {
			if err := c.readTransposed(s, &t, cells); err != nil {
				return sum, 0, readError(err)
			}
			moved += int64(len(c.tokens)) * int64(t.rowBytes)
			continue
		}
		for _, r := range cells {
			if err := s.add(raw(t.rows(r))); err != nil {
				return sum, 0, readError(err)
			}
		}
	}
	rest := make([]byte, wordBytes*c.after)
	if err := s.add(rest); err != nil {
		return sum, 0, readError(err)
	}
	if sum, err = s.finish(); err != nil {
		return sum, 0, readError(err)
	}
	for i, t := range list {
		if !bytes.Equal(headers[i*blockHeader:][:blockHeader], t.header()) {
			return sum, 0, wrong(Damaged, t.name, "a header that has changed", "a file that nobody changes while it is read")
		}
	}
	return sum, moved, nil
}

func readError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return wrong(Damaged, "rows", "a file that has become shorter", "a file that nobody changes while it is read")
	}
	return fmt.Errorf("read: %w", err)
}

// parser takes words from a file, in order.
type parser struct {
	r    io.ReaderAt
	size int64
	base int64  // where it began
	head []byte // what was taken since
}

// take reads the next n bytes. A file that is too short is found out before memory for
// them is asked for.
func (p *parser) take(field string, n int) ([]byte, error) {
	at := p.base + int64(len(p.head))
	if at+int64(n) > p.size {
		return nil, cutShort(field, p.size, at+int64(n))
	}
	start := len(p.head)
	p.head = append(p.head, make([]byte, n)...)
	b := p.head[start:]
	return b, readAt(p.r, b, at, p.size, field)
}

func (p *parser) word(field string) (uint32, error) {
	b, err := p.take(field, wordBytes)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (p *parser) words(field string, n int) ([]int32, error) {
	b, err := p.take(field, n*wordBytes)
	if err != nil {
		return nil, err
	}
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(binary.LittleEndian.Uint32(b[i*wordBytes:]))
	}
	return list, nil
}

// expect takes a word that can only be want.
func (p *parser) expect(field string, kind Kind, want uint32) error {
	got, err := p.word(field)
	if err != nil {
		return err
	}
	if got != want {
		if want == magic {
			return wrong(kind, field, fmt.Sprintf("%#x", got), fmt.Sprintf("%#x, a sequence state of llama.cpp", want))
		}
		return wrong(kind, field, got, want)
	}
	return nil
}

func readAt(r io.ReaderAt, b []byte, at, size int64, field string) error {
	if end := at + int64(len(b)); end > size {
		return cutShort(field, size, end)
	}
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return cutShort(field, at+int64(n), at+int64(len(b)))
	}
	return fmt.Errorf("read %s: %w", field, err)
}

func cutShort(field string, size, need int64) *Error {
	return wrong(Damaged, field, fmt.Sprintf("a file that ends after %d bytes", size), fmt.Sprintf("at least %d bytes", need))
}
