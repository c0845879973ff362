package kernel

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// spinRounds is how often a worker looks for new work before it parks. Between two
// steps of a forward pass there are a few microseconds; waking a parked goroutine
// takes longer than that, a parked one costs nothing while the process is idle.
const spinRounds = 4000

// Pool runs the tasks of one kernel call at a time on a fixed set of goroutines. It
// creates no goroutine and allocates nothing per call. Run is for one caller at a
// time.
//
// A memory fault while a task reads mapped weights (the model file was truncated
// under us) is caught and returned as an error, as is any other panic of a task.
type Pool struct {
	workers int // the caller included

	fn    func(task, worker int)
	tasks int64
	next  atomic.Int64  // the next task to hand out
	left  atomic.Int64  // helpers that have not finished this call
	epoch atomic.Uint64 // counts calls; helpers wait for it to change
	stop  atomic.Bool
	fail  atomic.Pointer[error]

	mu     sync.Mutex
	cond   *sync.Cond
	parked int
	done   sync.WaitGroup
}

// NewPool starts a pool of n workers, the caller of Run among them; n < 1 counts as 1.
func NewPool(n int) *Pool {
	p := &Pool{workers: max(n, 1)}
	p.cond = sync.NewCond(&p.mu)
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
		p.work(0)
		return p.failure()
	}
	p.left.Store(int64(p.workers - 1))
	p.epoch.Add(1)
	p.mu.Lock()
	if p.parked > 0 {
		p.cond.Broadcast()
	}
	p.mu.Unlock()
	p.work(0)
	for i := 0; p.left.Load() != 0; i++ {
		if i > spinRounds {
			runtime.Gosched()
		}
	}
	return p.failure()
}

func (p *Pool) failure() error {
	p.fn = nil
	if e := p.fail.Load(); e != nil {
		return *e
	}
	return nil
}

// Close ends the helpers. The pool must not be running.
func (p *Pool) Close() {
	p.stop.Store(true)
	p.epoch.Add(1)
	p.mu.Lock()
	p.cond.Broadcast()
	p.mu.Unlock()
	p.done.Wait()
}

func (p *Pool) helper(w int) {
	defer p.done.Done()
	seen := uint64(0)
	for {
		seen = p.await(seen)
		if p.stop.Load() {
			return
		}
		p.work(w)
		p.left.Add(-1)
	}
}

// await returns the epoch once it differs from seen: spinning first, then parked.
func (p *Pool) await(seen uint64) uint64 {
	for i := 0; i < spinRounds; i++ {
		if e := p.epoch.Load(); e != seen {
			return e
		}
		if i&63 == 63 {
			runtime.Gosched()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked++
	for p.epoch.Load() == seen {
		p.cond.Wait()
	}
	p.parked--
	return p.epoch.Load()
}

func (p *Pool) work(w int) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err := fmt.Errorf("kernel: worker %d: %v", w, r)
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
