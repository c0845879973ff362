package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"baton/internal/quant"
)

var int8Types = []quant.Type{quant.Q8_0, quant.Q4_0, quant.Q4_K, quant.Q6_K}

func normals(seed uint64, n int, std float64) []float32 {
	r := rand.New(rand.NewPCG(seed, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(std * r.NormFloat64())
	}
	return x
}

// randomMatrix encodes normal numbers.
func randomMatrix(t testing.TB, typ quant.Type, rows, cols int, seed uint64) Matrix {
	t.Helper()
	rb, err := quant.RowBytes(typ, cols)
	if err != nil {
		t.Fatal(err)
	}
	// A few distinct rows, repeated: encoding is slow.
	data := make([]byte, rows*rb)
	distinct := min(rows, 1<<20/cols)
	if err := quant.Encode(typ, data[:distinct*rb], normals(seed, distinct*cols, 0.05)); err != nil {
		t.Fatal(err)
	}
	for r := distinct; r < rows; r++ {
		copy(data[r*rb:], data[r%distinct*rb:][:rb])
	}
	w, err := NewMatrix(typ, rows, cols, data)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// noiseMatrix has random bytes for weights and scales, so that every value of every
// field occurs, extremes included; the half-precision scales are finite.
func noiseMatrix(t testing.TB, typ quant.Type, rows, cols int, seed uint64) Matrix {
	t.Helper()
	rb, err := quant.RowBytes(typ, cols)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 3))
	data := make([]byte, rows*rb)
	for i := range data {
		switch r.IntN(8) {
		case 0:
			data[i] = 0xff
		case 1:
			data[i] = 0x80
		default:
			data[i] = byte(r.Uint32())
		}
	}
	f, _ := typ.Format()
	for b := 0; b < len(data); b += f.Bytes {
		for _, at := range halves[typ] {
			h := uint16(r.Uint32())
			if h&0x7c00 == 0x7c00 {
				h &^= 0x4000
			}
			binary.LittleEndian.PutUint16(data[b+at:], h)
		}
	}
	w, err := NewMatrix(typ, rows, cols, data)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// halves says where a block has its half-precision scales.
var halves = map[quant.Type][]int{quant.Q8_0: {0}, quant.Q4_0: {0}, quant.Q4_K: {0, 2}, quant.Q6_K: {208}}

func product(t testing.TB, p *Pool, w *Matrix, x []float32, n int) []float32 {
	t.Helper()
	var a Acts
	a.Set(x, n, w.Cols)
	dst := make([]float32, n*w.Rows)
	if err := MatMul(p, &a, Out{dst, w.Rows, w}); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestMatMulReference compares with a float64 product of the decoded weights and the
// original activations. What remains is the error of the activations' eight bits: a
// uniform error of 1/sqrt(12) steps, a step being 1/127 of the largest of 32 normal
// numbers (2.07 standard deviations on average), is about 0.0047 of their standard
// deviation.
func TestMatMulReference(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	for _, typ := range int8Types {
		w := randomMatrix(t, typ, 37, 512, 11)
		x := normals(12, 5*512, 3)
		row := make([]float32, 512)
		want := make([]float64, 5*37)
		for r := range 37 {
			if err := quant.Decode(typ, row, w.Row(r)); err != nil {
				t.Fatal(err)
			}
			for tok := range 5 {
				for i, v := range row {
					want[tok*37+r] += float64(v) * float64(x[tok*512+i])
				}
			}
		}
		forEachImpl(t, func(t *testing.T) {
			got := product(t, p, &w, x, 5)
			var e, power float64
			for i, v := range want {
				e += math.Pow(float64(got[i])-v, 2)
				power += v * v
			}
			if rel := math.Sqrt(e / power); rel > 0.0055 || rel < 0.001 {
				t.Errorf("%s: relative error %.5f, want about 0.0047", typ, rel)
			}
		})
	}
}

// TestMatMulExact compares with a float64 product of the decoded weights and the
// quantized activations: nothing but float32 rounding is left.
func TestMatMulExact(t *testing.T) {
	p := NewPool(1)
	defer p.Close()
	const rows, cols, n = 35, 768, 3
	for _, typ := range int8Types {
		w := randomMatrix(t, typ, rows, cols, 21)
		x := normals(22, n*cols, 1)
		q := make([]actBlock, n*cols/blockCols)
		quantizeActsGeneric(q, x)
		row := make([]float32, cols)
		want := make([]float64, n*rows)
		for r := range rows {
			if err := quant.Decode(typ, row, w.Row(r)); err != nil {
				t.Fatal(err)
			}
			for i := range n * cols {
				a := &q[i/blockCols]
				want[i/cols*rows+r] += float64(row[i%cols]) * float64(a.d) * float64(a.q[i%blockCols])
			}
		}
		forEachImpl(t, func(t *testing.T) {
			got := product(t, p, &w, x, n)
			for i, v := range want {
				if math.Abs(float64(got[i])-v) > 1e-5 {
					t.Fatalf("%s: product %d is %g, want %g", typ, i, got[i], v)
				}
			}
		})
	}
}

// TestMatMulInvariant holds the law of the package: the same bits whatever the
// implementation, the number of tokens in the call, the row of the token in it, the
// number of workers and the other products.
func TestMatMulInvariant(t *testing.T) {
	const maxN = 521
	sizes := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 64, 511, 512}
	if testing.Short() {
		sizes = sizes[:11]
	}
	pools := []*Pool{NewPool(1), NewPool(2), NewPool(3)}
	for _, p := range pools {
		defer p.Close()
	}
	for _, typ := range append([]quant.Type{quant.F16}, int8Types...) {
		for _, rows := range []int{1, 15, 16, 33, 64, 79} {
			const cols = 256
			var w Matrix
			if usesInt8(typ) {
				w = noiseMatrix(t, typ, rows, cols, uint64(rows))
			} else {
				w = randomMatrix(t, typ, rows, cols, uint64(rows))
			}
			x := normals(uint64(typ), maxN*cols, 10)
			want := genericProduct(t, &w, x, maxN)
			forEachImpl(t, func(t *testing.T) {
				for i, n := range sizes {
					if Active() == "generic" && n > 64 {
						continue // slow, and the same code for every n
					}
					t0 := min(3*i, maxN-n)
					got := product(t, pools[i%3], &w, x[t0*cols:(t0+n)*cols], n)
					for j, v := range got {
						if ref := want[t0*rows+j]; !sameFloat(v, ref) {
							t.Fatalf("%s, %d rows, %d tokens, %d workers: token %d row %d is %x, in generic %x",
								typ, rows, n, pools[i%3].Workers(), j/rows, j%rows, v, ref)
						}
					}
				}
			})
		}
	}
}

// TestMatMulLongRows has rows of several lengths, the longest so long that a panel does
// not hold one whole.
func TestMatMulLongRows(t *testing.T) {
	p := NewPool(1)
	defer p.Close()
	const rows, n = 37, 9
	for _, typ := range int8Types {
		f, _ := typ.Format()
		for _, blocks := range []int{f.Elems / 32, 9 * f.Elems / 32, 136, 264} {
			cols := 32 * blocks
			w := noiseMatrix(t, typ, rows, cols, uint64(blocks))
			x := normals(uint64(typ), n*cols, 10)
			want := genericProduct(t, &w, x, n)
			forEachImpl(t, func(t *testing.T) {
				for _, m := range []int{1, 2, 4, 7, n} {
					for j, v := range product(t, p, &w, x[:m*cols], m) {
						if !sameFloat(v, want[j]) {
							t.Fatalf("%s, %d columns, %d tokens: token %d row %d is %x, in generic %x",
								typ, cols, m, j/rows, j%rows, v, want[j])
						}
					}
				}
			})
		}
	}
}

// genericProduct is the product that the plain-Go implementation gives.
func genericProduct(t *testing.T, w *Matrix, x []float32, n int) []float32 {
	t.Helper()
	before := Active()
	if err := Use("generic"); err != nil {
		t.Fatal(err)
	}
	p := NewPool(1)
	defer p.Close()
	y := product(t, p, w, x, n)
	if err := Use(before); err != nil {
		t.Fatal(err)
	}
	return y
}

func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || math.IsNaN(float64(a)) && math.IsNaN(float64(b))
}

// TestMatMulOuts multiplies with several matrices of different types at once, into
// rows with room between them, and checks that nothing else is written.
func TestMatMulOuts(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	const cols = 256
	types := []quant.Type{quant.Q4_K, quant.Q6_K, quant.F32, quant.Q8_0, quant.Q4_0}
	for _, n := range []int{1, 3, 9, 40} {
		x := normals(31, n*cols, 1)
		forEachImpl(t, func(t *testing.T) {
			var a Acts
			a.Set(x, n, cols)
			var outs []Out
			var alone [][]float32
			for i, typ := range types {
				w := randomMatrix(t, typ, 20+23*i, cols, uint64(i))
				alone = append(alone, product(t, p, &w, x, n))
				outs = append(outs, Out{slices.Repeat([]float32{-7}, n*(w.Rows+i)), w.Rows + i, &w})
			}
			if err := MatMul(p, &a, outs...); err != nil {
				t.Fatal(err)
			}
			for i, o := range outs {
				for j, v := range o.Dst {
					want := float32(-7)
					if tok, r := j/o.LD, j%o.LD; r < o.W.Rows {
						want = alone[i][tok*o.W.Rows+r]
					}
					if !sameFloat(v, want) {
						t.Fatalf("%d tokens, out %d: number %d is %g, want %g", n, i, j, v, want)
					}
				}
			}
		})
	}
}

func TestMatMulErrors(t *testing.T) {
	p := NewPool(1)
	defer p.Close()
	w := randomMatrix(t, quant.Q8_0, 4, 64, 1)
	for _, c := range []struct {
		name       string
		x, n, cols int
		dst, ld    int
		want       string
	}{
		{"columns", 96, 1, 96, 4, 4, "matrix has 64 columns, the activations have 96"},
		{"activations", 127, 2, 64, 8, 4, "2 tokens of 64 activations need 128 numbers, got 127"},
		{"output", 128, 2, 64, 7, 4, "output for 2 tokens needs 8 numbers, got 7"},
		{"output rows", 128, 2, 64, 8, 3, "output rows of 3 numbers cannot hold 4 products"},
	} {
		var a Acts
		a.Set(make([]float32, c.x), c.n, c.cols)
		err := MatMul(p, &a, Out{make([]float32, c.dst), c.ld, &w})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	var a Acts
	a.Set(nil, 0, 64)
	if err := MatMul(p, &a, Out{nil, 4, &w}); err != nil {
		t.Errorf("no tokens: %v", err)
	}
}

func TestMatMulAllocates(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	wq, wk := randomMatrix(t, quant.Q4_K, 64, 256, 1), randomMatrix(t, quant.Q6_K, 48, 256, 2)
	x := normals(3, 8*256, 1)
	dst := make([]float32, 8*112)
	var a Acts
	for _, n := range []int{8, 1} {
		if got := testing.AllocsPerRun(10, func() {
			a.Set(x, n, 256)
			if err := MatMul(p, &a, Out{dst, 112, &wq}, Out{dst[64:], 112, &wk}); err != nil {
				t.Fatal(err)
			}
		}); got != 0 {
			t.Errorf("%d tokens: %v allocations in a product, want 0", n, got)
		}
	}
}

// TestQuantizeActs compares the implementations on ordinary blocks and on the odd
// ones, and the plain one with what its rule gives by hand.
func TestQuantizeActs(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x := normals(41, 64*blockCols, 5)
	for i, v := range []float32{0, 1e-45, 1e-38, 0x0.ffp-100, 0x1p-100, 3e38, -3e38, inf, -inf, nan, 0.5} {
		b := x[(2*i+1)*blockCols:][:blockCols]
		clear(b)
		b[(5*i)%blockCols] = v
		b[(5*i+20)%blockCols] = -v
	}
	for i := range blockCols { // ties: amax 127, so that the reciprocal is 1
		x[40*blockCols+i] = float32(i) - 16.5
	}
	x[40*blockCols] = 127
	want := make([]actBlock, 64)
	quantizeActsGeneric(want, x)
	tie := &want[40]
	if tie.d != 1 || tie.q[0] != 127 || tie.q[1] != -16 || tie.q[2] != -14 || tie.q[31] != 14 {
		t.Errorf("ties: d %g, q %d", tie.d, tie.q)
	}
	for i := range 64 {
		var half [2]int32
		for j, q := range want[i].q {
			half[j/16] += int32(q)
		}
		w := &want[i]
		if w.n32 != [2]int32{-32 * half[0], -32 * half[1]} || w.n8 != -8*(half[0]+half[1]) || w.n128 != -128*(half[0]+half[1]) {
			t.Errorf("block %d: sums %+v of %d", i, *w, half)
		}
	}
	forEachImpl(t, func(t *testing.T) {
		got := make([]actBlock, 64)
		quantizeActs(got[:61], x[:61*blockCols]) // not a multiple of any vector's blocks
		quantizeActs(got[61:], x[61*blockCols:])
		for i := range got {
			g, w := got[i], want[i]
			if !sameFloat(g.d, w.d) || !sameFloat(g.sd, w.sd) {
				t.Errorf("block %d: d %g sd %g, want %g %g", i, g.d, g.sd, w.d, w.sd)
			}
			g.d, g.sd, w.d, w.sd = 0, 0, 0, 0
			if g != w {
				t.Errorf("block %d:\n%+v, want\n%+v", i, g, w)
			}
		}
	})
}

// benchShapes are the matrices of a 0.6 B model.
var benchShapes = [][2]int{{1024, 1024}, {3072, 1024}, {1024, 3072}, {2048, 1024}, {151936, 1024}}

func BenchmarkMatMul(b *testing.B) {
	for _, typ := range int8Types {
		for _, shape := range benchShapes {
			w := randomMatrix(b, typ, shape[0], shape[1], 1)
			for _, n := range []int{1, 4, 512} {
				for _, threads := range []int{1, 2} {
					if n > 1 && shape[0] > 1<<16 {
						continue
					}
					b.Run(fmt.Sprintf("%s/%dx%d/n=%d/threads=%d", typ, shape[0], shape[1], n, threads), func(b *testing.B) {
						benchMatMul(b, &w, n, threads)
					})
				}
			}
		}
	}
}

// BenchmarkMatMulCached has its weights in the second-level cache: what the kernels compute,
// whatever the memory does.
func BenchmarkMatMulCached(b *testing.B) {
	p := NewPool(1)
	defer p.Close()
	for _, typ := range int8Types {
		w := randomMatrix(b, typ, 512, 1024, 1)
		for _, n := range []int{1, 510} {
			b.Run(fmt.Sprintf("%s/n=%d", typ, n), func(b *testing.B) {
				var a Acts
				a.Set(normals(1, n*w.Cols, 1), n, w.Cols)
				dst := make([]float32, n*w.Rows)
				for b.Loop() {
					if err := MatMul(p, &a, Out{dst, w.Rows, &w}); err != nil {
						b.Fatal(err)
					}
				}
				rate := float64(b.N) / b.Elapsed().Seconds() / 1e9
				b.ReportMetric(rate*float64(len(w.Data)), "GB/s")
				b.ReportMetric(rate*float64(w.Rows*w.Cols*n), "GMAC/s")
			})
		}
	}
}

// benchMatMul goes over copies of w, so that small matrices come from memory too.
func benchMatMul(b *testing.B, w *Matrix, n, threads int) {
	copies := max(1, 96<<20/len(w.Data))
	data := slices.Repeat(w.Data, copies)
	p := NewPool(threads)
	defer p.Close()
	var a Acts
	a.Set(normals(1, n*w.Cols, 1), n, w.Cols)
	dst := make([]float32, n*w.Rows)
	m := *w
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		m.Data = data[i*len(w.Data):][:len(w.Data)]
		if i++; i == copies {
			i = 0
		}
		if err := MatMul(p, &a, Out{dst, w.Rows, &m}); err != nil {
			b.Fatal(err)
		}
	}
	sec := b.Elapsed().Seconds()
	b.ReportMetric(float64(b.N)*float64(len(w.Data))/sec/1e9, "GB/s")
	b.ReportMetric(float64(b.N)*float64(w.Rows)*float64(w.Cols)*float64(n)/sec/1e9, "GMAC/s")
}

func BenchmarkQuantizeActs(b *testing.B) {
	x := normals(1, 3072, 1)
	q := make([]actBlock, len(x)/blockCols)
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		quantizeActs(q, x)
	}
}
