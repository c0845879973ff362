package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"

	"baton/internal/gguf"
)

// Fingerprint names the model's weights: the SHA-256, in hexadecimal digits, of its
// shape, of every tensor's name, type and dimensions, and of 64 bytes from the start,
// the middle and the end of each. Two files with one fingerprint may still differ where
// nobody looked; it tells models apart, it does not prove that a file is whole (baton
// model verify does). It takes milliseconds.
func (m *Model) Fingerprint() (string, error) {
	h := sha256.New()
	c := m.Config
	c.Name = "" // a name changes no result
	fmt.Fprintf(h, "%+v\n", c)
	err := gguf.Guard(func() error {
		for _, t := range m.file.Tensors() {
			fmt.Fprintf(h, "%s %d %v\n", t.Name, t.Type, t.Dims)
			sample(h, t.Data)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("model: fingerprint: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func sample(h io.Writer, data []byte) {
	const n = 64
	_ = binary.Write(h, binary.LittleEndian, uint64(len(data))) // a hash takes everything
	for _, at := range []int{0, len(data)/2 - n/2, len(data) - n} {
		at = max(0, at)
		_, _ = h.Write(data[at:min(len(data), at+n)])
	}
}

// HandoffParams is what a process that fills KV cells for another must have in common
// with it, beside the layout of the cells: it goes into the layout's hash.
func (m *Model) HandoffParams() (map[string]string, error) {
	f, err := m.Fingerprint()
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"model": f,
		"arch":  m.Arch,
		"rope":  fmt.Sprintf("%+v", m.Rope),
	}, nil
}
