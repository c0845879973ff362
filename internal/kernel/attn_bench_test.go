package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkAttention has the shape of a layer of Qwen3-0.6B. GMAC/s counts the
// products of visible positions only, GB/s the K and V rows once.
func BenchmarkAttention(b *testing.B) {
	const heads, kvHeads, dim, block = 16, 8, 128, 256
	r := rand.New(rand.NewPCG(1, 1))
	for _, workers := range []int{1, 2} {
		p := NewPool(workers)
		defer p.Close()
		for _, bm := range []struct{ n, pos0 int }{{1, 255}, {1, 1023}, {1, 4095}, {1, 16383}, {2, 4094}, {4, 4092}, {8, 4088}, {16, 4080}, {32, 4064}, {512, 0}, {512, 1536}, {512, 8192}} {
			b.Run(fmt.Sprintf("%dworkers/n%d/pos%d", workers, bm.n, bm.pos0), func(b *testing.B) {
				// Several caches in turn, so that memory is read, as in a model.
				rows := bm.pos0 + bm.n
				copies := max(1, min(28, (256<<20)/(rows*kvHeads*dim*4)))
				c := newAttnCase(r, heads, kvHeads, dim, bm.n, 0)
				c.pos0 = bm.pos0
				k := randomHalves(r, 1<<16)
				var spans [][]Span
				for range copies {
					var s []Span
					for at := 0; at < rows; at += block {
						n := min(block, rows-at)
						kv := make([]uint16, 2*n*kvHeads*dim)
						for i := 0; i < len(kv); i += copy(kv[i:], k) {
						}
						s = append(s, Span{K: kv[:len(kv)/2], V: kv[len(kv)/2:], Len: n})
					}
					spans = append(spans, s)
				}
				seqs := []AttnSeq{{Q: c.q, Out: make([]float32, len(c.q)), N: bm.n, Pos0: bm.pos0}}
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					seqs[0].Spans = spans[i%copies]
					i++
					if err := c.a.Run(p, seqs); err != nil {
						b.Fatal(err)
					}
				}
				sec := b.Elapsed().Seconds() / float64(b.N)
				macs := 0
				for t := range bm.n {
					macs += 2 * heads * dim * (bm.pos0 + t + 1)
				}
				b.ReportMetric(float64(macs)/sec/1e9, "GMAC/s")
				b.ReportMetric(float64(rows*kvHeads*dim*4)/sec/1e9, "GB/s")
			})
		}
	}
}
