package decoder

import (
	"context"
	"io"
	"sync"

	"baton/internal/engine"
)

// stream carries events from the step loop to one reader. The loop never waits for
// the reader: a queue of events can be no longer than the answer.
type stream struct {
	cancel func()

	mu     sync.Mutex
	events []engine.Event
	next   int
	closed bool
	wake   chan struct{} // capacity 1
}

func newStream(cancel func()) *stream {
	return &stream{cancel: cancel, wake: make(chan struct{}, 1)}
}

// send appends an event; one of kind Done closes the stream.
func (s *stream) send(e engine.Event) {
	s.mu.Lock()
	s.events = append(s.events, e)
	s.closed = s.closed || e.Kind == engine.Done
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Recv implements engine.Stream.
func (s *stream) Recv(ctx context.Context) (engine.Event, error) {
	for {
		s.mu.Lock()
		if s.next < len(s.events) {
			e := s.events[s.next]
			s.events[s.next] = engine.Event{} // let go of its text
			s.next++
			if s.next == len(s.events) {
				s.events, s.next = s.events[:0], 0
			}
			s.mu.Unlock()
			return e, nil
		}
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return engine.Event{}, io.EOF
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return engine.Event{}, ctx.Err()
		}
	}
}

// Cancel implements engine.Stream.
func (s *stream) Cancel() { s.cancel() }
