//go:build !amd64 || purego

package kernel

// tileScratch belongs to the assembly kernels; there are none.
type tileScratch struct{}
