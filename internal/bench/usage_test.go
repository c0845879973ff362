package bench

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestBusyTicks(t *testing.T) {
	// user nice system idle iowait irq softirq steal guest guest_nice
	const stat = "cpu  100 20 30 9000 500 4 5 60 70 8\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
	if got, want := busyTicks(stat), int64(100+20+30+4+5+60); got != want {
		t.Errorf("found %d ticks, want %d", got, want)
	}
	if got := busyTicks(""); got != 0 {
		t.Errorf("found %d ticks in nothing", got)
	}
}

func TestProcessTicks(t *testing.T) {
	// A name with spaces and a parenthesis; utime 11, stime 7.
	const stat = "42 (a b) c) R 1 42 42 0 -1 4194304 100 0 0 0 11 7 0 0 20 0 1 0 12345 1000000 200 18446744073709551615"
	if got := processTicks(stat); got != 18 {
		t.Errorf("found %d ticks, want 18", got)
	}
	if got := processTicks("42 (a)"); got != 0 {
		t.Errorf("found %d ticks in a cut line", got)
	}
}

func TestThreadTime(t *testing.T) {
	if got, want := parseThreadTime("696779 2266258 3\n"), (threadTime{696779, 2266258}); got != want {
		t.Errorf("found %+v, want %+v", got, want)
	}
	if got := parseThreadTime(""); got != (threadTime{}) {
		t.Errorf("found %+v in nothing", got)
	}
}

// Of the threads that compute, the one that waited longest counts; a thread that hardly
// ran does not.
func TestUsageSince(t *testing.T) {
	const s = time.Second
	before := usage{all: 100, process: 50, threads: map[string]threadTime{"a": {5 * s, s}, "b": {0, 0}, "idle": {0, 0}}}
	after := usage{all: 400, process: 250, threads: map[string]threadTime{"a": {6 * s, s}, "b": {s, s / 2}, "idle": {s / 100, 2 * s}}}
	waited, others := after.since(before, 2*s)
	if waited != 0.25 {
		t.Errorf("waited %g, want 0.25", waited)
	}
	if want := 1.0 / 2 / float64(runtime.NumCPU()); others != want { // 1 s of 2 s on so many cores
		t.Errorf("others %g, want %g", others, want)
	}
}

func TestKibibytes(t *testing.T) {
	const status = "Name:\tx\nVmHWM:\t    1234 kB\nRssAnon:\t      12 kB\n"
	if got := kibibytes(status, "VmHWM:"); got != 1234<<10 {
		t.Errorf("found %d", got)
	}
	if got := kibibytes(status, "VmLck:"); got != 0 {
		t.Errorf("found %d for a missing key", got)
	}
}

// A process that computes is seen to compute, and not as somebody else.
func TestUsageOfThisProcess(t *testing.T) {
	pid := os.Getpid()
	if takeUsage(pid).all == 0 {
		t.Skip("no /proc here")
	}
	before, start := takeUsage(pid), time.Now()
	x := 1.0
	for takeUsage(pid).process-before.process < 5 {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("20 s of computing count as %d ticks", takeUsage(pid).process-before.process)
		}
		for range 1 << 20 {
			x += 1 / x
		}
	}
	if now := takeUsage(pid); now.all < before.all || now.process < before.process {
		t.Errorf("counters go back: %+v, then %+v", before, now)
	}
	if peak, private := memory(pid); peak <= 0 || private <= 0 || private > peak {
		t.Errorf("memory: peak %d, private %d bytes", peak, private)
	}
}
