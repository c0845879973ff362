package handoff

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSamplePositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, 1000).Draw(t, "from")
		n := rapid.IntRange(1, 5000).Draw(t, "n")
		list := samplePositions(from, from+n)
		if len(list) != min(n, samples) {
			t.Fatalf("%d of %d positions", len(list), n)
		}
		if list[0] != from || list[len(list)-1] != from+n-1 {
			t.Fatalf("%v of [%d, %d) does not hold the ends", list, from, from+n)
		}
		if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Fatalf("%v is not in order, or not different", list)
		}
	})
	seen := map[int]bool{}
	for range 200 {
		for _, pos := range samplePositions(0, 100) {
			seen[pos] = true
		}
	}
	if len(seen) < 90 { // all but with a probability of 1e-20 or so
		t.Errorf("only %d of 100 positions were ever chosen", len(seen))
	}
}

// Values of IEEE 754-2008, 3.4: binary16.
func TestHalf(t *testing.T) {
	for bits, want := range map[uint16]float64{
		0x0000: 0, 0x3c00: 1, 0xbc00: -1, 0x3555: 0.333251953125, 0x7bff: 65504, 0x0400: 0x1p-14,
		0x0001: 0x1p-24, 0x83ff: -1023 * 0x1p-24, 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1), 0xc000: -2,
	} {
		if got := half(bits); got != want {
			t.Errorf("half(%#04x) = %g, want %g", bits, got, want)
		}
	}
	if !math.IsNaN(half(0x7e00)) || !math.IsNaN(half(0xfc01)) {
		t.Error("a NaN is a number")
	}
}

func TestCompareRows(t *testing.T) {
	one, close, two := uint16(0x3c00), uint16(0x3c29), uint16(0x4000) // 1, 1.04, 2
	for _, c := range []struct {
		name      string
		got, want []uint16
		tolerance float64
		ok        bool
	}{
		{"equal", []uint16{one, two}, []uint16{one, two}, 0, true},
		{"one bit", []uint16{one, two}, []uint16{one, two + 1}, 0, false},
		{"zeros of two signs", []uint16{0}, []uint16{0x8000}, 0, false},
		{"4 % off", []uint16{close}, []uint16{one}, 0.05, true},
		{"4 % off, 3 % allowed", []uint16{close}, []uint16{one}, 0.03, false},
		{"the norm counts", []uint16{close, two}, []uint16{one, two}, 0.03, true},
		{"another row", []uint16{two, one}, []uint16{one, two}, 0.05, false},
		{"NaN", []uint16{0x7e00, one}, []uint16{one, one}, 0.05, false},
		{"infinite", []uint16{0x7c00}, []uint16{one}, 0.05, false},
		{"all zero", []uint16{0, 0}, []uint16{0, 0}, 0.05, true},
		{"not zero", []uint16{one}, []uint16{0}, 0.05, false},
	} {
		if err := compareRows(c.got, c.want, c.tolerance); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
