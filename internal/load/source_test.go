package load_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"baton/internal/demo"
	"baton/internal/load"
)

// A source is the same file for whoever gets its descriptor, whatever its name leads to.
func TestSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.gguf")
	if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, ""} {
		s, err := load.OpenSource(name)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if name != "" {
			if err := os.WriteFile(path+".new", []byte("something else"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}
		fd, err := unix.Dup(int(s.File().Fd()))
		if err != nil {
			t.Fatal(err)
		}
		child, err := load.InheritSource(fd, name)
		if err != nil {
			t.Fatal(err)
		}
		defer child.Close()
		whole, err := child.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer whole.Close()
		text, err := s.OpenText()
		if err != nil {
			t.Fatal(err)
		}
		defer text.Close()
		if whole.Model == nil || whole.Model.Vocab != text.Vocab.Size() || text.Model != nil {
			t.Errorf("%q: model %v, %d tokens; text alone: model %v, %d tokens", name, whole.Model != nil, whole.Vocab.Size(), text.Model != nil, text.Vocab.Size())
		}
		if whole.Name != text.Name || whole.Path != name || text.Path != name {
			t.Errorf("%q: %q at %q, %q at %q", name, whole.Name, whole.Path, text.Name, text.Path)
		}
	}
}
