package kernel

import (
	"math"
	"unsafe"

	"baton/internal/quant"
)

// The plain-Go twins of the attention kernels. Attention states their order.

// rowPart is the part of a row that belongs to one head.
func rowPart(row *uint16, off, dim int) []uint16 {
	return unsafe.Slice(row, off+dim)[off:]
}

// scoresRowsGeneric computes the scores of len(k) = 16 positions for some query rows:
// s[r*attnTileLen+j] = q[r] · k[j].
func scoresRowsGeneric(s, q []float32, rows int, k []*uint16, off, dim int) {
	for j, row := range k {
		key := rowPart(row, off, dim)
		for r := range rows {
			var lane [4]float32
			for d, x := range q[r*dim:][:dim] {
				lane[d&3] = fma32(x, quant.F16ToF32(key[d]), lane[d&3])
			}
			s[r*attnTileLen+j] = (lane[0] + lane[2]) + (lane[1] + lane[3])
		}
	}
}

// weightedRowsGeneric adds the weighted V rows: o[r][d] = fma(p[r][j], v[j][d], o[r][d])
// in the order of j.
func weightedRowsGeneric(o, p []float32, rows int, v []*uint16, off, dim int) {
	for j, row := range v {
		val := rowPart(row, off, dim)
		for r := range rows {
			w, out := p[r*attnTileLen+j], o[r*dim:][:dim]
			for d := range out {
				out[d] = fma32(w, quant.F16ToF32(val[d]), out[d])
			}
		}
	}
}

// packKGeneric writes the K rows, transposed, as kp[block][d][panelCols].
func packKGeneric(kp []float32, k []*uint16, off, dim int) {
	for j, row := range k {
		block := kp[j/panelCols*panelCols*dim:]
		for d, h := range rowPart(row, off, dim) {
			block[d*panelCols+j%panelCols] = quant.F16ToF32(h)
		}
	}
}

// packVGeneric writes the V rows as vp[j][d].
func packVGeneric(vp []float32, v []*uint16, off, dim int) {
	for j, row := range v {
		for d, h := range rowPart(row, off, dim) {
			vp[j*dim+d] = quant.F16ToF32(h)
		}
	}
}

// scoresPanelGeneric computes the scores of blockRows query rows and panelCols
// positions.
func scoresPanelGeneric(s, q, kp []float32, dim int) {
	for r := range blockRows {
		var lane [4][panelCols]float32
		for d, x := range q[r*dim:][:dim] {
			l := &lane[d&3]
			for j, y := range kp[d*panelCols:][:panelCols] {
				l[j] = fma32(x, y, l[j])
			}
		}
		for j := range panelCols {
			s[r*attnTileLen+j] = (lane[0][j] + lane[2][j]) + (lane[1][j] + lane[3][j])
		}
	}
}

// weightedPanelGeneric merges the weighted sum of n rows of V into blockRows outputs:
// o[r] = fma(o[r], fa[r], sum*fb[r]).
func weightedPanelGeneric(o, p, vp []float32, n, dim int, fa, fb *[blockRows]float32) {
	for r := range blockRows {
		for d := range dim {
			var sum float32
			for j := range n {
				sum = fma32(p[r*attnTileLen+j], vp[j*dim+d], sum)
			}
			o[r*dim+d] = fma32(o[r*dim+d], fa[r], float32(sum*fb[r]))
		}
	}
}

// exp2SumGeneric replaces s, whose length is a multiple of 16, by 2^(s - max) and
// returns the maximum and the sum.
func exp2SumGeneric(s []float32) (m, l float32) {
	m = float32(math.Inf(-1))
	for _, v := range s {
		if v > m {
			m = v
		}
	}
	var sum lanes
	for i, v := range s {
		s[i] = exp2neg(v - m)
		sum[i&15] += s[i]
	}
	return m, sum.reduceSum()
}

// mergeRowGeneric: o = fma(o, fa, tile*fb).
func mergeRowGeneric(o, tile []float32, fa, fb float32) {
	for d, v := range tile {
		o[d] = fma32(o[d], fa, float32(v*fb))
	}
}
