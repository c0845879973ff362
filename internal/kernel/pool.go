package kernel

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// spinTime is how long a worker looks for new work, or the caller for the last worker
// to finish, before it parks. Between two kernels of a forward pass there are some
// microseconds; waking a parked goroutine can take longer than that, a parked one costs
// nothing while the process is idle.
const spinTime = 100 * time.Microsecond

// Pool runs the tasks of one kernel call at a time on a fixed set of goroutines. It
// creates no goroutine and allocates nothing per call. Run is for one caller at a
// time, and tasks must not call it.
//
// The caller is a worker itself. It hands tasks to whichever helpers come while there
// are any left, and never waits for one that has not started: a helper that the system
// has not scheduled costs speed, not time.
//
// A memory fault while a task reads mapped weights (the model file was truncated
// under us) is caught and returned as an error, as is any other panic of a task.
type Pool struct {
	workers int // the caller included

	// Of the running call; written while its state is closed and no helper active.
	fn    func(task, worker int)
	tasks int64

	_    [64]byte // what all workers write, apart from what they only read
	next atomic.Int64
	_    [56]byte
	// state of the call: its number, whether helpers may join, how many have.
	state atomic.Uint64
	fail  atomic.Pointer[error]

	mu            sync.Mutex
	work, idle    sync.Cond // new work for parked helpers; no helper active any more
	parked        int       // helpers that wait for work
	callerWaiting atomic.Bool
	stop          bool
	done          sync.WaitGroup
}

// The parts of Pool.state: number of the call << callShift | open flag | active helpers.
const (
	activeMask = 1<<16 - 1
	openFlag   = 1 << 16
	callShift  = 17
)

// NewPool starts a pool of n workers, the caller of Run among them; n < 1 counts as 1.
func NewPool(n int) *Pool {
	p := &Pool{workers: min(max(n, 1), activeMask)}
	p.work.L, p.idle.L = &p.mu, &p.mu
	for w := 1; w < p.workers; w++ {
		p.done.Add(1)
		go p.helper(w)
	}
	return p
}

// Workers is the number of workers; task functions see worker numbers below it.
func (p *Pool) Workers() int { return p.workers }

// Run calls fn(task, worker) once for each task in [0, tasks), spread over the
// workers, and returns when all are done. The order of tasks is not defined.
func (p *Pool) Run(tasks int, fn func(task, worker int)) error {
	if tasks <= 0 {
		return nil
	}
	p.fail.Store(nil)
	p.fn, p.tasks = fn, int64(tasks)
	p.next.Store(0)
	if p.workers == 1 || tasks == 1 {
		p.runTasks(0)
	} else {
		p.open()
		p.runTasks(0)
		p.close()
	}
	p.fn = nil
	if e := p.fail.Load(); e != nil {
		return *e
	}
	return nil
}

// open lets helpers join the call and wakes those that are parked.
func (p *Pool) open() {
	p.state.Store((p.state.Load()>>callShift+1)<<callShift | openFlag)
	p.mu.Lock()
	if p.parked > 0 {
		p.work.Broadcast()
	}
	p.mu.Unlock()
}

// close keeps helpers from joining and waits until those that have are done.
func (p *Pool) close() {
	p.state.And(^uint64(openFlag))
	active := func() bool { return p.state.Load()&activeMask != 0 }
	if !active() || !spin(active) {
		return
	}
	p.mu.Lock()
	p.callerWaiting.Store(true)
	for active() {
		p.idle.Wait()
	}
	p.callerWaiting.Store(false)
	p.mu.Unlock()
}

// spin waits until busy reports false, for spinTime at most, and returns its last
// answer.
func spin(busy func() bool) bool {
	start := time.Now()
	for {
		for range 32 {
			if !busy() {
				return false
			}
			pause()
		}
		if time.Since(start) > spinTime {
			return busy()
		}
		runtime.Gosched() // there may be fewer threads than workers
	}
}

// Close ends the helpers. The pool must not be running. A closed pool still works, on
// the caller alone.
func (p *Pool) Close() {
	p.mu.Lock()
	p.stop = true
	p.work.Broadcast()
	p.mu.Unlock()
	p.done.Wait()
}

func (p *Pool) helper(w int) {
	defer p.done.Done()
	seen := uint64(0) // the last call that this helper has looked at
	idle := func() bool { return p.state.Load()>>callShift == seen }
	for {
		if spin(idle) && !p.park(seen) {
			return
		}
		s := p.state.Load()
		seen = s >> callShift
		for s&openFlag != 0 && s>>callShift == seen {
			if p.state.CompareAndSwap(s, s+1) {
				p.runTasks(w)
				p.leave()
				break
			}
			s = p.state.Load()
		}
	}
}

// park waits for a call other than seen; false means that the pool is closed.
func (p *Pool) park(seen uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked++
	for p.state.Load()>>callShift == seen && !p.stop {
		p.work.Wait()
	}
	p.parked--
	return !p.stop
}

// leave is a helper's last act in a call.
func (p *Pool) leave() {
	// The caller sets callerWaiting before it looks at the state for the last time:
	// one of the two sees what the other did.
	if p.state.Add(^uint64(0))&activeMask == 0 && p.callerWaiting.Load() {
		p.mu.Lock()
		p.idle.Signal()
		p.mu.Unlock()
	}
}

func (p *Pool) runTasks(w int) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err := taskError(r)
			p.fail.CompareAndSwap(nil, &err)
			p.next.Store(p.tasks) // the other workers stop early
		}
	}()
	for {
		t := p.next.Add(1) - 1
		if t >= p.tasks {
			return
		}
		p.fn(int(t), w)
	}
}

// taskError turns what a task panicked with into an error. The runtime gives the panics
// of memory faults an address, and only those.
func taskError(r any) error {
	if _, ok := r.(interface{ Addr() uintptr }); ok {
		return fmt.Errorf("kernel: mapped weights could not be read: the model file was truncated while in use, or its disk failed")
	}
	return fmt.Errorf("kernel: task failed: %v", r)
}
