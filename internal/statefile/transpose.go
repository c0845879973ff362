package statefile

import (
	"encoding/binary"

	"baton/internal/kv"
)

// transposeBytes is about how much of a transposed matrix is in memory at a time.
const transposeBytes = 1 << 20

// readTransposed reads the transposed V rows of a layer, which llama.cpp has without
// flash attention: all cells' first element, then all cells' second, and so on.
func (c *content) readTransposed(s *stream, t *tensor, cells []kv.Run) error {
	n, width := len(c.tokens), t.rowBytes/2
	piece := min(max(1, transposeBytes/(2*n)), width)
	buf := make([]byte, 2*n*piece)
	for first := 0; first < width; first += piece {
		elems := min(piece, width-first)
		b := buf[:2*n*elems]
		if err := s.add(b); err != nil {
			return err
		}
		if err := s.sync(); err != nil {
			return err
		}
		i := 0
		for _, r := range cells {
			rows := t.rows(r)
			for cell := range r.Len {
				row := rows[cell*width+first:][:elems]
				for e := range row {
					row[e] = binary.LittleEndian.Uint16(b[2*(e*n+i):])
				}
				i++
			}
		}
	}
	return nil
}
