package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What each version of Landlock's interface can deny, from the table of landlock(7).
// Everything is denied that the kernel can deny.
const (
	fsABI1 = uint64(1)<<13 - 1 // execute to make_sym
	fsABI2 = fsABI1 | unix.LANDLOCK_ACCESS_FS_REFER
	fsABI3 = fsABI2 | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	fsABI5 = fsABI3 | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	netABI4 = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP

	scopeABI6 = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
)

// rulesetSize is the size of the attributes up to ABI 6.
const rulesetSize = unsafe.Offsetof(unix.LandlockRulesetAttr{}.Quiet_access_fs)

// ruleset is everything that a kernel with this version of the interface can deny.
func ruleset(abi int) (a unix.LandlockRulesetAttr) {
	a.Handled_access_fs = fsABI1
	switch {
	case abi >= 5:
		a.Handled_access_fs = fsABI5
	case abi >= 3:
		a.Handled_access_fs = fsABI3
	case abi == 2:
		a.Handled_access_fs = fsABI2
	}
	if abi >= 4 {
		a.Handled_access_net = netABI4
	}
	if abi >= 6 {
		a.Scoped = scopeABI6
	}
	return a
}

// landlock denies this thread all files but those that it takes to start program again.
func landlock(program string) (string, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 { // ENOSYS: before Linux 5.13; EOPNOTSUPP: not among the boot option lsm=
		return "", fmt.Errorf("%w (%w)", errUnavailable, errno)
	}
	attr := ruleset(int(abi))
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), rulesetSize, 0)
	if errno != 0 {
		return "", errno
	}
	defer unix.Close(int(fd))
	needed, err := startFiles(program)
	if err != nil {
		return "", err
	}
	for path, access := range needed {
		if err := allow(int(fd), path, access); err != nil {
			return "", err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return "", errno
	}
	return fmt.Sprintf("landlock (ABI %d)", abi), nil
}

// startFiles is what is read and executed until main runs: the program, and for one that
// is linked dynamically the linker and the libraries, which are mapped here as well.
func startFiles(program string) (map[string]uint64, error) {
	const execute = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	files := map[string]uint64{
		program:            execute,
		"/etc/ld.so.cache": unix.LANDLOCK_ACCESS_FS_READ_FILE,
		"/etc/localtime":   unix.LANDLOCK_ACCESS_FS_READ_FILE, // for the log
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// start-end rwxp offset device inode path; see proc_pid_maps(5).
		fields := strings.Fields(lines.Text())
		if len(fields) == 6 && strings.HasPrefix(fields[5], "/") && strings.Contains(fields[1], "x") {
			files[fields[5]] = execute
		}
	}
	return files, lines.Err()
}

// allow excepts a file from what a ruleset denies.
func allow(ruleset int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("allow %s: %w", path, errno)
	}
	return nil
}
