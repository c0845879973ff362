package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"baton/internal/quant"

	"pgregory.net/rapid"
)

// An attnCase is an attention call with K and V rows stored once, as one run.
type attnCase struct {
	a    Attention
	k, v []uint16
	q    []float32
	n    int
	pos0 int
}

func newAttnCase(r *rand.Rand, heads, kvHeads, dim, n, pos0 int) *attnCase {
	c := &attnCase{a: Attention{Heads: heads, KVHeads: kvHeads, HeadDim: dim, Scale: float32(1 / math.Sqrt(float64(dim)))}, n: n, pos0: pos0}
	c.k, c.v = randomHalves(r, (pos0+n)*kvHeads*dim), randomHalves(r, (pos0+n)*kvHeads*dim)
	c.q = make([]float32, n*heads*dim)
	for i := range c.q {
		c.q[i] = float32(r.NormFloat64() * 2)
	}
	return c
}

func randomHalves(r *rand.Rand, n int) []uint16 {
	h := make([]uint16, n)
	for i := range h {
		h[i] = quant.F32ToF16(float32(r.NormFloat64()))
	}
	return h
}

// spans cuts the rows at the given positions. Every piece is a copy of its own, so that
// reading past one shows.
func (c *attnCase) spans(cuts ...int) []Span {
	row := c.a.KVHeads * c.a.HeadDim
	var out []Span
	from := 0
	for _, to := range append(cuts, c.pos0+c.n) {
		out = append(out, Span{K: append([]uint16(nil), c.k[from*row:to*row]...), V: append([]uint16(nil), c.v[from*row:to*row]...), Len: to - from})
		from = to
	}
	return out
}

func (c *attnCase) run(t interface{ Fatal(...any) }, p *Pool, spans []Span) []float32 {
	out := make([]float32, len(c.q))
	if err := c.a.Run(p, []AttnSeq{{Q: c.q, Out: out, N: c.n, Pos0: c.pos0, Spans: spans}}); err != nil {
		t.Fatal(err)
	}
	return out
}

// naive is softmax(scale q k) v in float64, straight from the definition.
func (c *attnCase) naive() []float64 {
	a := &c.a
	row, group := a.KVHeads*a.HeadDim, a.Heads/a.KVHeads
	out := make([]float64, len(c.q))
	for t := range c.n {
		for h := range a.Heads {
			q := c.q[(t*a.Heads+h)*a.HeadDim:][:a.HeadDim]
			scores, top := make([]float64, c.pos0+t+1), math.Inf(-1)
			for j := range scores {
				for d, x := range q {
					scores[j] += float64(x) * float64(quant.F16ToF32(c.k[j*row+h/group*a.HeadDim+d]))
				}
				scores[j] *= float64(a.Scale)
				top = max(top, scores[j])
			}
			sum := 0.0
			for j := range scores {
				scores[j] = math.Exp(scores[j] - top)
				sum += scores[j]
			}
			for d := range a.HeadDim {
				o := 0.0
				for j, p := range scores {
					o += p * float64(quant.F16ToF32(c.v[j*row+h/group*a.HeadDim+d]))
				}
				out[(t*a.Heads+h)*a.HeadDim+d] = o / sum
			}
		}
	}
	return out
}

func TestAttentionAgainstFloat64(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		p := NewPool(2)
		defer p.Close()
		r := rand.New(rand.NewPCG(1, 2))
		for _, tc := range []struct{ heads, kvHeads, dim, n, pos0 int }{
			{1, 1, 64, 1, 0}, {2, 1, 64, 1, 255}, {4, 2, 128, 1, 700}, {3, 1, 96, 1, 300}, {7, 1, 64, 1, 256},
			{4, 4, 80, 3, 254}, {8, 2, 64, 2, 600}, {2, 1, 128, 40, 0}, {2, 2, 64, 33, 250}, {6, 2, 96, 13, 511},
			{2, 1, 256, 9, 20}, {4, 1, 8, 5, 30}, {2, 1, 72, 20, 100}, {5, 1, 48, 12, 3},
		} {
			c := newAttnCase(r, tc.heads, tc.kvHeads, tc.dim, tc.n, tc.pos0)
			got, want := c.run(t, p, c.spans()), c.naive()
			worst := 0.0
			for i := range got {
				if d := math.Abs(float64(got[i]) - want[i]); !(d <= worst) {
					worst = d
				}
			}
			if !(worst < 1e-5) { // outputs are about 1, and smaller the more positions
				t.Errorf("%+v: off by %g", tc, worst)
			}
		}
	})
}

func sameBits(a, b []float32) error {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return fmt.Errorf("element %d of %d: %g (%#x) and %g (%#x)", i, len(a), a[i], math.Float32bits(a[i]), b[i], math.Float32bits(b[i]))
		}
	}
	return nil
}

// TestAttentionInvariance: one result, whatever the spans, the batch, the number of
// threads and the implementation.
func TestAttentionInvariance(t *testing.T) {
	p1, p3 := NewPool(1), NewPool(3)
	defer p1.Close()
	defer p3.Close()
	before := Active()
	defer Use(before)
	rapid.Check(t, func(t *rapid.T) {
		kvHeads := rapid.IntRange(1, 3).Draw(t, "kvHeads")
		heads := kvHeads * rapid.IntRange(1, 5).Draw(t, "group")
		dim := rapid.SampledFrom([]int{8, 16, 32, 48, 64, 96, 128}).Draw(t, "dim")
		n := rapid.OneOf(rapid.IntRange(1, 4), rapid.IntRange(1, 60)).Draw(t, "n")
		pos0 := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(200, 300), rapid.IntRange(500, 520)).Draw(t, "pos0")
		// Plain Go is slow: no more than a few million products.
		n = min(n, max(1, 1_000_000/(heads*dim*(pos0+1))))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		c := newAttnCase(r, heads, kvHeads, dim, n, pos0)
		if err := Use("generic"); err != nil {
			t.Fatal(err)
		}
		want := c.run(t, p1, c.spans())

		var cuts []int
		for at := 0; at < pos0+n; {
			at += rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(20, 300)).Draw(t, "cut")
			if at < pos0+n {
				cuts = append(cuts, at)
			}
		}
		spans := c.spans(cuts...)
		for _, name := range Implementations() {
			if err := Use(name); err != nil {
				t.Fatal(err)
			}
			for _, p := range []*Pool{p1, p3} {
				if err := sameBits(c.run(t, p, spans), want); err != nil {
					t.Fatalf("%s, %d workers, cuts %v: %v", name, p.Workers(), cuts, err)
				}
			}
			// The same queries in several sequences of one call, some with spans
			// that go on beyond what they need.
			split := rapid.IntRange(0, n).Draw(t, "split")
			out := make([]float32, len(want))
			row := heads * dim
			var seqs []AttnSeq
			if split > 0 {
				seqs = append(seqs, AttnSeq{Q: c.q[:split*row], Out: out[:split*row], N: split, Pos0: pos0, Spans: spans})
			}
			if split < n {
				seqs = append(seqs, AttnSeq{Q: c.q[split*row:], Out: out[split*row:], N: n - split, Pos0: pos0 + split, Spans: spans})
			}
			if err := c.a.Run(p3, seqs); err != nil {
				t.Fatal(err)
			}
			if err := sameBits(out, want); err != nil {
				t.Fatalf("%s, split at %d of %d: %v", name, split, n, err)
			}
		}
	})
}

func TestAttentionErrors(t *testing.T) {
	p := NewPool(1)
	defer p.Close()
	c := newAttnCase(rand.New(rand.NewPCG(1, 1)), 2, 1, 16, 2, 3)
	good := func() (Attention, AttnSeq) {
		return Attention{Heads: 2, KVHeads: 1, HeadDim: 16, Scale: 1}, AttnSeq{Q: c.q, Out: make([]float32, len(c.q)), N: 2, Pos0: 3, Spans: c.spans(2)}
	}
	for name, spoil := range map[string]func(*Attention, *AttnSeq){
		"":                 func(*Attention, *AttnSeq) {},
		"no heads":         func(a *Attention, _ *AttnSeq) { a.Heads = 0 },
		"odd group":        func(a *Attention, _ *AttnSeq) { a.Heads, a.KVHeads = 3, 2 },
		"head size":        func(a *Attention, _ *AttnSeq) { a.HeadDim = 12 },
		"no queries":       func(_ *Attention, s *AttnSeq) { s.N = 0 },
		"negative pos":     func(_ *Attention, s *AttnSeq) { s.Pos0 = -1 },
		"short q":          func(_ *Attention, s *AttnSeq) { s.Q = s.Q[1:] },
		"short out":        func(_ *Attention, s *AttnSeq) { s.Out = s.Out[1:] },
		"missing position": func(_ *Attention, s *AttnSeq) { s.Spans = s.Spans[:1] },
		"short span":       func(_ *Attention, s *AttnSeq) { s.Spans[1].V = s.Spans[1].V[1:] },
	} {
		a, s := good()
		spoil(&a, &s)
		if err := a.Run(p, []AttnSeq{s}); (err != nil) != (name != "") {
			t.Errorf("%q: error %v", name, err)
		}
	}
}

func TestAttentionAllocatesNothing(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	r := rand.New(rand.NewPCG(3, 3))
	decode, prefill := newAttnCase(r, 4, 2, 64, 1, 700), newAttnCase(r, 4, 2, 64, 50, 300)
	out := make([]float32, len(prefill.q))
	seqs := []AttnSeq{
		{Q: decode.q, Out: out, N: 1, Pos0: 700, Spans: decode.spans(256, 512)},
		{Q: prefill.q, Out: out, N: 50, Pos0: 300, Spans: prefill.spans(256)},
	}
	run := func() {
		if err := decode.a.Run(p, seqs); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if n := testing.AllocsPerRun(20, run); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}
