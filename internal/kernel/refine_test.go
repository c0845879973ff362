package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"baton/internal/quant"
)

// The rows near the largest one become exact, and the largest of all is that of the
// exact product; others stay as MatMul made them; a token alone gets what it gets among
// others.
func TestRefine(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		const rows, cols, n = 600, 512, 5
		rng := rand.New(rand.NewPCG(1, 2))
		values := func(n int, scale float64) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(rng.NormFloat64() * scale)
			}
			return x
		}
		x := values(n*cols, 1)
		for _, typ := range []quant.Type{quant.Q8_0, quant.Q4_0, quant.Q4_K, quant.Q6_K, quant.F16} {
			rb, err := quant.RowBytes(typ, cols)
			if err != nil {
				t.Fatal(err)
			}
			data, w := make([]byte, rows*rb), make([]float32, rows*cols)
			if err := quant.Encode(typ, data, values(rows*cols, .1)); err != nil {
				t.Fatal(err)
			}
			if err := quant.Decode(typ, w, data); err != nil {
				t.Fatal(err)
			}
			m, err := NewMatrix(typ, rows, cols, data)
			if err != nil {
				t.Fatal(err)
			}
			p := NewPool(2)
			defer p.Close()
			var acts Acts
			acts.Set(x, n, cols)
			got := make([]float32, n*rows)
			if err := MatMul(p, &acts, Out{got, rows, &m}); err != nil {
				t.Fatal(err)
			}
			plain := slices.Clone(got)
			var f Refiner
			if err := f.Refine(p, x, n, cols, Out{got, rows, &m}); err != nil {
				t.Fatal(err)
			}
			refined := 0
			for tok := range n {
				best, at := math.Inf(-1), 0
				largest := float64(slices.Max(plain[tok*rows : (tok+1)*rows]))
				for r := range rows {
					exact := 0.0
					for c := range cols {
						exact += float64(w[r*cols+c]) * float64(x[tok*cols+c])
					}
					if exact > best {
						best, at = exact, r
					}
					i := tok*rows + r
					if float64(plain[i]) >= largest-refineWithin && usesInt8(typ) {
						refined++
						if d := math.Abs(float64(got[i]) - exact); d > 1e-4 {
							t.Errorf("%s: token %d row %d is off by %g", typ, tok, r, d)
						}
					} else if got[i] != plain[i] {
						t.Errorf("%s: token %d row %d was changed", typ, tok, r)
					}
				}
				if a := ArgMax(got[tok*rows : (tok+1)*rows]); a != at {
					t.Errorf("%s: token %d: the best row is %d, want %d", typ, tok, a, at)
				}
				one := slices.Clone(plain[tok*rows : (tok+1)*rows])
				if err := f.Refine(p, x[tok*cols:(tok+1)*cols], 1, cols, Out{one, rows, &m}); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(one, got[tok*rows:(tok+1)*rows]) {
					t.Errorf("%s: token %d alone differs", typ, tok)
				}
			}
			if usesInt8(typ) && refined < n+2 {
				t.Errorf("%s: only %d rows were refined, the test shows nothing", typ, refined)
			}
		}
	})
}

// With very many near equal logits only the best are refined.
func TestRefineIsBounded(t *testing.T) {
	var f Refiner
	logits := make([]float32, 10000)
	for i := range logits {
		logits[i] = float32(i%100) / 1000
	}
	f.find(logits)
	if len(f.best) != refineMost {
		t.Fatalf("%d rows", len(f.best))
	}
	for i, c := range f.best {
		if c.row != 99+100*i {
			t.Errorf("row %d of the best is %d, want %d", i, c.row, 99+100*i)
		}
	}
}
