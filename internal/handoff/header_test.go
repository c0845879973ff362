package handoff

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// newPage is aligned as a mapping is.
func newPage() []byte {
	words := make([]uint64, HeaderSize/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), HeaderSize)
}

func testHeader() (header, *expectation) {
	l := testLayout()
	e := &expectation{
		layout: l.Hash(testParams), description: l.Describe(testParams),
		ticket: Ticket{1, 2, 3}, prompt: PromptDigest([]int32{5, 6, 7}), pos0: 1, cells: 3,
	}
	return header{
		magic: headerMagic, version: headerVersion, layout: e.layout, description: e.description,
		ticket: e.ticket, prompt: e.prompt, filled: 2,
	}, e
}

// The page, byte by byte, as anybody may write it.
func TestHeaderLayout(t *testing.T) {
	h, _ := testHeader()
	page := newPage()
	writeHeader(page, h)
	want := make([]byte, HeaderSize)
	copy(want, "BATONKV1")
	want[8] = 1
	want[12], want[13] = byte(len(h.description)), byte(len(h.description)>>8)
	layout := sha256.Sum256([]byte(h.description))
	copy(want[16:], layout[:])
	// 05 00 00 00 06 00 00 00 07 00 00 00, by sha256sum(1)
	digest, err := hex.DecodeString("2e4c4603cb0dea8636f8e802bfa0f24caef5f9943377f91d89fd6fbd9577cd1c")
	if err != nil {
		t.Fatal(err)
	}
	copy(want[48:], digest)
	copy(want[80:], []byte{1, 2, 3})
	want[128] = 2
	copy(want[256:], h.description)
	for i := range want {
		if page[i] != want[i] {
			t.Fatalf("byte %d is %#x, want %#x", i, page[i], want[i])
		}
	}
	if got := readHeader(page); got != h {
		t.Errorf("read back %+v, want %+v", got, h)
	}
}

func TestHeaderValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*header)
		want   Code
		detail string
	}{
		{"good", func(*header) {}, "", ""},
		{"nothing filled", func(h *header) { h.filled = 1 }, "", ""},
		{"all filled", func(h *header) { h.filled = 3 }, "", ""},
		{"empty", func(h *header) { *h = header{} }, HeaderMissing, "the page is empty"},
		{"magic", func(h *header) { h.magic[7] = '2' }, HeaderMissing, `starts with "BATONKV2"`},
		{"version", func(h *header) { h.version = 0 }, HeaderMissing, "version 0, want 1"},
		{"layout, no description", func(h *header) { h.layout[0]++; h.description = "" }, LayoutDiffers, "the layout hash is"},
		{"layout, equal description", func(h *header) { h.layout[0]++ }, LayoutDiffers, "the layout hash is"},
		{"layout, one value", func(h *header) {
			h.layout[0]++
			h.description = strings.Replace(h.description, "head_dim 4", "head_dim 8", 1)
		}, LayoutDiffers, "head_dim is 4 here, the provider has 8"},
		{"layout, a parameter", func(h *header) {
			h.layout[0]++
			h.description = strings.Replace(h.description, `"n_ctx" "200"`, `"n_ctx" "300"`, 1)
		}, LayoutDiffers, `n_ctx is "200" here, the provider has "300"`},
		{"layout, a parameter less", func(h *header) {
			h.layout[0]++
			h.description = h.description[:strings.Index(h.description, `param "n_ctx"`)]
		}, LayoutDiffers, "the provider does not have the parameter n_ctx"},
		{"layout, a parameter more", func(h *header) {
			h.layout[0]++
			h.description += "param \"rope\" \"1e6\"\n"
		}, LayoutDiffers, "a parameter more: rope"},
		{"layout, binary description", func(h *header) {
			h.layout[0]++
			h.description = "\x1b[31m\xff\n"
		}, LayoutDiffers, "the provider has ?[31m\ufffd ="},
		{"ticket", func(h *header) { h.ticket[15]++ }, TicketDiffers, "want 0102030000"},
		{"prompt", func(h *header) { h.prompt[0]++ }, PromptDiffers, "digest"},
		{"too few filled", func(h *header) { h.filled = 0 }, ContentDiffers, "claims 0 filled cells, between 1 and 3"},
		{"too many filled", func(h *header) { h.filled = 4 }, ContentDiffers, "claims 4"},
		{"absurdly many filled", func(h *header) { h.filled = 1 << 63 }, ContentDiffers, "claims 9223372036854775808"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, e := testHeader()
			c.change(&h)
			page := newPage()
			writeHeader(page, h)
			h = readHeader(page)
			clear(page) // what was read is private: nothing that happens to the page matters
			filled, r := h.validate(e)
			if c.want == "" {
				if r != nil || filled != int(h.filled) {
					t.Errorf("%d filled, %v", filled, r)
				}
				return
			}
			if r == nil || r.Code != c.want || !strings.Contains(r.Detail, c.detail) {
				t.Errorf("%v, want %s with %q", r, c.want, c.detail)
			}
		})
	}
}

// No page makes the reader do anything but return.
func FuzzHeader(f *testing.F) {
	h, _ := testHeader()
	page := newPage()
	writeHeader(page, h)
	f.Add([]byte(nil))
	f.Add(page)
	f.Fuzz(func(t *testing.T, data []byte) {
		page := newPage()
		copy(page, data)
		_, e := testHeader()
		h := readHeader(page)
		if filled, r := h.validate(e); r == nil && (filled < e.pos0 || filled > e.cells) {
			t.Errorf("%d cells", filled)
		}
	})
}

func TestLongDescription(t *testing.T) {
	h, e := testHeader()
	e.description = strings.Repeat("k_offset 0\n", 1000)
	h.description = e.description
	h.layout[0]++
	page := newPage()
	writeHeader(page, h)
	h = readHeader(page)
	if _, r := h.validate(e); r == nil || r.Field != "" || !strings.Contains(r.Detail, "the layout hash is") {
		t.Errorf("a description that was cut off is said to differ: %v", r)
	}
}

func TestDigests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.Int32(), 1, 50).Draw(t, "tokens")
		given, all := promptDigests(tokens)
		if given != PromptDigest(tokens[:len(tokens)-1]) || all != PromptDigest(tokens) || given == all {
			t.Fatal("the two digests are not those of the two lists")
		}
		var back Digest
		text, err := all.MarshalText()
		if err != nil || back.UnmarshalText(text) != nil || back != all {
			t.Fatalf("%s does not come back", text)
		}
	})
	if got := PromptDigest(nil).String(); got != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("the digest of nothing is %s", got)
	}
	for _, text := range []string{"", "00", strings.Repeat("0", 63), strings.Repeat("G", 64), strings.Repeat("A", 64)} {
		if new(Digest).UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is a digest", text)
		}
	}
}
