package engine

import (
	"context"
	"io"
	"sync"
)

// Queue carries the events of one stream from their producer to one reader. The
// producer never waits: a queue of events can be no longer than the answer.
type Queue struct {
	mu     sync.Mutex
	events []Event
	next   int
	closed bool
	wake   chan struct{} // capacity 1
}

// NewQueue returns an empty queue.
func NewQueue() *Queue { return &Queue{wake: make(chan struct{}, 1)} }

// Send appends an event; one of kind Done is the last.
func (q *Queue) Send(e Event) {
	q.mu.Lock()
	q.events = append(q.events, e)
	q.closed = q.closed || e.Kind == Done
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Recv is Stream's. An event that is already there is returned even when ctx has ended.
func (q *Queue) Recv(ctx context.Context) (Event, error) {
	for {
		q.mu.Lock()
		if q.next < len(q.events) {
			e := q.events[q.next]
			q.events[q.next] = Event{} // let go of its text
			q.next++
			if q.next == len(q.events) {
				q.events, q.next = q.events[:0], 0
			}
			q.mu.Unlock()
			return e, nil
		}
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return Event{}, io.EOF
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}
