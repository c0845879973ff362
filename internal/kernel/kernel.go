// Package kernel holds the compute kernels of the engine: matrix products over
// weights that lie as they are in a GGUF file, attention over KV blocks, and the
// vector operations between them. Every kernel exists in plain Go and, on amd64, in
// AVX2 and AVX-512 assembly; the registry picks one at start.
//
// The result for one token is a function of that token, its weights and its cache
// alone: it depends neither on which other tokens share the batch, nor on the number
// of threads, nor on where the cache's block borders fall. Kernels keep that promise
// by fixing the order of every floating-point accumulation (each states its order).
//
// The package knows nothing of models, files, sequences or requests.
package kernel

import (
	"fmt"

	"baton/internal/quant"
)

// Matrix is a weight matrix as it lies in the mapped file: Rows rows of Cols
// elements, row-major. It computes out[row] = sum over col of w[row][col] * x[col].
type Matrix struct {
	Type     quant.Type
	Rows     int
	Cols     int
	RowBytes int
	Data     []byte // Rows * RowBytes bytes, read only
}

// NewMatrix checks the sizes and returns the matrix over data, which is not copied.
func NewMatrix(t quant.Type, rows, cols int, data []byte) (Matrix, error) {
	if !t.Supported() {
		return Matrix{}, fmt.Errorf("kernel: no kernels for tensor type %s", t)
	}
	rb, err := quant.RowBytes(t, cols)
	if err != nil {
		return Matrix{}, err
	}
	if rows <= 0 || cols <= 0 || cols%32 != 0 {
		return Matrix{}, fmt.Errorf("kernel: matrix of %d rows and %d columns: both must be positive and the columns a multiple of 32", rows, cols)
	}
	if len(data) != rows*rb {
		return Matrix{}, fmt.Errorf("kernel: matrix of %d x %d %s needs %d bytes, got %d", rows, cols, t, rows*rb, len(data))
	}
	return Matrix{Type: t, Rows: rows, Cols: cols, RowBytes: rb, Data: data}, nil
}

// Row returns the bytes of row r.
func (m *Matrix) Row(r int) []byte { return m.Data[r*m.RowBytes : (r+1)*m.RowBytes] }
