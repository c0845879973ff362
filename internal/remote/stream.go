package remote

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"baton/internal/engine"
)

// stream is a generation in the decoder's process; it implements engine.Stream. A
// goroutine moves its events into the queue, so that the decoder never waits for who
// reads them.
type stream struct {
	*engine.Queue
	conn io.ReadWriteCloser
	lost func(error) // told when the process is gone

	mu        sync.Mutex
	cancelled bool
	ended     bool
	timer     *time.Timer // closes the connection if a cancel brings nothing
}

// cancelLimit is how long a decoder may take to confirm a cancel: it does so after the
// step that is running. One that takes longer is given up.
const cancelLimit = 30 * time.Second

// Cancel implements engine.Stream. The decoder confirms it with the last event, so that
// the slot is free when the stream has ended.
func (s *stream) Cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancelled || s.ended {
		return
	}
	s.cancelled = true
	_, _ = s.conn.Write([]byte{'c'}) // it always fits; if the process is gone, read says so
	s.timer = time.AfterFunc(cancelLimit, func() { s.conn.Close() })
}

// read fills the queue until the last event.
func (s *stream) read() {
	lines := bufio.NewScanner(s.conn)
	lines.Buffer(make([]byte, 0, 4<<10), maxMessage)
	var err error
	for lines.Scan() {
		var ev engine.Event
		if ev, err = decodeEvent(lines.Bytes()); err != nil {
			err = fmt.Errorf("the decoder sent something that is no event: %w", err)
			break
		}
		if ev.Kind == engine.Done {
			s.end()
			s.Send(ev)
			return
		}
		s.Send(ev)
	}
	cancelled := s.end()
	r := &engine.Result{Slot: -1}
	switch {
	case cancelled:
		r.Reason, r.Err = engine.Cancelled, context.Canceled
	case err != nil:
		r.Reason, r.Err = engine.Failed, &engine.Error{Code: engine.CodeInternal, Message: "remote: " + err.Error()}
	default:
		if err = lines.Err(); err == nil {
			err = io.ErrUnexpectedEOF
		}
		s.lost(fmt.Errorf("the connection of a running request broke: %w", err))
		r.Reason, r.Err = engine.Failed, &engine.Error{Code: engine.CodeAway,
			Message: "the decoder process ended before the answer was complete: send the request again"}
	}
	s.Send(engine.Event{Kind: engine.Done, At: time.Now(), Result: r})
}

// end closes the connection and reports whether the request was cancelled.
func (s *stream) end() (cancelled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.conn.Close()
	if s.timer != nil {
		s.timer.Stop()
	}
	return s.cancelled
}
