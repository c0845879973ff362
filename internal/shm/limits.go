package shm

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FileLimitError says that a process may not open as many descriptors as it needs.
type FileLimitError struct {
	Need int    // further descriptors needed
	Open int    // descriptors open now
	Hard uint64 // the limit, which only root can raise
}

func (e *FileLimitError) Error() string {
	return fmt.Sprintf("shm: %d more file descriptors are needed and %d are open, but the limit is %d: raise it to at least %d (ulimit -Hn, LimitNOFILE= of a systemd unit, --ulimit nofile= of a container)",
		e.Need, e.Open, e.Hard, e.Need+e.Open)
}

// CheckFileLimit makes sure that need more descriptors can be opened, raising the soft
// limit as far as the hard one allows. The error is a *FileLimitError when that is not
// enough. A process that runs out would lose descriptors that are sent to it.
func CheckFileLimit(need int) error {
	open, err := openFiles()
	if err != nil {
		return fmt.Errorf("shm: count open descriptors: %w", err)
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("shm: read the descriptor limit: %w", err)
	}
	want := uint64(open) + uint64(max(need, 0))
	if want <= lim.Cur {
		return nil
	}
	if want > lim.Max {
		return &FileLimitError{Need: need, Open: open, Hard: lim.Max}
	}
	lim.Cur = lim.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("shm: raise the descriptor limit to %d: %w", lim.Max, err)
	}
	return nil
}

// openFiles counts this process's open descriptors.
func openFiles() (int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	return len(entries) - 1, nil // the directory itself was open while it was read
}

// FreeHugePages is the number of huge pages that nobody has taken or reserved.
func FreeHugePages() int {
	const dir = "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	return max(readCount(dir+"free_hugepages")-readCount(dir+"resv_hugepages"), 0)
}

// readCount reads a file that holds one number; 0 if it cannot.
func readCount(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return n
}
