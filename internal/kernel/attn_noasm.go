//go:build !amd64 || purego

package kernel

func scoresRows(s, q []float32, rows int, k []*uint16, off, dim int, _ ahead) {
	scoresRowsGeneric(s, q, rows, k, off, dim)
}

func weightedRows(o, p []float32, rows int, v []*uint16, off, dim int, _ ahead) {
	weightedRowsGeneric(o, p, rows, v, off, dim)
}

func packK(kp []float32, k []*uint16, off, dim int) { packKGeneric(kp, k, off, dim) }
func packV(vp []float32, v []*uint16, off, dim int) { packVGeneric(vp, v, off, dim) }

func scoresPanel(s, q, kp []float32, dim int) { scoresPanelGeneric(s, q, kp, dim) }

func weightedPanel(o, p, vp []float32, n, dim int, fa, fb *[blockRows]float32) {
	weightedPanelGeneric(o, p, vp, n, dim, fa, fb)
}

func exp2Sum(s []float32) (m, l float32)         { return exp2SumGeneric(s) }
func mergeRow(o, tile []float32, fa, fb float32) { mergeRowGeneric(o, tile, fa, fb) }
