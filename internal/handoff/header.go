package handoff

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode"
	"unsafe"
)

// The header page is a memory object of its own, all zero when the provider gets it. The
// provider writes it before the first row, from what it knows itself. All numbers are
// little-endian:
//
//	offset  size
//	     0     8  magic: the bytes "BATONKV1", written last
//	     8     4  version: 1
//	    12     4  length of the description, 0 for none
//	    16    32  layout: the SHA-256 of the provider's own description of layout and parameters
//	    48    32  prompt: the SHA-256 of the token ids that it was given, each as an int32
//	    80    16  ticket of the share
//	   128     8  filled: cells 0 to filled-1 are complete in all layers; starts at pos0
//	   256        description, as much as fits: only to tell people what differs
//
// After that only filled changes: an atomic store after the rows, so that whoever loads
// it sees them.
const (
	// HeaderSize is the size of the header page in bytes.
	HeaderSize = 4096

	headerVersion = 1

	offMagic   = 0
	offVersion = 8
	offDescLen = 12
	offLayout  = 16
	offPrompt  = 48
	offTicket  = 80
	offFilled  = 128
	offDesc    = 256
)

var headerMagic = [8]byte{'B', 'A', 'T', 'O', 'N', 'K', 'V', '1'}

// Ticket identifies a share towards its provider.
type Ticket [16]byte

func (t Ticket) String() string { return hex.EncodeToString(t[:]) }

// MarshalText is the ticket in hexadecimal digits.
func (t Ticket) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses 32 lower-case hexadecimal digits.
func (t *Ticket) UnmarshalText(text []byte) error { return unhex(t[:], text, "ticket") }

// Digest is a SHA-256: of a layout's description, or of token ids.
type Digest [sha256.Size]byte

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText is the digest in hexadecimal digits.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses 64 lower-case hexadecimal digits.
func (d *Digest) UnmarshalText(text []byte) error { return unhex(d[:], text, "digest") }

func unhex(dst, text []byte, what string) error {
	if len(text) != 2*len(dst) || !bytes.Equal(bytes.ToLower(text), text) {
		return fmt.Errorf("handoff: a %s is %d lower-case hexadecimal digits, not %d bytes", what, 2*len(dst), len(text))
	}
	if _, err := hex.Decode(dst, text); err != nil {
		return fmt.Errorf("handoff: %s: %w", what, err)
	}
	return nil
}

// PromptDigest is the SHA-256 of token ids, each as a little-endian int32.
func PromptDigest(tokens []int32) Digest {
	_, all := promptDigests(tokens)
	return all
}

// promptDigests is the digests of all tokens but the last, and of all.
func promptDigests(tokens []int32) (given, all Digest) {
	data := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		data = binary.LittleEndian.AppendUint32(data, uint32(t))
	}
	h := sha256.New()
	last := max(len(data)-4, 0)
	h.Write(data[:last])
	h.Sum(given[:0])
	h.Write(data[last:])
	h.Sum(all[:0])
	return given, all
}

// header is the contents of a header page.
type header struct {
	magic       [8]byte
	version     uint32
	layout      Digest
	prompt      Digest
	ticket      Ticket
	filled      uint64
	description string
}

// readHeader copies a page, which somebody may be changing, into private memory.
func readHeader(page []byte) header {
	filled := atomic.LoadUint64(filledWord(page))
	var p [HeaderSize]byte
	copy(p[:], page)
	h := header{
		magic:   [8]byte(p[offMagic:]),
		version: binary.LittleEndian.Uint32(p[offVersion:]),
		layout:  Digest(p[offLayout:]),
		prompt:  Digest(p[offPrompt:]),
		ticket:  Ticket(p[offTicket:]),
		filled:  littleEndian(filled),
	}
	n := min(binary.LittleEndian.Uint32(p[offDescLen:]), HeaderSize-offDesc)
	h.description = string(p[offDesc : offDesc+n])
	return h
}

// writeHeader writes a page; the magic comes last.
func writeHeader(page []byte, h header) {
	desc := h.description
	if len(desc) > HeaderSize-offDesc {
		desc = desc[:HeaderSize-offDesc]
	}
	binary.LittleEndian.PutUint32(page[offVersion:], h.version)
	binary.LittleEndian.PutUint32(page[offDescLen:], uint32(len(desc)))
	copy(page[offLayout:], h.layout[:])
	copy(page[offPrompt:], h.prompt[:])
	copy(page[offTicket:], h.ticket[:])
	copy(page[offDesc:], desc)
	storeFilled(page, h.filled)
	magic := binary.NativeEndian.Uint64(h.magic[:])
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&page[offMagic])), magic)
}

// storeFilled publishes that the rows of cells 0 to n-1 are complete.
func storeFilled(page []byte, n uint64) { atomic.StoreUint64(filledWord(page), littleEndian(n)) }

// loadFilled is how many cells are said to be complete.
func loadFilled(page []byte) uint64 { return littleEndian(atomic.LoadUint64(filledWord(page))) }

func filledWord(page []byte) *uint64 { return (*uint64)(unsafe.Pointer(&page[offFilled])) }

// littleEndian converts between the machine's byte order and the page's.
func littleEndian(x uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], x)
	return binary.NativeEndian.Uint64(b[:])
}

// expectation is the decoder's own record of what a header has to say.
type expectation struct {
	layout      Digest
	description string
	ticket      Ticket
	prompt      Digest
	pos0, cells int // cells pos0 to cells-1 are to be filled
}

// validate compares a header with the record and returns how many cells are filled.
func (h *header) validate(e *expectation) (filled int, _ *Refusal) {
	switch {
	case h.magic == [8]byte{}:
		return 0, refuse(HeaderMissing, "the page is empty")
	case h.magic != headerMagic:
		return 0, refuse(HeaderMissing, "the page starts with %q, want %q", h.magic[:], headerMagic[:])
	case h.version != headerVersion:
		return 0, refuse(HeaderMissing, "the header is of version %d, want %d", h.version, headerVersion)
	case h.layout != e.layout:
		r := describeDifference(e.description, h.description)
		if r.Field == "" {
			r.Detail = fmt.Sprintf("the layout hash is %s, want %s", h.layout, e.layout)
		}
		return 0, r
	case h.ticket != e.ticket:
		return 0, refuse(TicketDiffers, "the ticket is %s, want %s", h.ticket, e.ticket)
	case h.prompt != e.prompt:
		return 0, refuse(PromptDiffers, "the digest of the token ids is %s, want %s", h.prompt, e.prompt)
	case h.filled < uint64(e.pos0) || h.filled > uint64(e.cells):
		return 0, refuse(ContentDiffers, "the header claims %d filled cells, between %d and %d are possible", h.filled, e.pos0, e.cells)
	}
	return int(h.filled), nil
}

// describeDifference names the first line in which two descriptions (kv.Layout.Describe)
// differ. The provider's may be cut off, or missing.
func describeDifference(decoder, provider string) *Refusal {
	r := &Refusal{Code: LayoutDiffers}
	ours := strings.Split(strings.TrimSuffix(decoder, "\n"), "\n")
	theirs := strings.Split(provider, "\n")
	if cut := len(theirs) - 1; theirs[cut] == "" || len(provider) == HeaderSize-offDesc {
		theirs = theirs[:cut] // the last line is empty, or not whole
	}
	for i, line := range ours {
		if i >= len(theirs) {
			break
		}
		if theirs[i] == line {
			continue
		}
		field, want := splitLine(line)
		other, got := splitLine(theirs[i])
		if other != field {
			r.Field = field
			r.Detail = fmt.Sprintf("%s is %s here, the provider has %s = %s in its place", field, want, other, got)
			return r
		}
		r.Field = field
		r.Detail = fmt.Sprintf("%s is %s here, the provider has %s", field, want, got)
		return r
	}
	if len(theirs) > len(ours) {
		r.Field, _ = splitLine(theirs[len(ours)])
		r.Detail = fmt.Sprintf("the provider has a parameter more: %s", r.Field)
	} else if n := len(theirs); n < len(ours) && n > 0 && len(provider) < HeaderSize-offDesc {
		r.Field, _ = splitLine(ours[n])
		r.Detail = fmt.Sprintf("the provider does not have the parameter %s", r.Field)
	}
	return r
}

// splitLine splits a line of a description into name and value, both shortened.
func splitLine(line string) (name, value string) {
	name, value, _ = strings.Cut(line, " ")
	if name == "param" {
		name, value, _ = strings.Cut(value, " ")
		name = strings.Trim(name, `"`)
	}
	const most = 100
	return clip(name, most), clip(value, most)
}

// clip makes what a peer sent fit to be shown: short, and without control characters.
func clip(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
