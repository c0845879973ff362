package kernel

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestPoolRunsEveryTaskOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, workers := range []int{0, 1, 2, 3, 8} {
		p := NewPool(workers)
		for _, tasks := range []int{0, 1, 2, 7, 1000} {
			for range 20 {
				counts := make([]atomic.Int32, tasks)
				err := p.Run(tasks, func(task, worker int) {
					if worker < 0 || worker >= p.Workers() {
						panic("worker number out of range")
					}
					counts[task].Add(1)
				})
				if err != nil {
					t.Fatal(err)
				}
				for i := range counts {
					if n := counts[i].Load(); n != 1 {
						t.Fatalf("%d workers: task %d of %d ran %d times", workers, i, tasks, n)
					}
				}
			}
		}
		p.Close()
		if err := p.Run(3, func(int, int) {}); err != nil {
			t.Errorf("a closed pool: %v", err)
		}
	}
}

// Plain variables written by tasks are visible to the caller and to the next call: the
// race detector checks what the pool's atomics promise.
func TestPoolOrdersMemory(t *testing.T) {
	p := NewPool(4)
	defer p.Close()
	a, b := make([]int, 64), make([]int, 64)
	for round := range 300 {
		if err := p.Run(len(a), func(task, _ int) { a[task] = b[len(b)-1-task] + 1 }); err != nil {
			t.Fatal(err)
		}
		if err := p.Run(len(b), func(task, _ int) { b[task] = a[len(a)-1-task] + 1 }); err != nil {
			t.Fatal(err)
		}
		if b[round%64] != 2*round+2 {
			t.Fatalf("round %d: %d", round, b[round%64])
		}
	}
}

// Helpers that have parked are woken, and a caller whose helper takes long parks too.
func TestPoolWakesParked(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	for range 5 {
		waitParked(t, p)
		// No task ends before all three workers have one.
		var started atomic.Int32
		all := make(chan struct{})
		err := p.Run(3, func(_, worker int) {
			if started.Add(1) == 3 {
				close(all)
			}
			<-all
			if worker != 0 {
				time.Sleep(2 * spinTime)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func waitParked(t *testing.T, p *Pool) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := p.parked
		p.mu.Unlock()
		if n == p.workers-1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d helpers parked: an idle pool burns CPU time", n, p.workers-1)
		}
	}
}

func TestPoolOnOneThread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := NewPool(8)
	defer p.Close()
	var sum atomic.Int64
	for range 200 {
		if err := p.Run(50, func(task, _ int) { sum.Add(int64(task)) }); err != nil {
			t.Fatal(err)
		}
	}
	if sum.Load() != 200*1225 {
		t.Errorf("sum %d, want %d", sum.Load(), 200*1225)
	}
}

func TestPoolReturnsPanics(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	for _, tasks := range []int{1, 100} {
		err := p.Run(tasks, func(task, _ int) {
			if task == tasks/2 {
				panic("boom")
			}
		})
		if err == nil || !strings.Contains(err.Error(), "boom") {
			t.Errorf("%d tasks: error %v", tasks, err)
		}
		if err := p.Run(tasks, func(int, int) {}); err != nil {
			t.Errorf("the call after a panic: %v", err)
		}
	}
}

func TestPoolRunAllocatesNothing(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	fn := func(int, int) {}
	if n := testing.AllocsPerRun(100, func() { _ = p.Run(16, fn) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// BenchmarkPoolRun is the cost of a call without work.
func BenchmarkPoolRun(b *testing.B) {
	for _, workers := range []int{1, 2} {
		b.Run(map[int]string{1: "1worker", 2: "2workers"}[workers], func(b *testing.B) {
			p := NewPool(workers)
			defer p.Close()
			fn := func(int, int) {}
			b.ReportAllocs()
			for b.Loop() {
				_ = p.Run(8, fn)
			}
		})
	}
}
