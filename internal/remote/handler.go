package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"baton/internal/engine"
)

// Handler serves an engine to clients in other processes. It is an http.Handler for all
// paths under /engine/.
type Handler struct {
	mux      *http.ServeMux
	instance string
	engine   atomic.Pointer[engine.Engine]
	expired  context.Context // has ended: for what is there without waiting

	cancel, cut         context.Context // end when generations are to be cancelled, connections closed
	cancelAll, closeAll context.CancelFunc

	mu      sync.Mutex
	running int
	closed  bool
	idle    chan struct{} // closed when closed and nothing runs
}

// NewHandler returns a handler that answers 503 until SetEngine.
func NewHandler() *Handler {
	h := &Handler{mux: http.NewServeMux(), instance: rand.Text(), idle: make(chan struct{})}
	h.cancel, h.cancelAll = context.WithCancel(context.Background())
	h.cut, h.closeAll = context.WithCancel(context.Background())
	ctx, end := context.WithCancel(context.Background())
	end()
	h.expired = ctx
	h.mux.HandleFunc("GET "+pathInfo, h.info)
	h.mux.HandleFunc("GET "+pathStats, h.stats)
	h.mux.HandleFunc("POST "+pathGenerate, h.generate)
	return h
}

// SetEngine makes the handler ready. It is called once.
func (h *Handler) SetEngine(e engine.Engine) { h.engine.Store(&e) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(instanceHeader, h.instance)
	h.mux.ServeHTTP(w, r)
}

// cancelGrace is how long cancelled generations get to deliver their last event.
const cancelGrace = 5 * time.Second

// Shutdown refuses new generations and waits for those that run. When ctx ends first
// they are cancelled, and ctx's error returned.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		if h.running == 0 {
			close(h.idle)
		}
	}
	h.mu.Unlock()
	select {
	case <-h.idle:
		return nil
	case <-ctx.Done():
	}
	h.cancelAll()
	select {
	case <-h.idle:
	case <-time.After(cancelGrace):
		h.closeAll() // of somebody who does not read
		<-h.idle
	}
	return context.Cause(ctx)
}

// enter reports whether a generation may start; then leave ends it.
func (h *Handler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.running++
	}
	return !h.closed
}

func (h *Handler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running--; h.closed && h.running == 0 {
		close(h.idle)
	}
}

var errLoading = &engine.Error{Code: engine.CodeAway, Message: "the model is loading"}

// ready returns the engine, or nil after it has answered that there is none yet.
func (h *Handler) ready(w http.ResponseWriter) engine.Engine {
	if e := h.engine.Load(); e != nil {
		return *e
	}
	refuse(w, errLoading)
	return nil
}

func (h *Handler) info(w http.ResponseWriter, _ *http.Request) {
	if e := h.ready(w); e != nil {
		answer(w, http.StatusOK, &infoMessage{protocol, e.Info()})
	}
}

func (h *Handler) stats(w http.ResponseWriter, _ *http.Request) {
	if e := h.ready(w); e != nil {
		answer(w, http.StatusOK, toStats(e.Stats()))
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	var buf bytes.Buffer
	if err := appendMessage(&buf, v); err != nil {
		http.Error(w, "remote: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // an error means that the client is gone
}

// refuse answers with err, which is also its own exact form on the wire.
func refuse(w http.ResponseWriter, err error) {
	e := fromError(err)
	status := http.StatusInternalServerError
	switch e.Code {
	case engine.CodeBadRequest, engine.CodeTooLong:
		status = http.StatusBadRequest
	case engine.CodeNoRoom, engine.CodeStopping, engine.CodeAway:
		status = http.StatusServiceUnavailable
	}
	answer(w, status, e)
}

func badRequest(format string, args ...any) *engine.Error {
	return &engine.Error{Code: engine.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// generate starts a generation and turns the connection into its stream of events.
func (h *Handler) generate(w http.ResponseWriter, r *http.Request) {
	e := h.ready(w)
	if e == nil {
		return
	}
	if got := r.Header.Get("Upgrade"); !strings.EqualFold(got, protocol) {
		w.Header().Set("Upgrade", protocol)
		answer(w, http.StatusUpgradeRequired, badRequest("remote: found the protocol %q, expected %s: both processes must be of one version", got, protocol))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		refuse(w, badRequest("remote: reading the request: %v", err))
		return
	}
	req, err := decodeRequest(body)
	if err != nil {
		refuse(w, badRequest("remote: reading the request: %v", err))
		return
	}
	if !h.enter() {
		refuse(w, &engine.Error{Code: engine.CodeStopping, Message: "the server is shutting down"})
		return
	}
	defer h.leave()
	gone, abandon := context.WithCancel(r.Context())
	defer abandon() // also stops a generation whose connection could not be taken over
	st, err := e.Generate(gone, req)
	if err != nil {
		refuse(w, err)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, fmt.Errorf("remote: taking the connection over: %w", err))
		return
	}
	watching := make(chan struct{})
	defer func() {
		conn.Close()
		<-watching
	}()
	defer context.AfterFunc(h.cancel, st.Cancel)()
	defer context.AfterFunc(h.cut, func() { conn.Close() })()
	go func() {
		defer close(watching)
		for {
			if _, err := rw.ReadByte(); err != nil { // the client is gone, or we are done
				abandon()
				return
			}
			st.Cancel()
		}
	}()
	_ = conn.SetDeadline(time.Time{}) // those of the HTTP server are over; a closed connection tells later
	s := &sender{conn: conn, stream: st, expired: h.expired}
	s.run(gone, h.instance)
}

// sender writes a generation's events to its connection.
type sender struct {
	conn    net.Conn
	stream  engine.Stream
	expired context.Context
	buf     bytes.Buffer
}

// maxBatch is how many bytes of events that wait are written at once, about.
const maxBatch = 64 << 10

// run sends events as they come, all that are there in one write, until the last one or
// until the client is gone.
func (s *sender) run(gone context.Context, instance string) {
	fmt.Fprintf(&s.buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n", protocol, instanceHeader, instance)
	for done := false; ; {
		if _, err := s.conn.Write(s.buf.Bytes()); err != nil || done {
			return
		}
		s.buf.Reset()
		ev, err := s.stream.Recv(gone)
		if gone.Err() != nil && err != nil {
			return
		}
		done = s.add(ev, err)
		for !done && s.buf.Len() < maxBatch {
			ev, err = s.stream.Recv(s.expired)
			if errors.Is(err, context.Canceled) {
				break // nothing waits
			}
			done = s.add(ev, err)
		}
	}
}

// add appends what Recv returned and reports whether it is the last event. A stream that
// breaks, or an event that cannot be sent, ends the generation with an error.
func (s *sender) add(ev engine.Event, err error) (done bool) {
	start := s.buf.Len()
	if err == nil {
		if err = appendEvent(&s.buf, &ev); err == nil {
			return ev.Kind == engine.Done
		}
		err = fmt.Errorf("remote: sending an event: %w", err)
	} else if errors.Is(err, io.EOF) {
		err = errors.New("remote: the engine's stream ended without a result")
	}
	s.buf.Truncate(start)
	s.stream.Cancel()
	// This one has nothing in it that cannot be sent.
	_ = appendEvent(&s.buf, &engine.Event{Kind: engine.Done, At: time.Now(), Result: &engine.Result{Reason: engine.Failed, Err: err, Slot: -1}})
	return true
}
