package rundir

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// short is a directory whose path leaves room for a socket's name.
func short(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp("", "rd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(path) })
	return path
}

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode()
}

func TestFreshIsPrivateAndRemoved(t *testing.T) {
	base := short(t)
	t.Setenv("XDG_RUNTIME_DIR", base)
	d, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(d.Path()) != base {
		t.Errorf("made %s, want it in %s", d.Path(), base)
	}
	if got := mode(t, d.Path()); got != fs.ModeDir|0o700 {
		t.Errorf("mode %v", got)
	}
	if _, err := d.Listen("s"); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(d.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

// A runtime directory that cannot be written to is no reason to fail.
func TestFreshElsewhere(t *testing.T) {
	tmp := short(t)
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(tmp, "not-there"))
	t.Setenv("TMPDIR", tmp)
	if d := open(t, ""); filepath.Dir(d.Path()) != tmp {
		t.Errorf("made %s, want it in %s", d.Path(), tmp)
	}
}

func TestGivenStays(t *testing.T) {
	path := filepath.Join(short(t), "run")
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if got := mode(t, path); got != fs.ModeDir|0o700 {
		t.Errorf("mode %v", got)
	}
}

func TestRefusedDirectories(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(path string) error
		says string
	}{
		{"others may enter", func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o701)) }, "0701"},
		{"group may read", func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o740)) }, "0740"},
		{"a file", func(p string) error { return os.WriteFile(p, nil, 0o600) }, "no directory"},
		{"a link", func(p string) error { return errors.Join(os.Mkdir(p+"-real", 0o700), os.Symlink(p+"-real", p)) }, "no directory"},
		{"no parent", func(string) error { return nil }, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(short(t), "run")
			if c.name == "no parent" {
				path = filepath.Join(path, "run")
			}
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one with %q", err, c.says)
			}
		})
	}
}

func TestForeignDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	path := short(t)
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Skipf("cannot give a directory away: %v", err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("got %v", err)
	}
}

func TestListen(t *testing.T) {
	old := unix.Umask(0) // whatever the umask, the socket is private
	defer unix.Umask(old)
	d := open(t, short(t))
	l, err := d.Listen("s")
	if err != nil {
		t.Fatal(err)
	}
	if got := mode(t, d.Socket("s")); got != fs.ModeSocket|0o600 {
		t.Errorf("mode %v", got)
	}
	if _, err := d.Listen("s"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second listener: %v", err)
	}
	c, err := net.Dial("unix", d.Socket("s"))
	if err != nil {
		t.Fatalf("the first one does not answer any more: %v", err)
	}
	c.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(d.Socket("s")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the closed socket is still there: %v", err)
	}
}

// leaveDead makes a socket that nobody listens on, as a killed process does.
func leaveDead(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestDeadSocketIsReplaced(t *testing.T) {
	d := open(t, short(t))
	leaveDead(t, d.Socket("s"))
	l, err := d.Listen("s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", d.Socket("s"))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// Of many that find a dead socket at once, one gets it, and its socket stays.
func TestOneReplacesADeadSocket(t *testing.T) {
	path := short(t)
	leaveDead(t, filepath.Join(path, "s"))
	var listeners atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		d := open(t, path)
		wg.Go(func() {
			if l, err := d.Listen("s"); err == nil {
				listeners.Add(1)
				t.Cleanup(func() { l.Close() })
			}
		})
	}
	wg.Wait()
	if n := listeners.Load(); n != 1 {
		t.Errorf("%d got the socket", n)
	}
	c, err := net.Dial("unix", filepath.Join(path, "s"))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestRefusedSockets(t *testing.T) {
	d := open(t, short(t))
	if err := os.WriteFile(d.Socket("file"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Listen("file"); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("over a file: %v", err)
	}
	if b, err := os.ReadFile(d.Socket("file")); err != nil || string(b) != "precious" {
		t.Errorf("the file is now %q, %v", b, err)
	}
	if _, err := d.Listen(strings.Repeat("n", 120)); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("a long name: %v", err)
	}
}

// The directory of a process that was killed is removed by the next one that makes one
// there; nothing else is.
func TestDeadDirectoriesAreRemoved(t *testing.T) {
	base := short(t)
	t.Setenv("XDG_RUNTIME_DIR", base)
	killed, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := killed.Listen("s"); err != nil {
		t.Fatal(err)
	}
	living := open(t, "")
	killed.alive.Close() // as the system does for a process that ends
	killed.file.Close()
	other := filepath.Join(base, "baton-notes") // somebody's own
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	last := open(t, "")
	for path, want := range map[string]bool{killed.Path(): false, living.Path(): true, other: true, last.Path(): true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
}

// Processes that start at the same time do not take each other's directories for dead.
func TestManyFreshAtOnce(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", short(t))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			d, err := Open("")
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Lstat(filepath.Join(d.Path(), aliveFile)); err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// Only one process at a time has a directory to itself.
func TestClaim(t *testing.T) {
	path := short(t)
	first, second := open(t, path), open(t, path)
	if err := first.Claim(); err != nil {
		t.Fatal(err)
	}
	if err := second.Claim(); err == nil || !strings.Contains(err.Error(), "in use by another server") {
		t.Errorf("a second claim: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.Claim(); err != nil {
		t.Errorf("after the first has gone: %v", err)
	}
}
