// Package rundir makes the directory in which Baton's processes meet, and the Unix
// sockets in it. Whoever can enter the directory can use the sockets: its permissions
// are the whole protection, so they are checked and not assumed.
//
// It knows nothing of what is spoken over the sockets.
package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Dir is an open run directory.
type Dir struct {
	path  string
	file  *os.File   // of the directory, locked while a socket is made
	mu    sync.Mutex // the same between goroutines: flock holds between open files only
	fresh bool       // removed by Close
	claim *os.File   // locked: no other server uses the directory
	alive *os.File   // of a fresh one, locked as long as this process lives
}

// Open opens the directory at path, making it if it is not there. It refuses one that
// anybody but its owner, this process's user, can enter. With an empty path it makes a
// fresh one, in $XDG_RUNTIME_DIR or else the directory for temporary files, which Close
// removes. Those whose process was killed are removed by the next Open there.
func Open(path string) (*Dir, error) {
	d := &Dir{fresh: path == ""}
	var err error
	if d.fresh {
		path, d.alive, err = makeFresh()
	} else if err = os.Mkdir(path, 0o700); errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err == nil {
		d.path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("rundir: %w", err)
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func makeFresh() (string, *os.File, error) {
	// The XDG base directory specification asks to ignore a relative path.
	if base := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(base) {
		if path, alive, err := makeFreshIn(base); err == nil {
			return path, alive, nil
		}
	}
	return makeFreshIn(os.TempDir())
}

// open opens the directory itself, never one that a link leads to, and checks it.
func (d *Dir) open() error {
	fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("rundir: %s is a link or no directory, expected a directory: choose another", d.path)
	}
	if err != nil {
		return fmt.Errorf("rundir: opening %s: %w", d.path, err)
	}
	d.file = os.NewFile(uintptr(fd), d.path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("rundir: %s: %w", d.path, err)
	}
	if uid := os.Geteuid(); int(st.Uid) != uid {
		return fmt.Errorf("rundir: %s belongs to user %d, expected user %d: choose another directory", d.path, st.Uid, uid)
	}
	if mode := st.Mode & 0o777; mode&0o077 != 0 {
		return fmt.Errorf("rundir: %s has mode %#o, so that others can enter it, expected 0700: choose another directory, or chmod 700 it if nothing else needs it", d.path, mode)
	}
	return nil
}

// Path is the directory's absolute path.
func (d *Dir) Path() string { return d.path }

// Socket is the path of the socket called name.
func (d *Dir) Socket(name string) string { return filepath.Join(d.path, name) }

// maxPath is what fits in sockaddr_un.sun_path with its terminating zero (unix(7)).
const maxPath = 107

// Listen makes the Unix socket called name, with mode 0600. What a killed process has
// left there is replaced; a socket that somebody listens on is not. Closing the listener
// removes the socket.
func (d *Dir) Listen(name string) (*net.UnixListener, error) {
	path := d.Socket(name)
	if len(path) > maxPath {
		return nil, fmt.Errorf("rundir: the socket's path %s has %d bytes, the system allows %d: choose a directory with a shorter path", path, len(path), maxPath)
	}
	// Of two processes that find a dead socket, the second must not remove what the
	// first has put in its place.
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := flock(d.file, unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("rundir: locking %s: %w", d.path, err)
	}
	defer func() { _ = flock(d.file, unix.LOCK_UN) }() // closing the directory unlocks it, too
	if err := removeDead(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("rundir: listening on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("rundir: %w", err), l.Close())
	}
	return l, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// removeDead removes the socket at path if nobody listens on it.
func removeDead(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("rundir: %s is there and no socket: choose another name", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) { // a full backlog, say, means somebody is there
		return fmt.Errorf("rundir: %s is in use by another process: stop it, or choose another path", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rundir: removing a dead socket: %w", err)
	}
	return nil
}

// claimFile is a file whose lock says that a server has the directory to itself.
const claimFile = ".claim"

// Claim takes the directory for this process alone among those that claim it; its own
// child processes may open it all the same. The claim ends with Close or the process. An
// error says that another process has it.
func (d *Dir) Claim() error {
	f, err := os.OpenFile(filepath.Join(d.path, claimFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("rundir: %s is in use by another server: stop it, or choose another --run-dir", d.path)
		}
		return fmt.Errorf("rundir: locking %s: %w", d.path, err)
	}
	d.claim = f
	return nil
}

// Close removes a fresh directory with all that is in it; another one stays as it is.
func (d *Dir) Close() error {
	if d.file != nil {
		d.file.Close()
	}
	if d.claim != nil {
		d.claim.Close()
	}
	if !d.fresh {
		return nil
	}
	if d.alive != nil {
		defer d.alive.Close()
	}
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	return nil
}
