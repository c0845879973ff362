package kernel

// Precise multiplies activations with one matrix more exactly than MatMul does with
// quantized weights: the activations are taken as the sum of two quantized rows, the
// usual one and what it left over, which makes about 15 bits of them. It costs no
// second pass over the weights, so for few tokens, when memory is the limit, it is
// free; the output matrix, which decides between near equal logits, is worth it.
//
// The zero value is ready. One caller at a time.
type Precise struct {
	acts Acts
	x    []float32 // [2n][cols]: a token's activations, then what is left of them
	both []float32 // [2n][Rows]
	q    []actBlock
}

// MatMul computes o for the n rows of cols activations in x. Float weights need no
// second row: they are multiplied as by MatMul.
func (m *Precise) MatMul(p *Pool, x []float32, n, cols int, o Out) error {
	if n == 0 || !usesInt8(o.W.Type) {
		m.acts.Set(x, n, cols)
		return MatMul(p, &m.acts, o)
	}
	m.x, m.both, m.q = sized(m.x, 2*n*cols), sized(m.both, 2*n*o.W.Rows), sized(m.q, cols/blockCols)
	for t := range n {
		row := m.x[2*t*cols : (2*t+1)*cols]
		copy(row, x[t*cols:(t+1)*cols])
		m.leftOver(m.x[(2*t+1)*cols:(2*t+2)*cols], row)
	}
	m.acts.Set(m.x, 2*n, cols)
	if err := MatMul(p, &m.acts, Out{Dst: m.both, LD: o.W.Rows, W: o.W}); err != nil {
		return err
	}
	for t := range n {
		dst := o.Dst[t*o.LD : t*o.LD+o.W.Rows]
		copy(dst, m.both[2*t*o.W.Rows:(2*t+1)*o.W.Rows])
		Add(dst, m.both[(2*t+1)*o.W.Rows:(2*t+2)*o.W.Rows])
	}
	return nil
}

// leftOver is x less its quantized form.
func (m *Precise) leftOver(dst, x []float32) {
	quantizeActs(m.q, x)
	for b := range m.q {
		for i, q := range m.q[b].q {
			j := b*blockCols + i
			dst[j] = x[j] - float32(float32(q)*m.q[b].d)
		}
	}
}
