//go:build !purego

package kernel

import "unsafe"

// readAVX2 and readAVX512 sum n bytes from p, a multiple of readBlock and not 0.

//go:noescape
func readAVX2(p *byte, n int) uint64

//go:noescape
func readAVX512(p *byte, n int) uint64

// readBlocks: whole blocks, at least one.
func readBlocks(data []byte) uint64 {
	switch level {
	case levelGeneric:
		return readSumGeneric(data)
	case levelAVX2:
		return readAVX2(unsafe.SliceData(data), len(data))
	}
	return readAVX512(unsafe.SliceData(data), len(data))
}
