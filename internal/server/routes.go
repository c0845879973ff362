package server

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"baton/internal/api"
)

// handler answers a request. An error it returns is sent by the caller; it returns nil
// when it has answered itself.
type handler func(s *Server, b *backend, w *response, r *http.Request) *api.Error

// route is a line of the API.
type route struct {
	pattern string // of http.ServeMux
	handler handler
	early   bool // works before the model is loaded and while draining
}

// routeTable is the whole API.
func routeTable() []route {
	return []route{
		{"GET /{$}", (*Server).index, false},
		{"GET /health", (*Server).health, true},
		{"GET /v1/health", (*Server).health, true},
		{"GET /metrics", (*Server).metricsPage, true},
		{"GET /models", (*Server).models, false},
		{"GET /v1/models", (*Server).models, false},
		{"GET /v1/models/{id...}", (*Server).model, false},
		{"GET /props", (*Server).props, false},
		{"GET /slots", (*Server).slots, false},
		{"POST /slots/{id}", (*Server).slotAction, false},
		{"POST /tokenize", (*Server).tokenize, false},
		{"POST /detokenize", (*Server).detokenize, false},
		{"POST /apply-template", (*Server).applyTemplate, false},
		{"POST /completion", generation(api.ParseNative), false},
		{"POST /completions", generation(api.ParseNative), false},
		{"POST /v1/completions", generation(api.ParseCompletion), false},
		{"POST /chat/completions", generation(api.ParseChat), false},
		{"POST /v1/chat/completions", generation(api.ParseChat), false},
	}
}

// absent are routes of llama-server that there are not, with what they are for: a client
// that needs one learns more from this than from a 404.
var absent = []struct{ pattern, what string }{
	{"POST /infill", "fill-in-the-middle"},
	{"POST /embedding", "embeddings"},
	{"POST /embeddings", "embeddings"},
	{"POST /v1/embeddings", "embeddings"},
	{"POST /rerank", "reranking"},
	{"POST /reranking", "reranking"},
	{"POST /v1/rerank", "reranking"},
	{"POST /v1/reranking", "reranking"},
	{"POST /v1/responses", "the Responses API"},
	{"POST /v1/messages", "the Messages API"},
	{"GET /lora-adapters", "adapters"},
	{"POST /lora-adapters", "adapters"},
}

// missing answers for an absent route.
func missing(what string) handler {
	return func(_ *Server, _ *backend, _ *response, r *http.Request) *api.Error {
		return &api.Error{Status: http.StatusNotImplemented, Type: api.TypeNotSupported, Code: "not_supported",
			Message: fmt.Sprintf("%s %s: %s: not supported", r.Method, r.URL.Path, what)}
	}
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	all := routeTable()
	for _, a := range absent {
		all = append(all, route{a.pattern, missing(a.what), false})
	}
	for _, rt := range all {
		mux.HandleFunc(rt.pattern, func(rw http.ResponseWriter, r *http.Request) {
			w := rw.(*response)
			b := s.backend.Load()
			err := s.checkState(b)
			if rt.early || err == nil {
				err = rt.handler(s, b, w, r)
			}
			if err != nil {
				s.fail(w, err)
			}
		})
	}
	return mux
}

// checkState refuses requests while the model is loading and while the server drains.
func (s *Server) checkState(b *backend) *api.Error {
	e := &api.Error{Status: http.StatusServiceUnavailable, Type: api.TypeUnavailable, RetryAfter: time.Second}
	switch {
	case s.work.isClosed():
		e.Message, e.Code = "the server is shutting down", "stopping"
	case b == nil:
		e.Message, e.Code = "the model is loading", "loading"
	default:
		return nil
	}
	return e
}

// lookup finds the route of a request, for the metrics, and makes errors of the mux's own
// plain-text answers.
func (s *Server) lookup(w *response, r *http.Request) (string, *api.Error) {
	h, pattern := s.mux.Handler(r)
	if pattern != "" && strings.HasPrefix(pattern, r.Method+" ") ||
		r.Method == http.MethodHead && strings.HasPrefix(pattern, "GET ") {
		_, path, _ := strings.Cut(pattern, " ")
		return strings.TrimSuffix(path, "{$}"), nil
	}
	probe := &probeWriter{header: http.Header{}}
	h.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		return "other", &api.Error{Status: http.StatusMethodNotAllowed, Type: api.TypeInvalidRequest, Code: "method_not_allowed",
			Message: fmt.Sprintf("%s: found method %s, expected %s", clip(r.URL.Path), clip(r.Method), allow)}
	}
	return "other", &api.Error{Status: http.StatusNotFound, Type: api.TypeNotFound, Code: "not_found",
		Message: fmt.Sprintf("%s: no such route", clip(r.URL.Path))}
}

// probeWriter keeps what a handler says without sending it.
type probeWriter struct {
	header http.Header
	status int
}

func (p *probeWriter) Header() http.Header { return p.header }

func (p *probeWriter) WriteHeader(status int) {
	if p.status == 0 {
		p.status = status
	}
}

func (p *probeWriter) Write(b []byte) (int, error) { return len(b), nil }
