package kernel

import "math"

// blockCols is the number of columns that share one activation scale. Every weight
// type's row is a whole number of such blocks.
const blockCols = 32

// tinyAct is the magnitude below which a whole block of activations counts as zero:
// the reciprocal of its scale would come near float32's limit.
const tinyAct = 0x1p-100

// An actBlock is 32 activations of one token, quantized to q*d, with what the products
// need to know of them: 64 bytes, one cache line. Weights are stored with an offset,
// since VPDPBUSD takes unsigned ones; the sums undo it.
//
// The assembly knows this layout.
type actBlock struct {
	q    [blockCols]int8
	d    float32  // scale: x is about q*d
	sd   float32  // d times the sum of q, for the minima of Q4_K
	n128 int32    // -128 times the sum of q, for Q8_0
	n8   int32    // -8 times the sum of q, for Q4_0
	n32  [2]int32 // -32 times the sum of each half of q, for Q6_K
	_    [8]byte
}

// Acts holds the activations of a micro-batch, the right-hand side of MatMul, together
// with their quantized form and the scratch memory of the products. The quantized form
// is made once, by the first product that needs it. An Acts serves one caller at a
// time and may be used again and again; it then allocates nothing.
type Acts struct {
	x       []float32 // n*cols, row-major, not ours
	n, cols int

	q      []actBlock // n rows of cols/32 blocks, and one row more if n is odd
	fresh  bool       // q belongs to x
	outs   []Out      // of the running MatMul
	grids  []grid
	worker []scratch
	rows   int // quantized by one task
	// The task functions, bound once: a method value allocates.
	quantize, multiply func(task, worker int)
}

// Set makes x, n rows (tokens) of cols numbers, the activations. x is kept, not copied,
// and must stay as it is while products use it. Set must be called again after x has
// changed.
func (a *Acts) Set(x []float32, n, cols int) {
	a.x, a.n, a.cols, a.fresh = x, n, cols, false
}

// Quantize makes the quantized form now, which otherwise the first product does that
// needs it.
func (a *Acts) Quantize(p *Pool) error { return a.prepare(p) }

// prepare quantizes the activations unless that was done since Set.
func (a *Acts) prepare(p *Pool) error {
	if a.fresh {
		return nil
	}
	blocks := a.cols / blockCols
	// Kernels take an odd number of tokens as one more; that row may hold anything.
	a.q = sized(a.q, (a.n+a.n&1)*blocks)
	// A few microseconds of work each, so that a single token is done by the caller.
	a.rows = max(1, 512/blocks)
	tasks := (a.n + a.rows - 1) / a.rows
	if a.quantize == nil {
		a.quantize = a.quantizeTask
	}
	if err := p.Run(tasks, a.quantize); err != nil {
		return err
	}
	a.fresh = true
	return nil
}

func (a *Acts) quantizeTask(task, _ int) {
	t0 := task * a.rows
	t1 := min(t0+a.rows, a.n)
	blocks := a.cols / blockCols
	quantizeActs(a.q[t0*blocks:t1*blocks], a.x[t0*a.cols:t1*a.cols])
}

// quantizeActs quantizes x, blockCols numbers for each block of dst.
var quantizeActs = quantizeActsGeneric

// quantizeActsGeneric: with amax the largest magnitude of the block, d = amax/127 and
// q = x*(127/amax), both quotients and the product rounded to float32, then to the
// nearest integer, ties to even. A block below tinyAct is zero. The scale of a block
// with an infinity or a NaN is a NaN, so that all products with it show it; q is -128
// there where x*(127/amax) is a NaN.
func quantizeActsGeneric(dst []actBlock, x []float32) {
	for i := range dst {
		a, x := &dst[i], x[i*blockCols:][:blockCols]
		amax := uint32(0)
		for _, v := range x {
			amax = max(amax, math.Float32bits(v)&^(1<<31)) // orders NaN above infinity
		}
		m := math.Float32frombits(amax)
		if m < tinyAct {
			*a = actBlock{}
			continue
		}
		a.d = m/127 + m*0 // m*0 is 0, or NaN if m is not finite
		inv := 127 / m
		var sum [2]int32
		for j, v := range x {
			r := math.RoundToEven(float64(v * inv))
			q := int32(-128)
			if !math.IsNaN(r) {
				q = int32(r)
			}
			a.q[j] = int8(q)
			sum[j/16] += q
		}
		a.setSums(sum)
	}
}

func (a *actBlock) setSums(sum [2]int32) {
	all := sum[0] + sum[1]
	a.sd = float32(all) * a.d
	a.n128 = -128 * all
	a.n8 = -8 * all
	a.n32 = [2]int32{-32 * sum[0], -32 * sum[1]}
}
