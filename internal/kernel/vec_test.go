package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"baton/internal/quant"
)

func randomRow(r *rand.Rand, n int, size float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * size)
	}
	return x
}

func clone[T any](x []T) []T { return append([]T(nil), x...) }

// fmaExact computes a*b+c exactly and rounds once.
func fmaExact(a, b, c float32) float32 {
	f := func(x float32) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(float64(x)) }
	p := f(a)
	p.Mul(p, f(b)).Add(p, f(c))
	v, _ := p.Float32()
	return v
}

func TestFMA32(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	check := func(a, b, c float32) {
		t.Helper()
		want := fmaExact(a, b, c)
		if got := fma32(a, b, c); got != want { // the sign of zero: see below
			t.Fatalf("fma(%x, %x, %x) = %x, want %x", a, b, c, got, want)
		}
	}
	for range 200000 {
		a := math.Float32frombits(r.Uint32()&^0x7f800000 | uint32(100+r.IntN(56))<<23)
		b := math.Float32frombits(r.Uint32()&^0x7f800000 | uint32(100+r.IntN(56))<<23)
		c := math.Float32frombits(r.Uint32()&^0x7f800000 | uint32(80+r.IntN(100))<<23)
		check(a, b, c)
	}
	// Sums next to the midpoint of two float32: rounding to float64 first would lose
	// what decides. 1+2^-24 is a midpoint; products far below tip it.
	for _, tiny := range []float32{0x1p-70, -0x1p-70, 0x1p-40, -0x1p-40, 0} {
		for _, c := range []float32{1, 1 + 0x1p-23, -1, 1.5} {
			// (2^-12 + e)(2^-12) and the like: 2^-24 + e 2^-12
			check(0x1p-12, 0x1p-12+tiny, c)
			check(-0x1p-12, 0x1p-12+tiny, c)
			check(0x1p-12+0x1p-35, 0x1p-12-0x1p-35, c)
		}
	}
	// Subnormal results round at a fixed place.
	for range 100000 {
		a := math.Float32frombits(r.Uint32()&0x807fffff | uint32(40+r.IntN(30))<<23)
		b := math.Float32frombits(r.Uint32()&0x807fffff | uint32(40+r.IntN(30))<<23)
		c := math.Float32frombits(r.Uint32() & 0x80ffffff)
		check(a, b, c)
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, tc := range []struct{ a, b, c, want float32 }{
		{inf, 1, 0, inf}, {inf, 1, -inf, nan}, {inf, 0, 1, nan}, {1, 1, nan, nan}, {math.MaxFloat32, 2, 0, inf},
		{math.MaxFloat32, 2, -math.MaxFloat32, math.MaxFloat32}, {1, 1, -1, 0},
	} {
		got := fma32(tc.a, tc.b, tc.c)
		if got != tc.want && !(got != got && tc.want != tc.want) {
			t.Errorf("fma(%g, %g, %g) = %g, want %g", tc.a, tc.b, tc.c, got, tc.want)
		}
	}
	if got := fma32(float32(math.Copysign(0, -1)), 1, float32(math.Copysign(0, -1))); math.Float32bits(got) != 1<<31 {
		t.Errorf("-0*1 + -0 = %g", got)
	}
}

// ulps is the distance of got from the exact value in units of want's last place.
func ulps(got float32, want float64) float64 {
	w := float32(want)
	ulp := float64(math.Nextafter32(w, float32(math.Inf(1))) - w)
	return math.Abs(float64(got)-want) / ulp
}

func TestExpAccuracy(t *testing.T) {
	worst, at := 0.0, float32(0)
	for x := float32(-87); x < 88.7; x += 0.000917 {
		if e := ulps(exp32(x), math.Exp(float64(x))); e > worst {
			worst, at = e, x
		}
	}
	t.Logf("exp: %.3f units in the last place at %g", worst, at)
	if worst > 1.5 {
		t.Errorf("exp(%g) is off by %g units in the last place", at, worst)
	}
	worst = 0
	for x := float32(0); x > -125.4; x -= 0.000613 {
		if e := ulps(exp2neg(x), math.Exp2(float64(x))); e > worst {
			worst, at = e, x
		}
	}
	t.Logf("exp2: %.3f units in the last place at %g", worst, at)
	if worst > 1.5 {
		t.Errorf("exp2(%g) is off by %g units in the last place", at, worst)
	}
}

// edges are arguments at which exponentials change course.
var edges = []float32{0, float32(math.Copysign(0, -1)), 1, -1, -86.99, -87, -87.01, -88, -104, -1e30, 88.7, 88.72283, 88.72284, 89, 1e30,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e-40, -1e-40, 0.34657, 0.34658, -0.34657, -125.5, -125.49, -125.51, -0.5, -1.5, -2.5}

func TestExpEdges(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		got := make([]float32, len(edges))
		Exp(got, edges)
		for i, x := range edges {
			want := math.Exp(float64(x))
			switch {
			case x < -87:
				want = 0
			case x > 88.72283:
				want = math.Inf(1)
			}
			g := float64(got[i])
			if g != want && !(g != g && want != want) && !(math.Abs(g-want) < 3e-7*want) {
				t.Errorf("exp(%g) = %g, want %g", x, g, want)
			}
		}
	})
}

// TestVectorKernels compares every implementation with the plain-Go one, bit by bit,
// at all lengths around the width of the registers.
func TestVectorKernels(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	angles := func(n int) (c, s []float32) {
		c, s = make([]float32, n), make([]float32, n)
		for i := range c {
			sin, cos := math.Sincos(r.Float64() * 100)
			c[i], s[i] = float32(cos), float32(sin)
		}
		return c, s
	}
	before := Active()
	defer Use(before)
	for _, n := range []int{1, 2, 8, 15, 16, 17, 31, 32, 48, 64, 100, 128, 333, 1024, 1040} {
		x, y, z := randomRow(r, n, 3), randomRow(r, n, 3), randomRow(r, n, 1)
		copy(x, edges)
		cos, sin := angles(n)
		halves := make([]uint16, n)
		for i := range halves {
			halves[i] = uint16(r.Uint32()) &^ 0x4000 // finite
		}
		pairs := randomRow(r, 2*n, 2)
		ops := []struct {
			name string
			run  func() []float32
		}{
			{"Add", func() []float32 { d := clone(x); Add(d, y); return d }},
			{"AddBias", func() []float32 { d := append(clone(x), y...); AddBias(d, z); return d }},
			{"Mul", func() []float32 { d := clone(x); Mul(d, y); return d }},
			{"RMSNorm", func() []float32 { d := make([]float32, n); RMSNorm(d, y, z, 1e-6); return d }},
			{"RMSNorm in place", func() []float32 { d := clone(y); RMSNorm(d, d, z, 1e-5); return d }},
			{"SwiGLU", func() []float32 { d := clone(x); SwiGLU(d, d, y); return d }},
			{"Exp", func() []float32 { d := clone(x); Exp(d, d); return d }},
			{"Softmax", func() []float32 { d := clone(y); Softmax(d); return d }},
			{"Max", func() []float32 { return []float32{Max(x), Max(y)} }},
			{"ArgMax", func() []float32 { return []float32{float32(ArgMax(x)), float32(ArgMax(y))} }},
			{"RopeNeoX", func() []float32 { d := clone(pairs); RopeNeoX(d, cos, sin); return d }},
			{"RopeNorm", func() []float32 { d := clone(pairs); RopeNorm(d, cos, sin); return d }},
			{"LoadF16", func() []float32 { d := make([]float32, n); LoadF16(d, halves); return d }},
			{"StoreF16", func() []float32 {
				h, d := make([]uint16, n), make([]float32, n)
				StoreF16(h, x)
				for i, v := range h {
					d[i] = quant.F16ToF32(v)
				}
				return d
			}},
		}
		for _, op := range ops {
			if err := Use("generic"); err != nil {
				t.Fatal(err)
			}
			want := op.run()
			for _, name := range Implementations() {
				if err := Use(name); err != nil {
					t.Fatal(err)
				}
				got := op.run()
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !(got[i] != got[i] && want[i] != want[i]) {
						t.Errorf("%s, %s, length %d: element %d is %g, want %g", name, op.name, n, i, got[i], want[i])
						break
					}
				}
			}
		}
	}
}

func TestRMSNormAgainstFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	forEachImpl(t, func(t *testing.T) {
		for _, n := range []int{64, 100, 1024, 3000} {
			x, w := randomRow(r, n, 2), randomRow(r, n, 1)
			got := make([]float32, n)
			RMSNorm(got, x, w, 1e-6)
			sum := 0.0
			for _, v := range x {
				sum += float64(v) * float64(v)
			}
			s := 1 / math.Sqrt(sum/float64(n)+1e-6)
			for i := range got {
				if want := float64(x[i]) * s * float64(w[i]); math.Abs(float64(got[i])-want) > 1e-6*math.Abs(want)+1e-9 {
					t.Fatalf("length %d: element %d is %g, want %g", n, i, got[i], want)
				}
			}
		}
	})
}

func TestSwiGLUAgainstFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 8))
	forEachImpl(t, func(t *testing.T) {
		g, u := randomRow(r, 1000, 20), randomRow(r, 1000, 2)
		got := make([]float32, len(g))
		SwiGLU(got, g, u)
		for i := range got {
			want := float64(g[i]) / (1 + math.Exp(-float64(g[i]))) * float64(u[i])
			if math.Abs(float64(got[i])-want) > 1e-6*math.Abs(want)+1e-30 {
				t.Fatalf("silu(%g)*%g = %g, want %g", g[i], u[i], got[i], want)
			}
		}
	})
}

// Rotation by hand: a quarter turn moves (1, 2) to (-2, 1).
func TestRopePairs(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		x := []float32{1, 10, 2, 20, 7} // the fifth element is not rotated
		RopeNeoX(x, []float32{0, 1}, []float32{1, 0})
		if want := []float32{-2, 10, 1, 20, 7}; sameBits(x, want) != nil {
			t.Errorf("NeoX: %v, want %v", x, want)
		}
		x = []float32{1, 2, 10, 20, 7}
		RopeNorm(x, []float32{0, 1}, []float32{1, 0})
		if want := []float32{-2, 1, 10, 20, 7}; sameBits(x, want) != nil {
			t.Errorf("Norm: %v, want %v", x, want)
		}
	})
}

func TestArgMax(t *testing.T) {
	nan, ninf := float32(math.NaN()), float32(math.Inf(-1))
	long := make([]float32, 1000)
	long[517], long[900] = 3, 3
	allNaN := make([]float32, 40)
	for i := range allNaN {
		allNaN[i] = nan
	}
	nanFirst := clone(allNaN)
	nanFirst[33], nanFirst[35] = -5, -4
	forEachImpl(t, func(t *testing.T) {
		for _, tc := range []struct {
			x    []float32
			want int
		}{
			{nil, -1}, {[]float32{1}, 0}, {[]float32{1, 2, 2}, 1}, {[]float32{nan, 1}, 1}, {[]float32{ninf, ninf}, 0},
			{long, 517}, {allNaN, -1}, {nanFirst, 35},
		} {
			if got := ArgMax(tc.x); got != tc.want {
				t.Errorf("%d elements: %d, want %d", len(tc.x), got, tc.want)
			}
		}
	})
}

// TestStoreF16 checks rounding against the definition: the nearest of all halves.
func TestStoreF16Rounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	forEachImpl(t, func(t *testing.T) {
		src, dst := randomRow(r, 4096, 1), make([]uint16, 4096)
		for i := range src {
			src[i] *= float32(math.Exp2(float64(i%40 - 24)))
		}
		StoreF16(dst, src)
		for i, h := range dst {
			got := float64(quant.F16ToF32(h))
			if math.Abs(got) > 60000 {
				continue
			}
			up, down := float64(quant.F16ToF32(h+1)), float64(quant.F16ToF32(h-1))
			x := float64(src[i])
			if h&0x7fff != 0 && math.Abs(x-got) > math.Min(math.Abs(x-up), math.Abs(x-down)) {
				t.Fatalf("%g became %g, between %g and %g", x, got, down, up)
			}
		}
	})
}

func BenchmarkVector(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	x, y, z := randomRow(r, 3072, 1), randomRow(r, 3072, 1), make([]float32, 3072)
	logits := randomRow(r, 151936, 3)
	h := make([]uint16, 3072)
	for _, bm := range []struct {
		name string
		n    int
		run  func()
	}{
		{"RMSNorm1024", 1024, func() { RMSNorm(z[:1024], x[:1024], y[:1024], 1e-6) }},
		{"RMSNorm128", 128, func() { RMSNorm(z[:128], x[:128], y[:128], 1e-6) }},
		{"SwiGLU3072", 3072, func() { SwiGLU(z, x, y) }},
		{"Add1024", 1024, func() { Add(z[:1024], x[:1024]) }},
		{"RopeNeoX128", 128, func() { RopeNeoX(z[:128], x[:64], y[:64]) }},
		{"StoreF16", 1024, func() { StoreF16(h[:1024], x[:1024]) }},
		{"ArgMax151936", 151936, func() { ArgMax(logits) }},
		{"Softmax151936", 151936, func() { copy(logits, x); Softmax(logits) }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bm.run()
			}
			b.ReportMetric(float64(bm.n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gelem/s")
		})
	}
}
