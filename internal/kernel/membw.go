package kernel

import "encoding/binary"

// ReadSum reads data with the widest loads there are and returns the sum of its bytes
// taken as little-endian 64-bit numbers, the last one filled up with zeros. It is the
// yardstick of everything that reads weights: it does as little as reading allows.
func ReadSum(data []byte) (sum uint64) {
	n := len(data) &^ (readBlock - 1)
	if n > 0 {
		sum = readBlocks(data[:n])
	}
	return sum + readSumGeneric(data[n:])
}

// readBlock is what one turn of readBlocks reads, in bytes.
const readBlock = 512

func readSumGeneric(data []byte) uint64 {
	var a, b, c, d uint64
	for len(data) >= 32 {
		a += binary.LittleEndian.Uint64(data)
		b += binary.LittleEndian.Uint64(data[8:])
		c += binary.LittleEndian.Uint64(data[16:])
		d += binary.LittleEndian.Uint64(data[24:])
		data = data[32:]
	}
	for ; len(data) >= 8; data = data[8:] {
		a += binary.LittleEndian.Uint64(data)
	}
	var rest [8]byte
	copy(rest[:], data)
	return a + b + c + d + binary.LittleEndian.Uint64(rest[:])
}
