package sandbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The test starts this program again as one that enters the sandbox, tries things, and
// reports on standard output.
const roleEnv = "SANDBOX_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
		os.Exit(m.Run())
	default:
		if err := runRole(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// report is what a role prints.
type report struct {
	Layers, Missing []string
	Dynamic         bool // the program is linked with the C library
	Nice            int
	DeathSignal     int
	Results         map[string]string // by the name of what was tried: "" or the error
}

func runRole(role string) error {
	r := report{Dynamic: dynamic(), Results: map[string]string{}}
	s, err := Inside()
	if err != nil {
		return err
	}
	if s == nil && role != "outside" {
		socket, memory := os.NewFile(3, "socket"), os.NewFile(4, "memory")
		return Enter(Config{Files: []*os.File{socket, memory}, Nice: 3, None: role == "none"})
	}
	if s == nil {
		s = &State{Files: []*os.File{os.NewFile(3, "socket"), os.NewFile(4, "memory")}}
	}
	r.Layers, r.Missing, r.Nice, r.DeathSignal = s.Layers, s.Missing, niceness(), parentDeath
	if err := s.Lock(); err != nil {
		return err
	}
	if err := work(s.Files[0], s.Files[1]); err != nil {
		return fmt.Errorf("what a provider does: %w", err)
	}
	// On several threads, since most of this binds threads.
	var mu sync.Mutex
	var threads sync.WaitGroup
	for range 3 {
		threads.Go(func() {
			runtime.LockOSThread()
			for _, p := range probes(int(s.Files[1].Fd())) {
				err := p.try()
				mu.Lock()
				if text, done := r.Results[p.name]; !done || text != "" {
					r.Results[p.name] = errorName(err) // one success counts
				}
				mu.Unlock()
			}
		})
	}
	threads.Wait()
	return json.NewEncoder(os.Stdout).Encode(&r)
}

// work is what a provider has to be able to do: map memory that it was sent, write it,
// talk over its connection, run goroutines.
func work(socket, memory *os.File) error {
	c, err := net.FileConn(socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return err
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "welcome\n" {
		return fmt.Errorf("received %q, %w", line, err)
	}
	data, err := unix.Mmap(int(memory.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map: %w", err)
	}
	copy(data, "written")
	if _, err := unix.FcntlInt(memory.Fd(), unix.F_GET_SEALS, 0); err != nil {
		return fmt.Errorf("get seals: %w", err)
	}
	var sum sync.WaitGroup
	for range 8 {
		sum.Go(func() { _ = make([]byte, 1<<20) })
	}
	sum.Wait()
	runtime.GC()
	return unix.Munmap(data)
}

type probe struct {
	name string
	try  func() error
}

// probes are things that a provider must not be able to do. Each returns nil if it could.
// They are harmless outside: what would change another process has an impossible argument.
func probes(memory int) []probe {
	call := func(name string, nr uintptr, args ...uintptr) probe {
		return probe{name, func() error {
			var a [6]uintptr
			copy(a[:], args)
			r, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
			if errno != 0 {
				return errno
			}
			if makesFD[name] {
				_ = unix.Close(int(r))
			}
			return nil
		}}
	}
	open := func(name, path string, flags int) probe {
		return probe{name, func() error {
			fd, err := unix.Open(path, flags, 0o600)
			if err != nil {
				return err
			}
			if flags&unix.O_CREAT != 0 {
				_ = unix.Unlink(path)
			}
			return unix.Close(fd)
		}}
	}
	page := func() uintptr { return uintptr(unsafe.Pointer(&buffer[0])) }
	iov := unix.Iovec{Base: &buffer[0], Len: 8}
	iovs := uintptr(unsafe.Pointer(&iov))
	list := []probe{
		open("read a file", "/etc/passwd", unix.O_RDONLY),
		open("list a directory", "/", unix.O_RDONLY|unix.O_DIRECTORY),
		open("write a file", fmt.Sprintf("%s/sandbox-test-%d-%d", os.TempDir(), os.Getpid(), unix.Gettid()), unix.O_WRONLY|unix.O_CREAT),
		open("reopen memory", fmt.Sprintf("/proc/self/fd/%d", memory), unix.O_RDONLY),
		open("reopen memory for writing", fmt.Sprintf("/proc/self/fd/%d", memory), unix.O_RDWR),
		call("make a Unix socket", unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0),
		call("make a TCP socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0),
		call("make a netlink socket", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, 0),
		{"make a pair of sockets", func() error {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			return errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
		}},
		{"make memory files", func() error {
			fd, err := unix.MemfdCreate("x", 0)
			return errors.Join(err, unix.Close(fd))
		}},
		call("use io_uring", unix.SYS_IO_URING_SETUP, 1, page()),
		call("use asynchronous input and output", unix.SYS_IO_SETUP, 1, page()),
		call("trace a process", unix.SYS_PTRACE, unix.PTRACE_SEIZE, 0, 0, 0),
		call("read a process's memory", unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid()), iovs, 1, iovs, 1, 0),
		call("write a process's memory", unix.SYS_PROCESS_VM_WRITEV, uintptr(os.Getpid()), iovs, 1, iovs, 1, 0),
		call("compare descriptors with its parent", unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(os.Getppid()), 0, 0, 0),
		call("hold its parent", unix.SYS_PIDFD_OPEN, uintptr(os.Getppid()), 0),
		call("signal its parent", unix.SYS_KILL, uintptr(os.Getppid()), 0),
		call("signal its parent's thread", unix.SYS_TGKILL, uintptr(os.Getppid()), uintptr(os.Getppid()), 0),
		{"pin pages in a pipe", func() error {
			fds := make([]int, 2)
			if err := unix.Pipe2(fds, 0); err != nil {
				return nil // this has to be possible
			}
			defer unix.Close(fds[0])
			defer unix.Close(fds[1])
			_, err := unix.Vmsplice(fds[1], []unix.Iovec{iov}, 0)
			return err
		}},
		{"splice pages into a pipe", func() error {
			fds := make([]int, 2)
			if err := unix.Pipe2(fds, 0); err != nil {
				return nil
			}
			defer unix.Close(fds[0])
			defer unix.Close(fds[1])
			_, err := unix.Splice(memory, new(int64), fds[1], nil, 8, 0)
			return err
		}},
		call("execute a program", unix.SYS_EXECVE, uintptr(unsafe.Pointer(unsafe.StringData("/no/such/program\x00"))), 0, 0),
		call("execute a descriptor", unix.SYS_EXECVEAT, uintptr(memory), uintptr(unsafe.Pointer(unsafe.StringData("\x00"))), 0, 0, unix.AT_EMPTY_PATH),
		call("make a process", unix.SYS_CLONE, unix.CLONE_NEWNS|unix.CLONE_FS, 0, 0, 0, 0), // these two exclude each other
		call("make a process by clone3", unix.SYS_CLONE3, page(), 1),
		call("seal memory", unix.SYS_FCNTL, uintptr(memory), unix.F_ADD_SEALS, unix.F_SEAL_SEAL),
		call("take a lease", unix.SYS_FCNTL, uintptr(memory), unix.F_SETLEASE, unix.F_UNLCK),
		{"make memory executable", func() error {
			m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				return nil
			}
			defer func() { _ = unix.Munmap(m) }()
			return unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC)
		}},
		call("handle page faults", unix.SYS_USERFAULTFD, 0),
		call("load BPF", unix.SYS_BPF, 0, page(), 1),
		call("count events", unix.SYS_PERF_EVENT_OPEN, page(), 0, ^uintptr(0), ^uintptr(0), 0),
		call("use keys", unix.SYS_KEYCTL, 0, 0, 0),
		call("watch files", unix.SYS_INOTIFY_INIT1, 0),
		call("leave a namespace", unix.SYS_UNSHARE, unix.CLONE_NEWUTS),
		call("enter a namespace", unix.SYS_SETNS, uintptr(memory), 0),
		call("mount", unix.SYS_MOUNT, page(), page(), page(), 0, 0),
		call("open by handle", unix.SYS_OPEN_BY_HANDLE_AT, unix.AT_FDCWD&(1<<32-1), page(), 0),
		call("truncate memory", unix.SYS_FTRUNCATE, uintptr(memory), 8192),
		call("change what is dumped", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1),
		call("raise its priority", unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, ^uintptr(0)),
	}
	return list
}

var makesFD = map[string]bool{
	"make a Unix socket": true, "make a TCP socket": true, "make a netlink socket": true, "hold its parent": true,
	"use io_uring": true, "handle page faults": true, "watch files": true,
}

var buffer [4096]byte

func errorName(err error) string {
	if err == nil {
		return ""
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

func dynamic() bool {
	maps, err := os.ReadFile("/proc/self/maps")
	return err == nil && bytes.Contains(maps, []byte("/libc.so"))
}

func niceness() int {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return -1
	}
	return 20 - n // getpriority(2): the kernel's own value
}

// start runs a role and returns what it reports.
func start(t *testing.T, role string) report {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	mfd, err := unix.MemfdCreate("sandbox-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(mfd), "memory")
	defer memory.Close()
	if err := memory.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+role, stateEnv+`={"pid":1,"fds":[0],"layers":["forged"]}`)
	cmd.ExtraFiles = []*os.File{theirs, memory}
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runtime.LockOSThread() // whose death signals
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if _, err := io.WriteString(ours, "welcome\n"); err != nil {
		t.Error(err)
	}
	hello, _ := bufio.NewReader(ours).ReadString('\n')
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if hello != "hello\n" {
		t.Errorf("the process said %q", hello)
	}
	data := make([]byte, 7)
	if _, err := memory.ReadAt(data, 0); err != nil || string(data) != "written" {
		t.Errorf("the memory holds %q, %v", data, err)
	}
	var r report
	if err := json.Unmarshal([]byte(stdout.String()), &r); err != nil {
		t.Fatalf("%v: %q", err, stdout.String())
	}
	return r
}

// Everything that a provider needs works inside, and everything else that could reach
// beyond its memory is refused, on every thread. The same program outside shows that
// the attempts are real ones.
func TestForbiddenThingsAreRefused(t *testing.T) {
	in, out := start(t, "inside"), start(t, "outside")
	t.Logf("layers %q, missing %q, linked with the C library: %t", in.Layers, in.Missing, out.Dynamic)
	if len(in.Missing) > 0 {
		t.Skipf("this kernel lacks a layer: %v", in.Missing)
	}
	refusals := []string{"EPERM", "EACCES", "ENOSYS"}
	possible := 0
	for name, result := range in.Results {
		if !slices.Contains(refusals, result) {
			t.Errorf("%s: %q, want a refusal", name, result)
		}
		if !slices.Contains(refusals, out.Results[name]) {
			possible++
		}
	}
	t.Logf("%d things tried; outside, %d are not refused", len(in.Results), possible)
	for _, name := range []string{
		"read a file", "write a file", "reopen memory for writing", "make a Unix socket", "make memory files", "pin pages in a pipe",
		"execute a program", "seal memory", "take a lease", "signal its parent", "make memory executable",
	} {
		if result := out.Results[name]; slices.Contains(refusals, result) {
			t.Errorf("%s: refused outside too (%s): the test shows nothing", name, result)
		}
	}
	if in.Nice != 3 || out.Nice != niceness() {
		t.Errorf("niceness %d inside, %d outside", in.Nice, out.Nice)
	}
	if want := int(unix.SIGKILL); in.DeathSignal != want {
		t.Errorf("parent death signal %d, want %d", in.DeathSignal, want)
	}
}

// Without layers a process is started again all the same, and with what it was given.
func TestNone(t *testing.T) {
	r := start(t, "none")
	if len(r.Layers) != 0 || r.Nice != 3 || r.Results["make a Unix socket"] != "" {
		t.Errorf("%+v", r)
	}
}

// A kernel gets asked for what it can deny, and for nothing that it does not know.
func TestRulesets(t *testing.T) {
	for _, c := range []struct {
		abi            int
		fs, net, scope uint64
	}{ // landlock(7)
		{1, 0x1fff, 0, 0}, {2, 0x3fff, 0, 0}, {3, 0x7fff, 0, 0}, {4, 0x7fff, 3, 0}, {5, 0xffff, 3, 0}, {6, 0xffff, 3, 3}, {99, 0xffff, 3, 3},
	} {
		a := ruleset(c.abi)
		if a.Handled_access_fs != c.fs || a.Handled_access_net != c.net || a.Scoped != c.scope {
			t.Errorf("ABI %d: %#x %#x %#x, want %#x %#x %#x", c.abi, a.Handled_access_fs, a.Handled_access_net, a.Scoped, c.fs, c.net, c.scope)
		}
	}
}
