package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allowed are the calls that computing and answering takes: of the Go runtime, of the C
// library under it where cgo is used, and of reading and writing what is open. Calls
// that are in the tables of some machines only are added by file.
var allowed = append(machineAllowed,
	// Memory. What is mapped is inherited or was received.
	unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_MEMBARRIER,
	// Threads and time.
	unix.SYS_FUTEX, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_SET_TID_ADDRESS, unix.SYS_SCHED_YIELD,
	unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETTID, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_NANOSLEEP,
	unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_RESTART_SYSCALL,
	// Signals, its own.
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	// What is open.
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_LSEEK,
	unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PPOLL, unix.SYS_PIPE2,
	unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_RECVFROM, unix.SYS_SENDTO, unix.SYS_ACCEPT4, unix.SYS_SHUTDOWN,
	unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME,
	// Looking around; Landlock has the say over files.
	unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_GETCWD, unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETRANDOM, unix.SYS_GETRUSAGE,
	unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_PRLIMIT64, unix.SYS_GETPRIORITY,
	// More restrictions.
	unix.SYS_SECCOMP,
)

// answeredENOSYS are calls whose arguments a filter cannot see, so that they cannot be
// allowed in part. C libraries take that answer for an old kernel and use the older call.
var answeredENOSYS = []uint32{unix.SYS_CLONE3, unix.SYS_OPENAT2, unix.SYS_FACCESSAT2, unix.SYS_CLOSE_RANGE, unix.SYS_STATX}

// firstUnknown is the first number that no kernel had when this was written; it and later
// ones are answered as a kernel does that does not have them. New calls get the same
// number on all machines.
const firstUnknown = 472

// startFilter is in force from before the program is started again, in the process pid.
func startFilter(pid int) filter {
	const (
		toWrite   = unix.O_ACCMODE | unix.O_CREAT | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY
		newThread = unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND
	)
	f := newFilter().
		bits(unix.SYS_CLONE, 0, newThread, newThread).
		bits(unix.SYS_OPENAT, 2, toWrite, unix.O_RDONLY)
	f = machineRules(f, toWrite).
		verdict(verdictAllow, unix.SYS_EXECVE, unix.SYS_MMAP, unix.SYS_MPROTECT).
		oneOf(unix.SYS_TGKILL, 0, uint32(pid)).
		oneOf(unix.SYS_KILL, 0, uint32(pid)).
		// Not F_ADD_SEALS and not F_SETLEASE: what a block's memory allows is for the
		// decoder to say.
		oneOf(unix.SYS_FCNTL, 1, unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_GET_SEALS).
		oneOf(unix.SYS_PRCTL, 0, unix.PR_SET_VMA, unix.PR_SET_NAME, unix.PR_GET_PDEATHSIG, unix.PR_SET_NO_NEW_PRIVS)
	return f.verdict(verdictAllow, allowed...).
		verdict(verdictFail(unix.ENOSYS), answeredENOSYS...).
		from(firstUnknown, verdictFail(unix.ENOSYS)).
		otherwise(verdictFail(unix.EPERM))
}

// lockFilter is added once the program runs: filters add up, and the strictest verdict
// counts.
func lockFilter() filter {
	return machineLock(newFilter()).
		verdict(verdictFail(unix.EPERM), unix.SYS_EXECVE, unix.SYS_OPENAT, unix.SYS_READLINKAT, unix.SYS_FACCESSAT).
		bits(unix.SYS_MMAP, 2, unix.PROT_EXEC, 0).
		bits(unix.SYS_MPROTECT, 2, unix.PROT_EXEC, 0).
		otherwise(verdictAllow)
}

// probeFilters asks whether filters can be had.
func probeFilters() error {
	if auditArch == 0 {
		return fmt.Errorf("%w (there is no filter for this kind of machine)", errUnavailable)
	}
	action := uint32(verdictKill)
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action))); errno != 0 {
		return fmt.Errorf("%w (%w)", errUnavailable, errno)
	}
	return nil
}

// installFilter puts a filter on this thread, or with SECCOMP_FILTER_FLAG_TSYNC on all.
func installFilter(f filter, flags uintptr) error {
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	if r != 0 {
		return fmt.Errorf("thread %d has a filter of its own", r)
	}
	return nil
}

// seccomp puts the filter on this thread, and on what it becomes.
func seccomp(pid int) (string, error) {
	if err := probeFilters(); err != nil {
		return "", err
	}
	return "seccomp", installFilter(startFilter(pid), 0)
}
