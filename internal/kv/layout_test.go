package kv

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestLayoutSizes(t *testing.T) {
	for _, c := range []struct {
		name                    string
		layers, heads, dim      int
		cells, cell, data, size int
	}{
		// 28 * 8 * 128 elements of 2 bytes, twice: 114,688 bytes a cell.
		{"Qwen3 0.6B", 28, 8, 128, 256, 114688, 28 << 20, 28 << 20},
		{"demo model", 6, 2, 64, 1024, 3072, 3 << 20, 4 << 20},
		{"Llama 3 8B", 32, 8, 128, 256, 131072, 32 << 20, 32 << 20},
		{"Llama 3 70B", 80, 8, 128, 64, 327680, 20 << 20, 20 << 20},
		{"SmolLM2 135M", 30, 3, 64, 256, 23040, 5760 << 10, 6 << 20},
		{"one element", 1, 1, 1, 524288, 4, 2 << 20, 2 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := mustLayout(t, Config{Layers: c.layers, KVHeads: c.heads, HeadDim: c.dim})
			got := []int{l.CellsPerBlock, l.CellBytes(), l.DataBytes, l.BlockBytes}
			if diff := cmp.Diff([]int{c.cells, c.cell, c.data, c.size}, got); diff != "" {
				t.Errorf("cells a block, bytes a cell, data and block (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLayoutOffsets(t *testing.T) {
	// Rows of 6 bytes, 2 cells: 12 bytes a tensor, each on a line of 64.
	l := mustLayout(t, Config{Layers: 3, KVHeads: 1, HeadDim: 3, CellsPerBlock: 2})
	if diff := cmp.Diff([][]int{{0, 128, 256}, {64, 192, 320}}, [][]int{l.KOffset, l.VOffset}); diff != "" {
		t.Errorf("offsets (-want +got):\n%s", diff)
	}
	if l.RowElems != 3 || l.KRowBytes != 6 || l.VRowBytes != 6 || l.DataBytes != 332 || l.BlockBytes != 2<<20 {
		t.Errorf("%+v", l)
	}
}

// Tensors are aligned, in order, do not overlap, and end within the block.
func TestLayoutIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, err := NewLayout(Config{
			Layers:        rapid.IntRange(1, 100).Draw(t, "layers"),
			KVHeads:       rapid.IntRange(1, 16).Draw(t, "heads"),
			HeadDim:       rapid.IntRange(1, 256).Draw(t, "dim"),
			CellsPerBlock: rapid.SampledFrom([]int{0, 1, 2, 64}).Draw(t, "cells"),
		})
		if err != nil {
			t.Fatal(err)
		}
		end := 0
		for i := range l.Layers {
			for _, at := range []int{l.KOffset[i], l.VOffset[i]} {
				if at%64 != 0 || at < end {
					t.Fatalf("layer %d: a tensor is at %d, the one before ends at %d", i, at, end)
				}
				end = at + l.CellsPerBlock*l.RowElems*2
			}
		}
		if end != l.DataBytes || l.DataBytes > l.BlockBytes || l.BlockBytes%(2<<20) != 0 || l.BlockBytes-l.DataBytes >= 2<<20 {
			t.Fatalf("the last tensor ends at %d: %+v", end, l)
		}
	})
}

func TestLayoutRefuses(t *testing.T) {
	good := Config{Layers: 1, KVHeads: 1, HeadDim: 64}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no layers":       {func(c *Config) { c.Layers = 0 }, "layers: 0, must be 1 to"},
		"absurd layers":   {func(c *Config) { c.Layers = 1 << 40 }, "layers: 1099511627776"},
		"no heads":        {func(c *Config) { c.KVHeads = -1 }, "kv heads: -1"},
		"no head size":    {func(c *Config) { c.HeadDim = 0 }, "head size: 0"},
		"key type":        {func(c *Config) { c.KType = 9 }, "unknown cache type 9"},
		"value type":      {func(c *Config) { c.VType = 7 }, "unknown cache type 7"},
		"cells":           {func(c *Config) { c.CellsPerBlock = 3 }, "3 cells a block, must be a power of two"},
		"negative cells":  {func(c *Config) { c.CellsPerBlock = -4 }, "-4 cells a block"},
		"too many cells":  {func(c *Config) { c.CellsPerBlock = 1 << 21 }, "2097152 cells a block"},
		"too large block": {func(c *Config) { c.CellsPerBlock = 1 << 20; c.HeadDim = 4096 }, "more than 1073741824 bytes"},
	} {
		cfg := good
		c.change(&cfg)
		if _, err := NewLayout(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestTypeNames(t *testing.T) {
	if typ, err := ParseType("f16"); err != nil || typ != F16 || typ.String() != "f16" {
		t.Errorf("%v, %v", typ, err)
	}
	if _, err := ParseType("q8_0"); err == nil || err.Error() != `kv: cache type "q8_0" is not supported, only f16` {
		t.Error(err)
	}
	if s := Type(99).String(); s != "type(99)" {
		t.Error(s)
	}
}

func TestLayoutHash(t *testing.T) {
	c := Config{Layers: 2, KVHeads: 1, HeadDim: 4, CellsPerBlock: 8}
	l := mustLayout(t, c)
	params := map[string]string{"rope": "1e6", "ctx": "2560"}
	// The description, by hand.
	want := sha256.Sum256([]byte(`baton kv layout 1
layers 2
kv_heads 1
head_dim 4
k_type f16
v_type f16
cells 8
k_row 8
v_row 8
k_offset [0 128]
v_offset [64 192]
block 2097152
param "ctx" "2560"
param "rope" "1e6"
`))
	if l.Hash(params) != want {
		t.Error("the hash is not that of the description")
	}
	seen := map[[32]byte]string{}
	add := func(name string, h [32]byte) {
		t.Helper()
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[h] = name
	}
	add("plain", l.Hash(nil))
	add("params", l.Hash(params))
	add("other value", l.Hash(map[string]string{"rope": "1e5", "ctx": "2560"}))
	add("two params", l.Hash(map[string]string{"a": "1", "b": "2"}))
	add("one that looks like two", l.Hash(map[string]string{"a": "1\"\nparam \"b\" \"2"}))
	for name, change := range map[string]func(*Config){
		"layers": func(c *Config) { c.Layers++ },
		"heads":  func(c *Config) { c.KVHeads++ },
		"dim":    func(c *Config) { c.HeadDim++ },
		"cells":  func(c *Config) { c.CellsPerBlock *= 2 },
	} {
		other := c
		change(&other)
		add(name, mustLayout(t, other).Hash(nil))
	}
}
