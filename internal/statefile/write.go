package statefile

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
)

// write writes the state to a new file and returns the file's hash. Rows go from the
// memory of the blocks to the file as they are.
func (s *State) write(ctx context.Context, f *os.File) (sum [sha256.Size]byte, err error) {
	if err := allocate(f, fileBytes(s.Layout, len(s.Tokens))); err != nil {
		return sum, err
	}
	w := newWriter(ctx, f)
	defer w.close()
	if err := w.add(s.header()); err != nil {
		return sum, fmt.Errorf("write: %w", err)
	}
	for _, t := range tensors(s.Layout, false) {
		if err := w.add(t.header()); err != nil {
			return sum, fmt.Errorf("write: %w", err)
		}
		for _, r := range s.Runs {
			if err := w.add(raw(t.rows(r))); err != nil {
				return sum, fmt.Errorf("write: %w", err)
			}
		}
	}
	if sum, err = w.finish(); err != nil {
		return sum, fmt.Errorf("write: %w", err)
	}
	if err := f.Sync(); err != nil {
		return sum, fmt.Errorf("write: %w", err)
	}
	return sum, nil
}
