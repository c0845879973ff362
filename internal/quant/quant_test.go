package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var known = []Type{F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K}

func normals(seed uint64, n int, std float64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(std * r.NormFloat64())
	}
	return x
}

// TestSizes holds the block sizes against their parts, as ggml-common.h asserts them.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		t     Type
		elems int
		bytes int
	}{
		{F32, 1, 4},
		{F16, 1, 2},
		{BF16, 1, 2},
		{Q8_0, 32, 2 + 32},
		{Q4_0, 32, 2 + 32/2},
		{Q4_K, 256, 2 + 2 + 12 + 256/2},
		{Q6_K, 256, 256/2 + 256/4 + 256/16 + 2},
	} {
		f, ok := c.t.Format()
		if !ok || f.Elems != c.elems || f.Bytes != c.bytes || !f.Known {
			t.Errorf("%s: %+v, want %d elements in %d bytes", c.t, f, c.elems, c.bytes)
		}
	}
}

// q4kBlock is a Q4_K block built by hand: d = 0.5, dmin = 0.25, scale of sub-block j
// is 7j+3, its minimum 5j+20, its elements (i+j) mod 16.
func q4kBlock() (b []byte, want []float32) {
	b = make([]byte, 144)
	b[1], b[3] = 0x38, 0x34
	want = make([]float32, 256)
	for j := range 8 {
		s, m := byte(7*j+3), byte(5*j+20)
		if j < 4 {
			b[4+j] |= s
			b[8+j] |= m
		} else {
			b[8+j] |= s&15 | m<<4
			b[j] |= s >> 4 << 6
			b[4+j] |= m >> 4 << 6
		}
		for i := range 32 {
			q := byte(i+j) % 16
			at, shift := 16+j/2*32+i, j%2*4
			b[at] |= q << shift
			want[32*j+i] = 0.5*float32(s)*float32(q) - 0.25*float32(m)
		}
	}
	return b, want
}

// q6kBlock is a Q6_K block built by hand: d = 2, scale of group g (16 elements) is
// 9g-70, element e is (5e) mod 64. The places of the bits are written out as the
// format's description has them, 128 elements at a time.
func q6kBlock() (b []byte, want []float32) {
	b = make([]byte, 210)
	b[209] = 0x40
	q := func(e int) byte { return byte(5*e) % 64 }
	for h := range 2 {
		for l := range 32 {
			e := 128*h + l
			b[64*h+l] = q(e)&15 | q(e+64)&15<<4
			b[64*h+32+l] = q(e+32)&15 | q(e+96)&15<<4
			b[128+32*h+l] = q(e)>>4 | q(e+32)>>4<<2 | q(e+64)>>4<<4 | q(e+96)>>4<<6
		}
	}
	for e := range 256 {
		s := 9*(e/16) - 70
		b[192+e/16] = byte(int8(s))
		want = append(want, 2*float32(s)*float32(int(q(e))-32))
	}
	return b, want
}

func TestDecode(t *testing.T) {
	q8 := append([]byte{0x00, 0x3c}, make([]byte, 32)...) // d = 1
	q4 := append([]byte{0x00, 0xb8}, make([]byte, 16)...) // d = -0.5
	var want8, want4 []float32
	for i := range 32 {
		q8[2+i] = byte(int8(8*i - 128))
		want8 = append(want8, float32(8*i-128))
	}
	for i := range 16 {
		q4[2+i] = byte(i) | byte(15-i)<<4
		want4 = append(want4, -0.5*float32(i-8))
	}
	for i := range 16 {
		want4 = append(want4, -0.5*float32(7-i))
	}
	q4k, want4k := q4kBlock()
	q6k, want6k := q6kBlock()
	for _, c := range []struct {
		t    Type
		src  []byte
		want []float32
	}{
		{F32, []byte{0, 0, 0x20, 0xc0, 0, 0, 0x80, 0x3f}, []float32{-2.5, 1}},
		{F16, []byte{0x00, 0xc1, 0x01, 0x00}, []float32{-2.5, 0x1p-24}},
		{BF16, []byte{0x20, 0xc0, 0x80, 0x3f}, []float32{-2.5, 1}},
		{Q8_0, q8, want8},
		{Q4_0, q4, want4},
		{Q4_K, q4k, want4k},
		{Q6_K, q6k, want6k},
	} {
		// Twice the same, so that the step from block to block is tested as well.
		src, want := append(c.src, c.src...), append(c.want, c.want...)
		got := make([]float32, len(want))
		if err := Decode(c.t, got, src); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.t, d)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	for _, c := range []struct {
		t    Type
		n    int
		size int
		want string
	}{
		{Q8_0, 33, 34, "not a whole number"},
		{Q8_0, 64, 67, "take 68 bytes, got 67"},
		{Q4_K, 256, 145, "take 144 bytes, got 145"},
		{Type(3), 32, 20, "cannot compute with tensor type Q4_1"},
		{Type(99), 32, 20, "cannot compute with tensor type type(99)"},
	} {
		x, b := make([]float32, c.n), make([]byte, c.size)
		for _, err := range []error{Decode(c.t, x, b), Encode(c.t, b, x)} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %d elements, %d bytes: error %v, want one with %q", c.t, c.n, c.size, err, c.want)
			}
		}
	}
}

// TestEncodeError bounds the root mean square error of normal numbers. The bounds of
// the block types are what llama.cpp's quantizers reach on such numbers (0.0053,
// 0.0860, 0.0713 and 0.0177), with 3 % on top.
func TestEncodeError(t *testing.T) {
	x := normals(3, 1<<16, 1)
	for _, c := range []struct {
		t   Type
		rms float64
	}{
		{F32, 0},
		{F16, 0.0003},
		{BF16, 0.0024},
		{Q8_0, 0.0055},
		{Q4_0, 0.0886},
		{Q4_K, 0.0735},
		{Q6_K, 0.0184},
	} {
		size, err := RowBytes(c.t, len(x))
		if err != nil {
			t.Fatal(err)
		}
		b, y := make([]byte, size), make([]float32, len(x))
		if err := Encode(c.t, b, x); err != nil {
			t.Fatal(err)
		}
		if err := Decode(c.t, y, b); err != nil {
			t.Fatal(err)
		}
		var e float64
		for i := range x {
			e += math.Pow(float64(x[i])-float64(y[i]), 2)
		}
		e = math.Sqrt(e / float64(len(x)))
		t.Logf("%s: rms error %.5f", c.t, e)
		if e > c.rms {
			t.Errorf("%s: rms error %.5f, want at most %.5f", c.t, e, c.rms)
		}
	}
}

// TestAgainstLlamaCpp holds encoders and decoders against blocks that llama.cpp made
// (testdata/README.md): the same bytes for Q8_0 and Q4_0; for all four, its blocks
// decode to the numbers they were made from, with the error that the type has.
func TestAgainstLlamaCpp(t *testing.T) {
	read := func(name string) []byte {
		b, err := os.ReadFile("testdata/ffn_down." + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	x := make([]float32, 512)
	if err := Decode(F32, x, read("F32")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		t     Type
		rms   float64 // relative to that of x
		exact bool    // our encoder gives the same bytes
	}{
		{Q8_0, 0.0060, true},
		{Q4_0, 0.0950, true},
		{Q4_K, 0.0750, false},
		{Q6_K, 0.0190, false},
	} {
		theirs := read(c.t.String())
		y := make([]float32, len(x))
		if err := Decode(c.t, y, theirs); err != nil {
			t.Fatal(err)
		}
		var e, power float64
		for i := range x {
			e += math.Pow(float64(x[i])-float64(y[i]), 2)
			power += float64(x[i]) * float64(x[i])
		}
		if rms := math.Sqrt(e / power); rms > c.rms {
			t.Errorf("%s: llama.cpp's block decodes with relative rms error %.4f, want at most %.4f", c.t, rms, c.rms)
		}
		ours := make([]byte, len(theirs))
		if err := Encode(c.t, ours, x); err != nil {
			t.Fatal(err)
		}
		if c.exact && !bytes.Equal(ours, theirs) {
			t.Errorf("%s: bytes differ from llama.cpp's", c.t)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, typ := range []Type{Q8_0, Q4_0, Q4_K, Q6_K} {
		for _, c := range []struct {
			v    float32
			want string
		}{
			{float32(math.NaN()), "element 300 is NaN"},
			{float32(math.Inf(-1)), "element 300 is -Inf"},
			{3e38, "scale above 65504"},
			{-3e38, "scale above 65504"},
		} {
			x := normals(5, 512, 1)
			x[300], x[301] = c.v, -c.v
			size, _ := RowBytes(typ, len(x))
			err := Encode(typ, make([]byte, size), x)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s with %v: error %v, want one with %q", typ, c.v, err, c.want)
			}
		}
	}
}

// TestEncodeSmall holds that numbers near the bottom of float32 decode to zero or to
// something as small, not to garbage from an overflowing reciprocal.
func TestEncodeSmall(t *testing.T) {
	for _, typ := range known[3:] {
		for _, std := range []float64{0, 1e-45, 1e-40, 1e-38, 1e-30, 1e-9} {
			x := normals(7, 256, std)
			size, _ := RowBytes(typ, len(x))
			b, y := make([]byte, size), make([]float32, len(x))
			if err := Encode(typ, b, x); err != nil {
				t.Fatal(err)
			}
			if err := Decode(typ, y, b); err != nil {
				t.Fatal(err)
			}
			for i, v := range y {
				if math.Abs(float64(v)) > 10*std {
					t.Fatalf("%s: %g became %g at element %d (standard deviation %g)", typ, x[i], v, i, std)
				}
			}
		}
	}
}

// TestEncodeIdempotent: what the floating-point types decode to encodes to the same.
func TestEncodeIdempotent(t *testing.T) {
	for _, typ := range []Type{F32, F16, BF16} {
		x := normals(9, 4096, 3)
		size, _ := RowBytes(typ, len(x))
		b1, b2 := make([]byte, size), make([]byte, size)
		if err := Encode(typ, b1, x); err != nil {
			t.Fatal(err)
		}
		if err := Decode(typ, x, b1); err != nil {
			t.Fatal(err)
		}
		if err := Encode(typ, b2, x); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b1, b2) {
			t.Errorf("%s: encoding is not stable", typ)
		}
	}
}

func TestScaleMinPacking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Uint8Range(0, 63), 16, 16).Draw(t, "scales and minima")
		packed := make([]byte, 12)
		for j := range 8 {
			packScaleMin(packed, j, want[j], want[j+8])
		}
		for j := range 8 {
			if s, m := ScaleMinQ4K(packed, j); s != want[j] || m != want[j+8] {
				t.Fatalf("sub-block %d: scale %d, minimum %d, want %d, %d", j, s, m, want[j], want[j+8])
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	q4k, _ := q4kBlock()
	q6k, _ := q6kBlock()
	f.Add(uint32(Q4_K), 256, q4k)
	f.Add(uint32(Q6_K), 256, q6k)
	f.Add(uint32(Q8_0), 32, make([]byte, 34))
	f.Add(uint32(3), 32, make([]byte, 20))
	f.Fuzz(func(t *testing.T, typ uint32, n int, src []byte) {
		if n < 0 || n > 1<<16 {
			return
		}
		dst := make([]float32, n)
		err := Decode(Type(typ), dst, src)
		want, sizeErr := RowBytes(Type(typ), n)
		if ok := sizeErr == nil && want == len(src) && Type(typ).Supported(); ok != (err == nil) {
			t.Fatalf("%d elements of %s in %d bytes: error %v", n, Type(typ), len(src), err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	x := normals(1, 1<<14, 1)
	for _, typ := range known {
		b.Run(typ.String(), func(b *testing.B) {
			size, _ := RowBytes(typ, len(x))
			src := make([]byte, size)
			if err := Encode(typ, src, x); err != nil {
				b.Fatal(err)
			}
			y := make([]float32, len(x))
			b.SetBytes(int64(size))
			for b.Loop() {
				if err := Decode(typ, y, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
