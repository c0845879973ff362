package gguf_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"baton/internal/gguf"
	"baton/internal/quant"
)

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := gguf.Open(filepath.Join(dir, "none.gguf")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := gguf.Open(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("directory: %v", err)
	}
	if _, err := gguf.OpenFd(-1, "nothing"); err == nil || !strings.HasPrefix(err.Error(), "gguf: nothing: descriptor -1: ") {
		t.Errorf("bad descriptor: %v", err)
	}
}

// A file that is changed after Open cannot change metadata that has been checked.
func TestMetadataIsACopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	b := gguf.NewBuilder()
	sample(b)
	if err := b.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	osf, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer osf.Close()
	if _, err := osf.WriteAt(bytes.Repeat([]byte{0xff}, int(f.Size)), 0); err != nil {
		t.Fatal(err)
	}
	if words, _, err := f.Strings("words"); err != nil || len(words) != 3 || words[1] != "a" {
		t.Errorf("words: %q, %v", words, err)
	}
	if a, _ := f.Tensor("a"); a.Data[0] != 0xff {
		t.Errorf("tensor data is not mapped: %q", a.Data)
	}
}

// A file that is truncated after Open gives an error, not a signal.
func TestGuardCatchesTruncation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	big := make([]byte, 64<<10)
	b := gguf.NewBuilder()
	b.SetString("general.name", "big")
	b.AddTensor("big", quant.F32, []uint64{uint64(len(big)) / 4}, big)
	if err := b.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tensor, _ := f.Tensor("big")

	for name, read := range map[string]func() error{
		"byte": func() error {
			if tensor.Data[len(tensor.Data)-1] != 0 {
				return errors.New("read something else")
			}
			return nil
		},
		"copy": func() error {
			copy(make([]byte, len(tensor.Data)), tensor.Data)
			return nil
		},
	} {
		if err := os.Truncate(path, int64(f.Size)); err != nil {
			t.Fatal(err)
		}
		if err := gguf.Guard(read); err != nil {
			t.Errorf("%s, whole file: %v", name, err)
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		if err := gguf.Guard(read); !errors.Is(err, gguf.ErrFault) {
			t.Errorf("%s, truncated file: %v", name, err)
		}
	}
	if name, err := f.NeedString("general.name"); err != nil || name != "big" {
		t.Errorf("metadata after truncation: %q, %v", name, err)
	}
}

func TestGuardPassesOn(t *testing.T) {
	want := errors.New("mine")
	if err := gguf.Guard(func() error { return want }); err != want {
		t.Errorf("error: %v", err)
	}
	defer func() {
		if r := recover(); r != "mine" {
			t.Errorf("panic: %v", r)
		}
	}()
	_ = gguf.Guard(func() error { panic("mine") })
}

func TestVersion2(t *testing.T) {
	f := parsed(t, func(b *gguf.Builder) {
		sample(b)
		b.Version = 2
	})
	if f.Version != 2 {
		t.Errorf("version %d", f.Version)
	}
}

func TestAlignment(t *testing.T) {
	for _, a := range []uint32{1, 8, 4096, 64 << 10} {
		f := parsed(t, func(b *gguf.Builder) {
			b.SetUint32("general.alignment", a)
			sample(b)
		})
		if f.Alignment != uint64(a) {
			t.Errorf("alignment %d, want %d", f.Alignment, a)
		}
		for _, x := range f.Tensors() {
			if x.Offset%uint64(a) != 0 {
				t.Errorf("alignment %d: tensor %s at %d", a, x.Name, x.Offset)
			}
		}
	}
}

func TestNoTensors(t *testing.T) {
	f := parsed(t, func(b *gguf.Builder) { b.SetString("a", "b") })
	if len(f.Tensors()) != 0 || f.DataOffset != f.Size {
		t.Errorf("%d tensors, data at %d of %d", len(f.Tensors()), f.DataOffset, f.Size)
	}
}

// The header limit holds for files that are long enough for their counts.
func TestHeaderLimit(t *testing.T) {
	data := make([]byte, 300<<20) // never touched but for its start
	copy(data, "GGUF\x03\x00\x00\x00"+u64(0)+u64(1)+kv("a", 9, arr(0, 280<<20)))
	var err error
	used := allocated(func() { _, err = gguf.Parse(data, "m.gguf") })
	if err == nil || !strings.Contains(err.Error(), "the header passes the limit of 256 MiB") {
		t.Errorf("got %v", err)
	}
	if used > 1<<20 {
		t.Errorf("allocated %d bytes", used)
	}
}
