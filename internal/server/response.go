package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"baton/internal/api"
)

// response is an http.ResponseWriter that remembers what was sent and gives every write a
// deadline: a client that stops reading makes a write fail instead of holding its slot.
type response struct {
	http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	status  int // 0: nothing sent yet
	written int64
}

// Unwrap lets http.ResponseController find the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend gives the next write its time. Writers that have no deadlines (in tests) do
// without.
func (w *response) extend() { _ = w.rc.SetWriteDeadline(time.Now().Add(w.timeout)) }

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// maxWrite is the most bytes that one deadline has to suffice for.
const maxWrite = 64 << 10

// Write implements http.ResponseWriter.
func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	total := 0
	for {
		part := b[:min(len(b), maxWrite)]
		w.extend()
		n, err := w.ResponseWriter.Write(part)
		total += n
		w.written += int64(n)
		if b = b[len(part):]; err != nil || len(b) == 0 {
			return total, err
		}
	}
}

const jsonType = "application/json; charset=utf-8"

// encode returns v as JSON, ending in a newline, with < and > as they are.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// send answers with v.
func (s *Server) send(w *response, status int, v any) {
	b, err := encode(v)
	if err != nil {
		s.cfg.Logger.Error("cannot encode an answer", "error", err)
		status = http.StatusInternalServerError
		b, _ = encode(internalError())
	}
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(b) // an error means that the client is gone
}

// fail answers with an error.
func (s *Server) fail(w *response, e *api.Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	s.send(w, e.Status, e)
}
