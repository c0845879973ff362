package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"baton/internal/quant"

	"pgregory.net/rapid"
)

var floatTypes = []quant.Type{quant.F32, quant.F16, quant.BF16}

// TestFloatRowsAgainstFloat64 compares with sums in float64 over the decoded weights.
func TestFloatRowsAgainstFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	forEachImpl(t, func(t *testing.T) {
		for _, typ := range floatTypes {
			for _, shape := range [][3]int{{4, 32, 1}, {9, 64, 2}, {7, 1056, 9}, {33, 96, 5}, {3, 32, 30}, {5, 1056, 27}} {
				rows, cols, n := shape[0], shape[1], shape[2]
				w, x := randomMatrix(t, typ, rows, cols, r.Uint64()), randomRow(r, n*cols, 1)
				dst := make([]float32, n*rows)
				floatRows(dst, rows, &w, x, n, 0, rows, new(scratch))
				row := make([]float32, cols)
				for i := range rows {
					if err := quant.Decode(typ, row, w.Row(i)); err != nil {
						t.Fatal(err)
					}
					for tok := range n {
						want, size := 0.0, 0.0
						for c, v := range row {
							p := float64(v) * float64(x[tok*cols+c])
							want += p
							size += math.Abs(p)
						}
						if got := float64(dst[tok*rows+i]); !(math.Abs(got-want) < 1e-6*size) {
							t.Fatalf("%s %v: row %d, token %d is %g, want %g", typ, shape, i, tok, got, want)
						}
					}
				}
			}
		}
	})
}

// TestFloatRowsInvariance: the same bits for any number of tokens, any part of the rows
// and any implementation, and nothing else touched.
func TestFloatRowsInvariance(t *testing.T) {
	before := Active()
	defer Use(before)
	var s scratch
	rapid.Check(t, func(rt *rapid.T) {
		typ := rapid.SampledFrom(floatTypes).Draw(rt, "type")
		rows := rapid.IntRange(1, 50).Draw(rt, "rows")
		cols := 32 * rapid.OneOf(rapid.IntRange(1, 4), rapid.SampledFrom([]int{16, 17, 33})).Draw(rt, "blocks")
		n := rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(1, 60)).Draw(rt, "n")
		rows = min(rows, max(5, 400_000/(n*cols))) // plain Go is slow
		ld := rows + rapid.IntRange(0, 3).Draw(rt, "gap")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		w, x := randomMatrix(t, typ, rows, cols, r.Uint64()), randomRow(r, n*cols, 1)

		const untouched = 12345
		fresh := func() []float32 {
			d := make([]float32, n*ld)
			for i := range d {
				d[i] = untouched
			}
			return d
		}
		want := fresh()
		floatRowsGeneric(want, ld, &w, x, n, 0, rows, &s)
		cut := rapid.IntRange(0, rows).Draw(rt, "row cut")
		tok := rapid.IntRange(0, n).Draw(rt, "token cut")
		for _, name := range Implementations() {
			if err := Use(name); err != nil {
				rt.Fatal(err)
			}
			got := fresh()
			for _, part := range [][2]int{{0, cut}, {cut, rows}} {
				floatRows(got, ld, &w, x[:tok*cols], tok, part[0], part[1], &s)
				floatRows(got[tok*ld:], ld, &w, x[tok*cols:], n-tok, part[0], part[1], &s)
			}
			if err := sameBits(got, want); err != nil {
				rt.Fatalf("%s %s: %v", name, typ, err)
			}
		}
	})
}

func BenchmarkFloat(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	p := NewPool(1)
	defer p.Close()
	for _, typ := range floatTypes {
		for _, shape := range [][2]int{{1024, 1024}, {3072, 1024}, {1024, 3072}, {2048, 1024}, {151936, 1024}} {
			rows, cols := shape[0], shape[1]
			w := randomMatrix(b, typ, rows, cols, 1)
			for _, n := range []int{1, 4, 8, 512} {
				if n == 512 && rows > 5000 || rows > 5000 && typ == quant.F32 {
					continue
				}
				x, dst := randomRow(r, n*cols, 1), make([]float32, n*rows)
				b.Run(fmt.Sprintf("%s/%dx%d/n%d", typ, rows, cols, n), func(b *testing.B) {
					var a Acts
					a.Set(x, n, cols)
					b.ReportAllocs()
					for b.Loop() {
						if err := MatMul(p, &a, Out{Dst: dst, LD: rows, W: &w}); err != nil {
							b.Fatal(err)
						}
					}
					sec := b.Elapsed().Seconds() / float64(b.N)
					b.ReportMetric(float64(len(w.Data))/sec/1e9, "GB/s")
					b.ReportMetric(float64(n*rows*cols)/sec/1e9, "GMAC/s")
				})
			}
		}
	}
}
