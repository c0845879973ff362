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
// (USER_HZ) and, more exactly, what became of a process' threads. Where /proc lacks
// something it is zero.
type usage struct {
	all     int64 // ticks that any process used, and that the hypervisor took away
	process int64 // ticks that the process used
	threads map[string]threadTime
}

// threadTime is how long a thread ran, and how long it was ready but had no core.
type threadTime struct{ ran, waited time.Duration }

const tick = 10 * time.Millisecond

func takeUsage(pid int) (u usage) {
	u.all = busyTicks(readText("/proc/stat"))
	u.process = processTicks(readText(fmt.Sprintf("/proc/%d/stat", pid)))
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	u.threads = make(map[string]threadTime, len(threads))
	for _, path := range threads {
		u.threads[path] = parseThreadTime(readText(path))
	}
	return u
}

// since says what happened between before and u: how long one of the process' threads,
// the one that had to wait longest, was kept off the cores, as a share of wall; and what
// others used as a share of all cores. Only threads that compute count, which ran a
// fifth of the time: a runtime has others whose waiting holds nobody up.
func (u usage) since(before usage, wall time.Duration) (waited, others float64) {
	for id, t := range u.threads {
		b := before.threads[id]
		if t.ran-b.ran > wall/5 {
			waited = max(waited, float64(t.waited-b.waited)/float64(wall))
		}
	}
	ticks := (u.all - before.all) - (u.process - before.process)
	others = float64(ticks) * float64(tick) / float64(wall) / float64(runtime.NumCPU())
	return waited, max(others, 0)
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

// parseThreadTime reads a thread's schedstat: the first two numbers, in nanoseconds
// (Linux' Documentation/scheduler/sched-stats.rst).
func parseThreadTime(schedstat string) (t threadTime) {
	f := strings.Fields(schedstat)
	if len(f) < 2 {
		return t
	}
	for i, d := range []*time.Duration{&t.ran, &t.waited} {
		if n, err := strconv.ParseInt(f[i], 10, 64); err == nil {
			*d = time.Duration(n)
		}
	}
	return t
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
