package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// usage is what the system has counted until now: ticks of hundredths of a second
// (USER_HZ) and, more exactly, the time that a process' threads waited for a core.
// Where /proc lacks something it is zero.
type usage struct {
	all     int64 // ticks that any process used, and that the hypervisor took away
	process int64 // ticks that the process used
	waited  time.Duration
}

const tick = 10 * time.Millisecond

func takeUsage(pid int) (u usage) {
	u.all = busyTicks(readText("/proc/stat"))
	u.process = processTicks(readText(fmt.Sprintf("/proc/%d/stat", pid)))
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range threads {
		u.waited += runDelay(readText(path))
	}
	return u
}

// since says what happened between before and u: how long the process' threads were
// kept off the cores as a share of wall, and what others used as a share of all cores.
func (u usage) since(before usage, wall time.Duration) (waited, others float64) {
	waited = float64(u.waited-before.waited) / float64(wall)
	ticks := (u.all - before.all) - (u.process - before.process)
	others = float64(ticks) * float64(tick) / float64(wall) / float64(runtime.NumCPU())
	return max(waited, 0), max(others, 0)
}

func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// busyTicks is the first line of /proc/stat without its idle and iowait columns, and
// without guest time, which user time includes (proc_stat(5)).
func busyTicks(stat string) (n int64) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, f := range strings.Fields(line) {
		if v, err := strconv.ParseInt(f, 10, 64); err == nil && i <= 8 && i != 4 && i != 5 {
			n += v
		}
	}
	return n
}

// processTicks is utime and stime, fields 14 and 15 (proc_pid_stat(5)). The program's
// name before them may hold spaces and parentheses.
func processTicks(stat string) (n int64) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 13 {
		return 0
	}
	for _, s := range f[11:13] {
		if v, err := strconv.ParseInt(s, 10, 64); err == nil {
			n += v
		}
	}
	return n
}

// runDelay is the second number of a thread's schedstat, nanoseconds (Linux'
// Documentation/scheduler/sched-stats.rst).
func runDelay(schedstat string) time.Duration {
	f := strings.Fields(schedstat)
	if len(f) < 2 {
		return 0
	}
	n, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}

// memory is the most that the process had resident, mapped files and shared memory
// included, and what it now has that no other process could share, in bytes.
func memory(pid int) (peak, private int64) {
	status := readText(fmt.Sprintf("/proc/%d/status", pid))
	return kibibytes(status, "VmHWM:"), kibibytes(status, "RssAnon:")
}

func kibibytes(status, key string) int64 {
	_, rest, ok := strings.Cut(status, "\n"+key)
	if !ok {
		return 0
	}
	f := strings.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// raisePriority puts the process' scheduling group before all others. Only root may,
// and only some systems have such groups: without it, other work counts as waiting.
func raisePriority(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte("-20"), 0)
}
