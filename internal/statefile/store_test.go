package statefile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"baton/internal/kv"
)

func kindOf(err error) (Kind, bool) {
	var e *Error
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.Kind, true
}

func TestNames(t *testing.T) {
	p := newPool(t, 8)
	s := newSequence(t, p, 3, 1)
	parent := t.TempDir()
	dir := filepath.Join(parent, "states")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	st := openStore(t, dir)
	for _, name := range []string{
		"", ".", "..", "...", "../x", "a/b", "/etc/passwd", "a\x00", "a b", "a\n", "ä", "a\xff", "~tmp", "a\\b", "a:b",
		strings.Repeat("a", 129), strings.Repeat("a", 300), "a.sum", "a.SUM", ".sum",
	} {
		_, err := st.Save(t.Context(), name, testModel, stateOf(p, s))
		if k, ok := kindOf(err); !ok || k != BadName {
			t.Errorf("save %q: %v, want a bad name", name, err)
		}
		if _, _, err = restore(t, st, name, p); err == nil {
			t.Errorf("restore %q: no error", name)
		} else if k, ok := kindOf(err); !ok || k != BadName {
			t.Errorf("restore %q: %v, want a bad name", name, err)
		}
		if k, ok := kindOf(st.Erase(name)); !ok || k != BadName {
			t.Errorf("erase %q: want a bad name", name)
		}
	}
	if names := list(t, dir); len(names) > 0 {
		t.Errorf("directory has %q", names)
	}
	if names := list(t, parent); !slices.Equal(names, []string{"states"}) {
		t.Errorf("its parent has %q", names)
	}
	for _, name := range []string{"a", "A-b_c.9", ".a", "..a", strings.Repeat("a", 128), "-rf", "sum"} {
		mustSave(t, st, name, p, s)
		if _, _, err := restore(t, st, name, p); err != nil {
			t.Error(err)
		}
		if err := st.Erase(name); err != nil {
			t.Error(err)
		}
	}
	if names := list(t, dir); len(names) > 0 {
		t.Errorf("directory has %q after erasing", names)
	}
}

// Links, directories and pipes are neither followed, nor read, nor replaced.
func TestOnlyRegularFiles(t *testing.T) {
	p := newPool(t, 8)
	s := newSequence(t, p, 3, 1)
	outside := filepath.Join(t.TempDir(), "outside")
	put(t, filepath.Dir(outside), "outside", []byte("untouched"))
	st, dir := newStore(t)
	mustSave(t, st, "real", p, s)
	for name, make := range map[string]func(path string) error{
		"link out":  func(path string) error { return os.Symlink(outside, path) },
		"link in":   func(path string) error { return os.Symlink("real", path) },
		"dangling":  func(path string) error { return os.Symlink("nothing", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		for _, file := range []string{"a", "a.sum"} {
			t.Run(name+" as "+file, func(t *testing.T) {
				path := filepath.Join(dir, file)
				if err := make(path); err != nil {
					t.Fatal(err)
				}
				if file == "a.sum" { // a good file with a bad sum
					if err := os.Link(filepath.Join(dir, "real"), filepath.Join(dir, "a")); err != nil {
						t.Fatal(err)
					}
				}
				_, err := st.Save(t.Context(), "a", testModel, stateOf(p, s))
				if k, ok := kindOf(err); !ok || k != BadName {
					t.Errorf("save: %v, want a refusal", err)
				}
				_, _, err = restore(t, st, "a", p)
				if k, ok := kindOf(err); !ok || k != BadName {
					t.Errorf("restore: %v, want a refusal", err)
				}
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("it is gone: %v", err)
				}
				_ = os.Remove(filepath.Join(dir, "a"))
				_ = os.Remove(filepath.Join(dir, "a.sum"))
			})
		}
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "untouched" {
		t.Errorf("the file outside: %q, %v", data, err)
	}
	if names := list(t, dir); !slices.Equal(names, []string{"real", "real.sum"}) {
		t.Errorf("directory has %q", names)
	}
}

func TestNotFound(t *testing.T) {
	st, _ := newStore(t)
	_, _, err := restore(t, st, "a", newPool(t, 8))
	if k, ok := kindOf(err); !ok || k != NotFound {
		t.Errorf("restore: %v", err)
	}
	if k, ok := kindOf(st.Erase("a")); !ok || k != NotFound {
		t.Errorf("erase: want not found")
	}
}

func TestOtherModel(t *testing.T) {
	p := newPool(t, 8)
	st, _ := newStore(t)
	if _, err := st.Save(t.Context(), "a", elsewhere, stateOf(p, newSequence(t, p, 3, 1))); err != nil {
		t.Fatal(err)
	}
	_, _, err := restore(t, st, "a", p)
	var e *Error
	if !errors.As(err, &e) || e.Kind != Unfit || e.Field != "model fingerprint" || e.Found != elsewhere || e.Expected != testModel {
		t.Errorf("error %v", err)
	}
}

func TestSaveRefuses(t *testing.T) {
	p := newPool(t, 8)
	s := newSequence(t, p, 3, 1)
	st, dir := newStore(t)
	empty := stateOf(p, p.NewSequence())
	short := stateOf(p, s)
	short.Tokens = short.Tokens[:2]
	for name, c := range map[string]struct {
		model string
		state State
	}{
		"empty":           {testModel, empty},
		"cells too many":  {testModel, short},
		"no fingerprint":  {"", stateOf(p, s)},
		"two words of it": {testModel[:63] + " ", stateOf(p, s)},
	} {
		if _, err := st.Save(t.Context(), "a", c.model, c.state); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if names := list(t, dir); len(names) > 0 {
		t.Errorf("directory has %q", names)
	}
}

// Save replaces its sum, which describes both files, before the file: if it is
// interrupted between the two, the old file is still known to be whole.
func TestInterruptedSave(t *testing.T) {
	p := newPool(t, 8)
	first, second := newSequence(t, p, 3, 1), newSequence(t, p, 4, 2)
	st, dir := newStore(t)
	mustSave(t, st, "a", p, first)
	old, err := os.ReadFile(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	mustSave(t, st, "a", p, second)
	got, info, err := restore(t, st, "a", p)
	if err != nil || !info.Verified {
		t.Fatalf("after both steps: %+v, %v", info, err)
	}
	sameCells(t, p, got, p, second)
	put(t, dir, "a", old) // as if only the first step had been made
	got, info, err = restore(t, st, "a", p)
	if err != nil || !info.Verified {
		t.Fatalf("after the first step: %+v, %v", info, err)
	}
	sameCells(t, p, got, p, first)
	mustSave(t, st, "a", p, first)
	sum, err := os.ReadFile(filepath.Join(dir, "a.sum"))
	if err != nil || strings.Count(string(sum), "\n") != 3 {
		t.Errorf("sum %q, %v, want two records", sum, err)
	}
}

// A full disk is an error that says so, and leaves the old file and nothing else.
func TestDiskFull(t *testing.T) {
	p := newPool(t, 8)
	small, large := newSequence(t, p, 3, 1), newSequence(t, p, 60, 2)
	dir := t.TempDir()
	full := smallDisk(t, dir)
	st := openStore(t, dir)
	mustSave(t, st, "a", p, small)
	restoreLimit := full()
	_, err := st.Save(t.Context(), "a", testModel, stateOf(p, large))
	_, errNew := st.Save(t.Context(), "b", testModel, stateOf(p, large))
	restoreLimit()
	for _, err := range []error{err, errNew} {
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EFBIG) {
			t.Errorf("error %v, want one of a full disk", err)
		}
	}
	if names := slices.DeleteFunc(list(t, dir), func(n string) bool { return n == "filler" }); !slices.Equal(names, []string{"a", "a.sum"}) {
		t.Errorf("directory has %q", names)
	}
	got, _, err := restore(t, st, "a", p)
	if err != nil {
		t.Fatal(err)
	}
	sameCells(t, p, got, p, small)
}

// smallDisk mounts a small file system on dir and returns a function that fills it, or,
// where that is not allowed, one that limits the size of files to about a kilobyte.
func smallDisk(t *testing.T, dir string) (fill func() (undo func())) {
	t.Helper()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k")
	if err == nil {
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		return func() func() {
			f, err := os.Create(filepath.Join(dir, "filler"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for err == nil {
				_, err = f.Write(make([]byte, 4096))
			}
			return func() { _ = os.Remove(f.Name()) }
		}
	}
	t.Logf("no mounting here (%v): a limit of the size of files stands in", err)
	return func() func() {
		var old unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1024, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestCancelled(t *testing.T) {
	p := newPool(t, 8)
	s := newSequence(t, p, 3, 1)
	st, dir := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.Save(ctx, "a", testModel, stateOf(p, s)); !errors.Is(err, context.Canceled) {
		t.Errorf("save: %v", err)
	}
	if names := list(t, dir); len(names) > 0 {
		t.Errorf("directory has %q", names)
	}
	mustSave(t, st, "a", p, s)
	target := p.NewSequence()
	defer target.Free()
	if _, err := st.Restore(ctx, "a", fitOf(p), placeIn(target)); !errors.Is(err, context.Canceled) {
		t.Errorf("restore: %v", err)
	}
}

// The error of place comes back, and so does one about cells that are too few.
func TestNoPlace(t *testing.T) {
	p := newPool(t, 8)
	st, _ := newStore(t)
	mustSave(t, st, "a", p, newSequence(t, p, 3, 1))
	none := errors.New("no room")
	if _, err := st.Restore(t.Context(), "a", fitOf(p), func([]int32) ([]kv.Run, error) { return nil, none }); !errors.Is(err, none) {
		t.Errorf("error %v", err)
	}
	if _, err := st.Restore(t.Context(), "a", fitOf(p), func([]int32) ([]kv.Run, error) { return nil, nil }); err == nil {
		t.Error("no error without cells")
	}
}

// Many may save and restore under one name: who restores gets one of the states.
func TestConcurrent(t *testing.T) {
	p := newPool(t, 8)
	seqs := []*kv.Sequence{newSequence(t, p, 9, 1), newSequence(t, p, 9, 2)} // files of one size
	st, _ := newStore(t)
	mustSave(t, st, "a", p, seqs[0])
	var targets []*kv.Sequence
	for range 2 {
		s := p.NewSequence()
		defer s.Free()
		if err := s.Append(make([]int32, 9)...); err != nil {
			t.Fatal(err)
		}
		targets = append(targets, s)
	}
	var wg sync.WaitGroup
	for _, s := range seqs {
		state := stateOf(p, s)
		wg.Go(func() {
			for range 20 {
				if _, err := st.Save(t.Context(), "a", testModel, state); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, s := range targets {
		runs := s.Runs(0, 9, nil)
		wg.Go(func() {
			for range 20 {
				info, err := st.Restore(t.Context(), "a", fitOf(p), func([]int32) ([]kv.Run, error) { return runs, nil })
				if err != nil || !info.Verified {
					t.Errorf("%+v, %v", info, err)
				}
			}
		})
	}
	wg.Wait()
}

// What a killed process left is removed when the directory is opened, once it is old.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"~old", "~new", "old"} {
		put(t, dir, name, []byte("x"))
	}
	long := time.Now().Add(-2 * staleAfter)
	for _, name := range []string{"~old", "old"} {
		if err := os.Chtimes(filepath.Join(dir, name), long, long); err != nil {
			t.Fatal(err)
		}
	}
	openStore(t, dir)
	if names := list(t, dir); !slices.Equal(names, []string{"old", "~new"}) {
		t.Errorf("directory has %q", names)
	}
	if _, err := Open(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
}
