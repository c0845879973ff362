package kernel

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// Lengths around a block, and starts that are not aligned.
func TestReadSum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 4*readBlock+64)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	forEachImpl(t, func(t *testing.T) {
		for _, start := range []int{0, 1, 32} {
			for _, n := range []int{0, 1, 7, 8, 9, 63, readBlock - 1, readBlock, readBlock + 1, 3*readBlock + 40, 4 * readBlock} {
				var want uint64
				for i, b := range data[start : start+n] {
					want += uint64(b) << (8 * (i % 8))
				}
				if got := ReadSum(data[start : start+n]); got != want {
					t.Errorf("%d bytes from %d: %#x, want %#x", n, start, got, want)
				}
			}
		}
	})
}

// BenchmarkReadSum reads memory beyond every cache: the rate is that of memory.
func BenchmarkReadSum(b *testing.B) {
	data := make([]byte, 512<<20)
	for i := 0; i < len(data); i += 4096 {
		binary.LittleEndian.PutUint64(data[i:], uint64(i))
	}
	const piece = 256 << 10
	for _, workers := range []int{1, 2} {
		b.Run(map[int]string{1: "1worker", 2: "2workers"}[workers], func(b *testing.B) {
			p := NewPool(workers)
			defer p.Close()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if err := p.Run(len(data)/piece, func(i, _ int) { ReadSum(data[i*piece : (i+1)*piece]) }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
