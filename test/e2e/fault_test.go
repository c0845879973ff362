package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"baton/internal/demo"
)

// A model file that is truncated while it is served makes requests fail with a reason.
// The server lives, and still ends as it should.
func TestModelTruncatedWhileServing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "-m", path)
	s.mustPost(t, "/completion", map[string]any{"prompt": "Once upon a time", "n_predict": 4})
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		status, body := s.post(t, "/completion", map[string]any{"prompt": "There were three sons", "n_predict": 4})
		if status != 500 || !strings.Contains(body.str("error", "message"), "truncated") {
			t.Fatalf("status %d, %v", status, body)
		}
		s.alive(t)
	}
	s.stop(t)
}
