package sandbox

import "golang.org/x/sys/unix"

// The part of classic BPF that a seccomp filter takes (linux/bpf_common.h): it loads
// words of struct seccomp_data, compares them with constants, and returns a verdict.
const (
	bpfLoad    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfAnd     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	bpfIfEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfIfMore  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	bpfReturn  = unix.BPF_RET | unix.BPF_K
)

// Offsets in struct seccomp_data. Arguments are 64 bits wide; those that are looked at
// here are ints, of which the kernel takes the low half, the first one on little-endian
// machines.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// Verdicts.
const (
	verdictAllow = unix.SECCOMP_RET_ALLOW
	verdictKill  = unix.SECCOMP_RET_KILL_PROCESS
)

// verdictFail makes the call return an error.
func verdictFail(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// filter is a program under construction. Each rule ends in a verdict, and leaves the
// number of the call in the accumulator for the next one if it does not apply.
type filter []unix.SockFilter

// newFilter begins with what every program needs: the call has to be one of this
// machine's own table, since the same number means something else in another.
func newFilter() filter {
	return filter{
		{Code: bpfLoad, K: dataArch},
		{Code: bpfIfEqual, K: auditArch, Jt: 1},
		{Code: bpfReturn, K: verdictKill},
		{Code: bpfLoad, K: dataNumber},
	}
}

// verdict gives one for some calls.
func (f filter) verdict(v uint32, calls ...uint32) filter {
	for _, nr := range calls {
		f = append(f, unix.SockFilter{Code: bpfIfEqual, K: nr, Jf: 1}, unix.SockFilter{Code: bpfReturn, K: v})
	}
	return f
}

// from gives one for all calls from this number on.
func (f filter) from(nr, v uint32) filter {
	return append(f, unix.SockFilter{Code: bpfIfMore, K: nr, Jf: 1}, unix.SockFilter{Code: bpfReturn, K: v})
}

// bits allows a call where these bits of an argument have this value, and refuses it
// otherwise.
func (f filter) bits(nr uint32, arg int, mask, value uint32) filter {
	return f.rule(nr, filter{
		{Code: bpfLoad, K: dataArgs + 8*uint32(arg)},
		{Code: bpfAnd, K: mask},
		{Code: bpfIfEqual, K: value, Jf: 1},
		{Code: bpfReturn, K: verdictAllow},
		{Code: bpfReturn, K: verdictFail(unix.EPERM)},
	})
}

// oneOf allows a call where an argument is one of some values, and refuses it otherwise.
func (f filter) oneOf(nr uint32, arg int, values ...uint32) filter {
	body := filter{{Code: bpfLoad, K: dataArgs + 8*uint32(arg)}}
	for _, v := range values {
		body = append(body, unix.SockFilter{Code: bpfIfEqual, K: v, Jf: 1}, unix.SockFilter{Code: bpfReturn, K: verdictAllow})
	}
	return f.rule(nr, append(body, unix.SockFilter{Code: bpfReturn, K: verdictFail(unix.EPERM)}))
}

// rule runs body, which ends in a verdict, for one call.
func (f filter) rule(nr uint32, body filter) filter {
	f = append(f, unix.SockFilter{Code: bpfIfEqual, K: nr, Jf: uint8(len(body))})
	return append(f, body...)
}

// otherwise ends the program.
func (f filter) otherwise(v uint32) filter { return append(f, unix.SockFilter{Code: bpfReturn, K: v}) }
