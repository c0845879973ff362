package quant

import (
	"math"
	"testing"
)

// halfValue is the definition of a half-precision number, in float64 arithmetic.
func halfValue(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10&31), float64(h&1023)
	if h>>15 == 1 {
		sign = -1
	}
	switch {
	case exp == 31 && frac != 0:
		return math.NaN()
	case exp == 31:
		return math.Inf(int(sign))
	case exp == 0:
		return sign * math.Ldexp(frac, -24)
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

func TestF16ToF32(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		got, want := F16ToF32(h), halfValue(h)
		switch {
		case math.IsNaN(want):
			if b := math.Float32bits(got); b != uint32(h&0x8000)<<16|0x7fc00000|uint32(h&0x3ff)<<13 {
				t.Fatalf("F16ToF32(%#04x) = %#08x, want a quiet NaN with the payload", h, b)
			}
		case float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want):
			t.Fatalf("F16ToF32(%#04x) = %v, want %v", h, got, want)
		}
	}
}

// TestF32ToF16 converts every half back, and the points where rounding turns: halfway
// between neighbours (ties go to the even one) and one float32 step to either side.
func TestF32ToF16(t *testing.T) {
	for i := range 0x7c00 {
		h := uint16(i)
		v := halfValue(h)
		next := halfValue(h + 1)
		if h == 0x7bff {
			next = 65536 // where the next half would lie, were it not infinite
		}
		mid := float32((v + next) / 2) // exact: 12 bits
		even := h + h&1
		for _, c := range []struct {
			f    float32
			want uint16
		}{
			{float32(v), h},
			{mid, even},
			{math.Nextafter32(mid, 0), h},
			{math.Nextafter32(mid, 1e6), h + 1},
		} {
			if got := F32ToF16(c.f); got != c.want {
				t.Fatalf("F32ToF16(%b) = %#04x, want %#04x", c.f, got, c.want)
			}
			if got := F32ToF16(-c.f); got != c.want|0x8000 {
				t.Fatalf("F32ToF16(%b) = %#04x, want %#04x", -c.f, got, c.want|0x8000)
			}
		}
	}
	for _, c := range []struct {
		f    float32
		want uint16
	}{
		{float32(math.Inf(1)), 0x7c00},
		{float32(math.Inf(-1)), 0xfc00},
		{math.MaxFloat32, 0x7c00},
		{math.SmallestNonzeroFloat32, 0},
		{math.Float32frombits(0x7f800001), 0x7e00}, // signalling NaN with a payload that a half cannot hold
		{math.Float32frombits(0xffc02000), 0xfe01},
	} {
		if got := F32ToF16(c.f); got != c.want {
			t.Errorf("F32ToF16(%v) = %#04x, want %#04x", c.f, got, c.want)
		}
	}
}

func TestBF16(t *testing.T) {
	for _, c := range []struct {
		f    float32
		want uint16
	}{
		{0, 0},
		{float32(math.Copysign(0, -1)), 0x8000},
		{1, 0x3f80},
		{-2.5, 0xc020},
		{0x1.01p0, 0x3f80},     // halfway between 1 and 1+2^-7: even below
		{0x1.03p0, 0x3f82},     // halfway between 1+2^-7 and 1+2^-6: even above
		{0x1.010002p0, 0x3f81}, // just above halfway
		{math.MaxFloat32, 0x7f80},
		{float32(math.Inf(-1)), 0xff80},
		{math.Float32frombits(0x7f800001), 0x7fc0},
		{math.SmallestNonzeroFloat32, 0},
	} {
		if got := F32ToBF16(c.f); got != c.want {
			t.Errorf("F32ToBF16(%b) = %#04x, want %#04x", c.f, got, c.want)
		}
	}
	for i := range 1 << 16 {
		h := uint16(i)
		f := BF16ToF32(h)
		if f != f {
			continue
		}
		if got := F32ToBF16(f); got != h {
			t.Fatalf("F32ToBF16(BF16ToF32(%#04x)) = %#04x", h, got)
		}
	}
}
