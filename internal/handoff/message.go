package handoff

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"baton/internal/kv"
)

// Protocol is the version of the messages.
const Protocol = 1

// Hello is a provider's first message: who it is and what it can do.
type Hello struct {
	Protocol int    `json:"protocol"`
	Name     string `json:"name"` // 1 to 64 of a-z, 0-9, ".", "_", "-"
	PID      int    `json:"pid"`  // as the provider sees it: for people
	// Layouts are the layout hashes that it can write; empty: it follows the offsets of
	// the message, or checks the layout itself.
	Layouts []Digest `json:"layouts"`
	// ReadsPrefix: it attends to cells filled before. Otherwise pos0 is always 0.
	ReadsPrefix bool    `json:"reads_prefix"`
	Trust       []Trust `json:"trust"` // the modes that it keeps to
}

func (h *Hello) validate() error {
	switch {
	case h.Protocol != Protocol:
		return fmt.Errorf("protocol %d, want %d", h.Protocol, Protocol)
	case !validName(h.Name):
		return fmt.Errorf("name %q: must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-'", clip(h.Name, 64))
	case len(h.Trust) == 0:
		return errors.New("no trust mode")
	case len(h.Layouts) > 1024:
		return fmt.Errorf("%d layouts, at most 1024 are allowed", len(h.Layouts))
	}
	return nil
}

func validName(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= 64
}

// Welcome answers a Hello: what the decoder's blocks look like, and what a provider has
// to reproduce.
type Welcome struct {
	Protocol int               `json:"protocol"`
	Trust    Trust             `json:"trust"` // the mode of this provider's shares
	Layout   Layout            `json:"layout"`
	Params   map[string]string `json:"params"`
}

func (w *Welcome) validate() error {
	if w.Protocol != Protocol {
		return fmt.Errorf("protocol %d, want %d", w.Protocol, Protocol)
	}
	return w.Layout.validate()
}

// Reject answers a Hello that is not accepted. The connection is closed after it.
type Reject struct {
	Code  Code   `json:"code"`
	Error string `json:"error"`
}

func (r *Reject) validate() error { return nil }

// Layout is a kv.Layout in full, so that whoever fills blocks needs no arithmetic.
type Layout struct {
	Layers       int    `json:"layers"`
	KVHeads      int    `json:"kv_heads"`
	HeadDim      int    `json:"head_dim"`
	KType        string `json:"k_type"`
	VType        string `json:"v_type"`
	Cells        int    `json:"cells"`       // a block
	KRowBytes    int    `json:"k_row_bytes"` // also the distance of two rows
	VRowBytes    int    `json:"v_row_bytes"`
	KOffsets     []int  `json:"k_offsets"` // by layer, bytes from the start of the block
	VOffsets     []int  `json:"v_offsets"`
	BlockBytes   int    `json:"block_bytes"`
	LayoutDigest Digest `json:"digest"` // of layout and parameters, as the decoder computes it
}

// layoutMessage describes l; the digest is that of l with params.
func layoutMessage(l *kv.Layout, params map[string]string) Layout {
	return Layout{
		Layers: l.Layers, KVHeads: l.KVHeads, HeadDim: l.HeadDim,
		KType: l.KType.String(), VType: l.VType.String(), Cells: l.CellsPerBlock,
		KRowBytes: l.KRowBytes, VRowBytes: l.VRowBytes, KOffsets: l.KOffset, VOffsets: l.VOffset,
		BlockBytes: l.BlockBytes, LayoutDigest: l.Hash(params),
	}
}

// validate checks that every row lies within the block and no two tensors overlap.
func (l *Layout) validate() error {
	const most = 1 << 30
	switch {
	case l.Layers < 1 || l.Layers > 1<<12 || len(l.KOffsets) != l.Layers || len(l.VOffsets) != l.Layers:
		return fmt.Errorf("layout: %d layers, %d K and %d V offsets", l.Layers, len(l.KOffsets), len(l.VOffsets))
	case l.Cells < 1 || l.Cells > 1<<20:
		return fmt.Errorf("layout: %d cells a block", l.Cells)
	case l.BlockBytes < 1 || l.BlockBytes > most:
		return fmt.Errorf("layout: blocks of %d bytes", l.BlockBytes)
	case l.KRowBytes < 1 || l.KRowBytes > most || l.VRowBytes < 1 || l.VRowBytes > most:
		return fmt.Errorf("layout: rows of %d and %d bytes", l.KRowBytes, l.VRowBytes)
	}
	type span struct{ start, end int }
	var spans []span
	for i := range l.Layers {
		for _, t := range []struct{ offset, row int }{{l.KOffsets[i], l.KRowBytes}, {l.VOffsets[i], l.VRowBytes}} {
			if t.offset < 0 || t.offset%64 != 0 || t.offset > l.BlockBytes || l.Cells > (l.BlockBytes-t.offset)/t.row {
				return fmt.Errorf("layout: layer %d: %d rows of %d bytes at %d are not within the block of %d bytes, or not at a multiple of 64",
					i, l.Cells, t.row, t.offset, l.BlockBytes)
			}
			spans = append(spans, span{t.offset, t.offset + l.Cells*t.row})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.start - b.start })
	for i := 1; i < len(spans); i++ {
		if spans[i].start < spans[i-1].end {
			return fmt.Errorf("layout: two tensors overlap at byte %d", spans[i].start)
		}
	}
	return nil
}

// Mode says what a provider may do with a region.
type Mode string

// The modes.
const (
	ReadOnly  Mode = "ro" // cells that are filled, to attend to
	ReadWrite Mode = "rw" // cells to fill
)

// Region is consecutive cells of one block.
type Region struct {
	Mode  Mode   `json:"mode"`
	Block uint64 `json:"block"` // the block's number
	// FD is the index of its descriptor among those of the message; -1: the provider
	// has kept its mapping of the block (trust mode attached).
	FD    int `json:"fd"`
	Pos   int `json:"pos"`  // position of the first cell in the prompt
	Cell  int `json:"cell"` // its number in the block
	Cells int `json:"cells"`
}

// Order asks a provider to fill cells.
type Order struct {
	Ticket  Ticket            `json:"ticket"`
	Trust   Trust             `json:"trust"`
	Pos0    int               `json:"pos0"`   // the first cell to fill; those before are filled
	Header  int               `json:"header"` // index of the header page's descriptor
	Layout  Layout            `json:"layout"`
	Params  map[string]string `json:"params"`
	Regions []Region          `json:"regions"` // in order of position, from 0 to the last
	// Tokens are the ids of positions 0 to the last to be filled. The field is the last
	// one: it is by far the longest.
	Tokens []int32 `json:"tokens"`
}

// validate checks the order by itself, for fds descriptors.
func (o *Order) validate(fds int) error {
	if err := o.Layout.validate(); err != nil {
		return err
	}
	if o.Pos0 < 0 || o.Pos0 >= len(o.Tokens) {
		return fmt.Errorf("pos0 is %d, there are %d tokens", o.Pos0, len(o.Tokens))
	}
	for i, t := range o.Tokens {
		if t < 0 {
			return fmt.Errorf("token %d is %d", i, t)
		}
	}
	used := make([]bool, fds)
	use := func(fd int) error {
		if fd < 0 || fd >= fds || used[fd] {
			return fmt.Errorf("descriptor %d of %d is used twice or does not exist", fd, fds)
		}
		used[fd] = true
		return nil
	}
	if err := use(o.Header); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	pos, blocks := 0, make(map[uint64]bool, len(o.Regions))
	for i, r := range o.Regions {
		want := ReadWrite
		if pos < o.Pos0 {
			want = ReadOnly
		}
		switch {
		case r.Pos != pos || r.Mode != want:
			return fmt.Errorf("region %d is %s from position %d, want %s from %d", i, clip(string(r.Mode), 8), r.Pos, want, pos)
		case r.Cell < 0 || r.Cells < 1 || r.Cell > o.Layout.Cells || r.Cells > o.Layout.Cells-r.Cell:
			return fmt.Errorf("region %d: %d cells from %d on are not within a block of %d", i, r.Cells, r.Cell, o.Layout.Cells)
		case r.Mode == ReadOnly && r.Cells > o.Pos0-pos:
			return fmt.Errorf("region %d: read only beyond position %d", i, o.Pos0)
		case blocks[r.Block] && r.Mode == ReadWrite:
			return fmt.Errorf("region %d: block %d is in two regions", i, r.Block)
		case r.FD == -1 && o.Trust == Attached:
		default:
			if err := use(r.FD); err != nil {
				return fmt.Errorf("region %d: %w", i, err)
			}
		}
		blocks[r.Block] = true
		pos += r.Cells
	}
	if pos != len(o.Tokens) {
		return fmt.Errorf("the regions hold %d cells, there are %d tokens", pos, len(o.Tokens))
	}
	if i := slices.Index(used, false); i >= 0 {
		return fmt.Errorf("descriptor %d belongs to no region", i)
	}
	return nil
}

// appendJSON appends what json.Marshal gives, faster where it matters.
func (o *Order) appendJSON(dst []byte) ([]byte, error) {
	short := *o
	short.Tokens = []int32{}
	head, err := json.Marshal(&short)
	if err != nil {
		return nil, err
	}
	const most = len("1000000,") // most ids are shorter
	dst = slices.Grow(dst, len(head)+most*len(o.Tokens))
	dst = append(dst, head[:len(head)-len("]}")]...)
	for i, t := range o.Tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(t), 10)
	}
	return append(dst, "]}"...), nil
}

// Reply ends an order: either Filled, or Error and perhaps a Code of the table. The
// provider has let go of everything that the trust mode does not let it keep.
type Reply struct {
	Ticket Ticket `json:"ticket"`
	Filled *int   `json:"filled,omitempty"` // as in the header page
	Error  string `json:"error,omitempty"`
	Code   Code   `json:"code,omitempty"`
}

func (r *Reply) validate() error {
	if (r.Filled == nil) == (r.Error == "") {
		return errors.New("want either filled or an error")
	}
	if r.Filled != nil && *r.Filled < 0 {
		return fmt.Errorf("filled is %d", *r.Filled)
	}
	if _, known := entries[r.Code]; !known && r.Code != "" {
		return fmt.Errorf("code %q is not in the table", clip(string(r.Code), 32))
	}
	return nil
}

// Cancel asks the provider to stop filling, let go, and reply.
type Cancel struct {
	Ticket Ticket `json:"ticket"`
}

func (c *Cancel) validate() error { return nil }

// Bye says that no order will come any more, or that none will be taken.
type Bye struct{}

func (b *Bye) validate() error { return nil }
