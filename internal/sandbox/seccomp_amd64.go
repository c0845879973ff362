package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// machineAllowed are calls that newer machines have not.
var machineAllowed = []uint32{
	unix.SYS_ARCH_PRCTL, unix.SYS_TIME, unix.SYS_POLL, unix.SYS_DUP2, unix.SYS_PIPE, unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_CREATE,
	unix.SYS_READLINK, unix.SYS_ACCESS, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_GETRLIMIT,
}

func machineRules(f filter, toWrite uint32) filter {
	return f.bits(unix.SYS_OPEN, 1, toWrite, unix.O_RDONLY)
}

func machineLock(f filter) filter {
	return f.verdict(verdictFail(unix.EPERM), unix.SYS_OPEN, unix.SYS_READLINK, unix.SYS_ACCESS, unix.SYS_STAT, unix.SYS_LSTAT)
}
