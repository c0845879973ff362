package rundir

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// freshPattern is what fresh directories are called.
	freshPattern = "baton-*"
	// aliveFile is a file in each of them. Its lock ends with the process that made it,
	// however that ends.
	aliveFile = ".alive"
)

// makeFreshIn makes a directory in base, with mode 0700, and returns its path and its
// locked file. Dead ones that are there are removed first.
func makeFreshIn(base string) (string, *os.File, error) {
	removeDeadDirs(base)
	for {
		path, err := os.MkdirTemp(base, freshPattern)
		if err != nil {
			return "", nil, err
		}
		alive, err := lockNew(filepath.Join(path, aliveFile))
		if err == nil {
			return path, alive, nil
		}
		if !errors.Is(err, errTakenForDead) {
			return "", nil, errors.Join(err, os.RemoveAll(path))
		}
	}
}

var errTakenForDead = errors.New("another process has removed the directory before its lock was held")

// lockNew makes a file and locks it.
func lockNew(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = flock(f, unix.LOCK_EX); err == nil {
		err = unix.Fstat(int(f.Fd()), &st)
	}
	if err == nil && st.Nlink == 0 {
		err = errTakenForDead
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// removeDeadDirs removes the fresh directories in base whose process is gone. It is a
// courtesy: what it cannot judge or remove stays.
func removeDeadDirs(base string) {
	paths, err := filepath.Glob(filepath.Join(base, freshPattern))
	if err != nil {
		return
	}
	for _, path := range paths {
		if dead(path) {
			_ = os.RemoveAll(path)
		}
	}
}

// dead reports whether path is a fresh directory of this user that no process holds.
func dead(path string) bool {
	// Anybody can put something of that name into /tmp: only what is ours counts, and no link.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || int(st.Uid) != os.Geteuid() || st.Mode&0o777 != 0o700 {
		return false
	}
	file, err := unix.Openat(fd, aliveFile, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(file) // and with it the lock
	return unix.Flock(file, unix.LOCK_EX|unix.LOCK_NB) == nil
}
