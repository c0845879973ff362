package server

import (
	"net/http"
)

// eventStream writes server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
type eventStream struct {
	w *response
}

// openStream sends the header of a stream, so that the client knows before the first token
// that its request was accepted.
func openStream(w *response) (*eventStream, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	w.extend()
	return &eventStream{w}, w.rc.Flush()
}

// values sends each value as an event, all in one write.
func (s *eventStream) values(list []any) error {
	if len(list) == 0 {
		return nil
	}
	var buf []byte
	for _, v := range list {
		b, err := encode(v) // ends in the first of the two newlines
		if err != nil {
			return err
		}
		buf = append(append(append(buf, "data: "...), b...), '\n')
	}
	return s.write(buf)
}

// fail sends the error that ends the stream. OpenAI's clients look at the event's name,
// others at the key "error".
func (s *eventStream) fail(v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	return s.write(append(append([]byte("event: error\ndata: "), b...), '\n'))
}

// data sends a literal event.
func (s *eventStream) data(text string) error { return s.write([]byte("data: " + text + "\n\n")) }

// ping sends a comment, which clients ignore and proxies count as traffic.
func (s *eventStream) ping() error { return s.write([]byte(": keep-alive\n\n")) }

func (s *eventStream) write(b []byte) error {
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	s.w.extend()
	return s.w.rc.Flush()
}
