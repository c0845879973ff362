package kernel

import (
	"fmt"
	"hash/fnv"
	"math"

	"baton/internal/quant"
)

// A selfCheck computes something with the active implementation on fixed numbers. All
// implementations must give the same bits, and the known ones.
type selfCheck struct {
	name string
	run  func() []float32
	want uint64 // FNV-1a of the bits
}

var selfChecks = []selfCheck{
	{"vectors", checkVectors, 0x941143069660fa64},
	{"attention", checkAttention, 0xa07724a307bbaff2},
	{"float products", checkFloats, 0xcc42b69bb4d313db},
	{"quantized products", checkQuantized, 0x6beffef3a3213fb2},
}

// SelfTest runs every implementation but the generic one, which there is no replacement
// for, on fixed numbers whose results are known. That takes about two milliseconds. It
// switches off those that compute something else; the active one is then replaced by the
// best that is left. It returns what the log should say, also about a
// choice in the environment that could not be followed. It is for start-up: no kernel
// may run meanwhile.
func SelfTest() []string {
	var report []string
	if envWarning != "" {
		report = append(report, envWarning)
	}
	was := Active()
	for _, name := range Implementations()[1:] {
		if err := Use(name); err != nil {
			continue
		}
		for _, c := range selfChecks {
			got, err := runCheck(c)
			if err == nil && got == c.want {
				continue
			}
			why := fmt.Sprintf("the self-test of its %s gave %#x, want %#x", c.name, got, c.want)
			if err != nil {
				why = fmt.Sprintf("the self-test of its %s failed: %v", c.name, err)
			}
			implementations[level].off = why
			report = append(report, fmt.Sprintf("kernels: %s is switched off: %s", name, why))
			break
		}
	}
	if err := Use(was); err != nil {
		useBest()
		report = append(report, fmt.Sprintf("kernels: using %s", Active()))
	}
	return report
}

// runCheck hashes the result of a check; a panic counts as a failure.
func runCheck(c selfCheck) (sum uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	h := fnv.New64a()
	var b [4]byte
	for _, x := range c.run() {
		u := math.Float32bits(x)
		b[0], b[1], b[2], b[3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
		h.Write(b[:])
	}
	return h.Sum64(), nil
}

// checkNumbers returns n numbers between -size and size, the same for the same seed
// (Numerical Recipes' 32-bit generator).
func checkNumbers(seed uint32, n int, size float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		seed = seed*1664525 + 1013904223
		x[i] = float32(float32(int32(seed))*0x1p-31) * size
	}
	return x
}

func checkVectors() []float32 {
	const n = 75 // not a multiple of any register
	x, y, w := checkNumbers(1, n, 8), checkNumbers(2, n, 8), checkNumbers(3, n, 1)
	out := make([]float32, 0, 12*n)
	row := func() []float32 {
		out = append(out, x...)
		return out[len(out)-n:]
	}
	Add(row(), y)
	Mul(row(), y)
	d := row()
	RMSNorm(d, d, w, 1e-5)
	d = row()
	SwiGLU(d, d, y)
	d = row()
	Exp(d, d)
	Softmax(row())
	RopeNeoX(row(), w[:37], y[:37])
	RopeNorm(row(), w[:37], y[:37])
	h := make([]uint16, n)
	StoreF16(h, x)
	LoadF16(row(), h)
	return append(out, Max(x), float32(ArgMax(x)))
}

func checkAttention() []float32 {
	const heads, kvHeads, dim, positions = 3, 1, 16, 290
	kv := make([]uint16, positions*kvHeads*dim)
	for i, x := range checkNumbers(4, len(kv), 2) {
		kv[i] = quant.F32ToF16(x)
	}
	q := checkNumbers(5, 5*heads*dim, 4)
	out := make([]float32, 6*heads*dim)
	spans := []Span{{K: kv, V: kv[kvHeads*dim:], Len: 100}, {K: kv[100*kvHeads*dim:], V: kv[3*kvHeads*dim:], Len: positions - 100}}
	a := Attention{Heads: heads, KVHeads: kvHeads, HeadDim: dim, Scale: 0.25}
	p := NewPool(1)
	defer p.Close()
	err := a.Run(p, []AttnSeq{
		{Q: q, Out: out, N: 5, Pos0: positions - 5, Spans: spans},
		{Q: q, Out: out[5*heads*dim:], N: 1, Pos0: positions - 3, Spans: spans},
	})
	if err != nil {
		panic(err) // runCheck returns it
	}
	return out
}

func checkFloats() []float32 {
	return checkMatrices(quant.F32, quant.F16, quant.BF16)
}

func checkQuantized() []float32 {
	return checkMatrices(quant.Q8_0, quant.Q4_0, quant.Q4_K, quant.Q6_K)
}

// checkMatrices multiplies matrices of some types with one and with several tokens.
// Encoding is slow: the rows are made of two pieces in different order.
func checkMatrices(types ...quant.Type) []float32 {
	const rows, piece, cols, tokens = 5, 256, 512, 7
	p := NewPool(1)
	defer p.Close()
	weights, x := checkNumbers(6, 2*piece, 1), checkNumbers(7, tokens*cols, 3)
	var out []float32
	for _, t := range types {
		size, err := quant.RowBytes(t, piece)
		if err != nil {
			panic(err) // runCheck returns it
		}
		pieces := make([]byte, 2*size)
		if err := quant.Encode(t, pieces, weights); err != nil {
			panic(err)
		}
		var data []byte
		for r := range rows {
			data = append(data, pieces[r%2*size:][:size]...)
			data = append(data, pieces[r/2%2*size:][:size]...)
		}
		w, err := NewMatrix(t, rows, cols, data)
		if err != nil {
			panic(err)
		}
		for _, n := range []int{1, tokens} {
			dst := make([]float32, n*rows)
			var a Acts
			a.Set(x, n, cols)
			if err := MatMul(p, &a, Out{Dst: dst, LD: rows, W: &w}); err != nil {
				panic(err)
			}
			out = append(out, dst...)
		}
	}
	return out
}
