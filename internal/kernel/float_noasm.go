//go:build !amd64 || purego

package kernel

func floatRows(dst []float32, ld int, w *Matrix, x []float32, n, r0, r1 int, s *scratch) {
	floatRowsGeneric(dst, ld, w, x, n, r0, r1, s)
}
