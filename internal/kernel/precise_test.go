package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"baton/internal/quant"
)

// Precise is at least a hundred times nearer to the exact product than MatMul, and the
// same to the last bit for a token alone or among others.
func TestPrecise(t *testing.T) {
	const rows, cols, n = 48, 512, 5
	rng := rand.New(rand.NewPCG(1, 2))
	values := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	x := values(n * cols)
	for _, typ := range []quant.Type{quant.Q8_0, quant.Q4_0, quant.Q4_K, quant.Q6_K, quant.F16} {
		t.Run(typ.String(), func(t *testing.T) {
			rb, err := quant.RowBytes(typ, cols)
			if err != nil {
				t.Fatal(err)
			}
			data, w := make([]byte, rows*rb), make([]float32, rows*cols)
			if err := quant.Encode(typ, data, values(rows*cols)); err != nil {
				t.Fatal(err)
			}
			if err := quant.Decode(typ, w, data); err != nil {
				t.Fatal(err)
			}
			m, err := NewMatrix(typ, rows, cols, data)
			if err != nil {
				t.Fatal(err)
			}
			exact := make([]float64, n*rows)
			for tok := range n {
				for r := range rows {
					for c := range cols {
						exact[tok*rows+r] += float64(w[r*cols+c]) * float64(x[tok*cols+c])
					}
				}
			}
			p := NewPool(2)
			defer p.Close()
			var acts Acts
			acts.Set(x, n, cols)
			plain, got := make([]float32, n*rows), make([]float32, n*rows)
			if err := MatMul(p, &acts, Out{plain, rows, &m}); err != nil {
				t.Fatal(err)
			}
			var precise Precise
			if err := precise.MatMul(p, x, n, cols, Out{got, rows, &m}); err != nil {
				t.Fatal(err)
			}
			off := func(y []float32) (e float64) {
				for i, v := range y {
					e += (float64(v) - exact[i]) * (float64(v) - exact[i])
				}
				return math.Sqrt(e)
			}
			if usesInt8(typ) && off(got)*100 > off(plain) || off(got) > off(plain) {
				t.Errorf("off by %g, MatMul by %g", off(got), off(plain))
			}
			one := make([]float32, rows)
			for tok := range n {
				if err := precise.MatMul(p, x[tok*cols:(tok+1)*cols], 1, cols, Out{one, rows, &m}); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(one, got[tok*rows:(tok+1)*rows]) {
					t.Fatalf("token %d alone differs", tok)
				}
			}
		})
	}
}
