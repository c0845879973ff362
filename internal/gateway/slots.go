package gateway

import (
	"context"
	"slices"
	"sync"
)

// slots gives the decoder's slots to requests in order of arrival. A request for a
// certain slot that is busy lets later ones by.
type slots struct {
	mu     sync.Mutex
	holder []string // by slot, the id of the request that has it
	busy   []bool
	queue  []*place
}

// place is a request's place in the queue.
type place struct {
	want    int    // the slot asked for; < 0: any
	request string // its id
	got     chan int
}

func newSlots(n int) *slots {
	return &slots{holder: make([]string, n), busy: make([]bool, n)}
}

// enqueue takes a place at the end of the queue. It does not wait; see wait.
func (s *slots) enqueue(request string, want int) *place {
	p := &place{want: want, request: request, got: make(chan int, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, p)
	s.grant()
	return p
}

// wait waits for p's slot, which the caller has to release. An error is ctx's.
func (s *slots) wait(ctx context.Context, p *place) (int, error) {
	select {
	case id := <-p.got:
		if ctx.Err() == nil {
			return id, nil
		}
		p.got <- id // given back below
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, p); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		return -1, ctx.Err()
	}
	s.free(<-p.got) // it came at the same time
	return -1, ctx.Err()
}

// release gives a slot to the next in the queue.
func (s *slots) release(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(id)
}

func (s *slots) free(id int) {
	s.busy[id], s.holder[id] = false, ""
	s.grant()
}

// grant hands out free slots.
func (s *slots) grant() {
	s.queue = slices.DeleteFunc(s.queue, func(p *place) bool {
		id := p.want
		if id < 0 {
			id = slices.Index(s.busy, false)
		}
		if id < 0 || s.busy[id] {
			return false
		}
		s.busy[id], s.holder[id] = true, p.request
		p.got <- id
		return true
	})
}

// snapshot returns the id of the request that has each slot, "" for none, and the
// number of those waiting.
func (s *slots) snapshot() (holder []string, busy []bool, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.holder), slices.Clone(s.busy), len(s.queue)
}
