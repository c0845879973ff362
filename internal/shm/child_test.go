package shm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("SHM_TEST_CHILD"); role != "" {
		if err := runChild(role); err != nil {
			fmt.Print(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runChild plays one role in a process of its own. Inherited files start at 3.
func runChild(role string) error {
	switch role {
	case "hold-mapping": // keep a writable mapping and no descriptor until stdin ends
		o, err := FromFile(os.NewFile(3, "inherited"))
		if err != nil {
			return err
		}
		if _, err := o.Map(ReadWrite); err != nil {
			return err
		}
		if err := o.Close(); err != nil {
			return err
		}
		fmt.Print("ok")
		_, err = io.ReadAll(os.Stdin)
		return err
	case "sum":
		o, err := FromFile(os.NewFile(3, "inherited"))
		if err != nil {
			return err
		}
		m, err := o.Map(ReadOnly)
		if err != nil {
			return err
		}
		fmt.Printf("%d %d", len(m.Bytes()), sum(m.Bytes()))
		return nil
	case "limit": // soft limit 32, hard limit 64
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 32, Max: 64}); err != nil {
			return err
		}
		open, err := openFiles()
		if err != nil {
			return err
		}
		if err := CheckFileLimit(64 - open); err != nil { // the soft limit must be raised
			return err
		}
		var lim unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil || lim.Cur != 64 {
			return fmt.Errorf("the soft limit is %d, want 64 (%v)", lim.Cur, err)
		}
		err = CheckFileLimit(65 - open)
		var e *FileLimitError
		if !errors.As(err, &e) || e.Hard != 64 || e.Need != 65-open || e.Open != open {
			return fmt.Errorf("one descriptor too many: %v", err)
		}
		fmt.Print(err)
		return nil
	case "recv-limited": // receive 20 descriptors with room for fewer
		c, err := net.FileConn(os.NewFile(3, "socket"))
		if err != nil {
			return err
		}
		open, err := openFiles()
		if err != nil {
			return err
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(open + 5), Max: uint64(open + 5)}); err != nil {
			return err
		}
		_, err = RecvFDs(c.(*net.UnixConn), 20)
		if !errors.Is(err, ErrTruncated) {
			return fmt.Errorf("got %v, want ErrTruncated", err)
		}
		if n, err := openFiles(); err != nil || n != open {
			return fmt.Errorf("%d descriptors open after the error, %d before, %v", n, open, err)
		}
		fmt.Print("ok")
		return nil
	}
	return fmt.Errorf("no role %q", role)
}

func addrOf(m *Mapping) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m.data))) }

func sum(b []byte) (s uint32) {
	for _, c := range b {
		s = s*31 + uint32(c)
	}
	return s
}
