package server

import (
	"sync"
	"time"
)

// gate counts what is running and can be closed, after which nothing new gets in.
type gate struct {
	mu     sync.Mutex
	n      int
	since  time.Time // when n became positive
	closed bool
	idle   chan struct{} // closed when closed and n == 0
}

// enter reports whether the caller may run; if so it must call leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if g.n++; g.n == 1 {
		g.since = time.Now()
	}
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.closed {
		close(g.idle)
	}
}

// close lets nothing in any more; the channel is closed once all have left.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		g.idle = make(chan struct{})
		if g.n == 0 {
			close(g.idle)
		}
	}
	return g.idle
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// busy returns since when something has been running without a break.
func (g *gate) busy() (since time.Time, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since, g.n > 0
}
