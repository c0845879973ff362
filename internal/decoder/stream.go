package decoder

import "baton/internal/engine"

// stream carries events from the step loop to one reader; it implements engine.Stream.
type stream struct {
	*engine.Queue
	cancel func()
}

func newStream(cancel func()) *stream { return &stream{engine.NewQueue(), cancel} }

// Cancel implements engine.Stream.
func (s *stream) Cancel() { s.cancel() }
