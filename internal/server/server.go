// Package server puts an engine behind HTTP: routes, the guard before them (keys, origins,
// limits), server-sent events, metrics, draining.
//
// It knows no JSON shapes (package api does) and computes nothing: every handler but the
// generating ones answers from a snapshot, so that health, slots and metrics answer at
// once while a long prompt is processed.
package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"baton/internal/api"
	"baton/internal/engine"

	"github.com/prometheus/client_golang/prometheus"
)

// Templater renders conversations with the model's chat template.
type Templater interface {
	// Render returns the prompt for messages, a JSON array that package api has
	// checked. kwargs is a JSON object of further variables, or nil. An error is the
	// template's own refusal and is told to the client.
	Render(messages, kwargs json.RawMessage, addGenerationPrompt bool) ([]api.Part, error)
	// Source is the template's text.
	Source() string
}

// Backend is what there is once the model is loaded.
type Backend struct {
	Engine    engine.Engine
	Tokenizer api.Tokenizer
	Template  Templater // nil: chats are refused
	// SlotFiles saves and restores slots; nil: that is refused.
	SlotFiles engine.SlotFiles
	// Collectors are further metrics for the page.
	Collectors []prometheus.Collector
}

// Config configures a Server. The zero value of each field means its default.
type Config struct {
	// Aliases are names that the model is served under, the first being the one that
	// answers carry; requests may also use the model's own name and its file's.
	Aliases []string
	// Keys are the accepted API keys. With none, everybody who reaches the port may use
	// it, but web pages only from this machine or AllowOrigins.
	Keys []string
	// AllowOrigins are the origins whose web pages may use the server, "*" for all.
	// Default: all when there are keys, else those on a loopback address.
	AllowOrigins []string
	Version      string        // for /props and system_fingerprint
	MaxBody      int64         // bytes of a request's body; default 16 MiB
	BodyTimeout  time.Duration // for reading a request's body; default 1 min
	WriteTimeout time.Duration // for a write to make progress; default 30 s
	KeepAlive    time.Duration // between comments on a silent stream; default 10 s
	StallAfter   time.Duration // without a step while there is work: unhealthy; default 2 min
	Logger       *slog.Logger  // default: discards
}

// Server answers the HTTP API. It is an http.Handler; Serve adds sensible time-outs.
type Server struct {
	cfg     Config
	keys    [][sha256.Size]byte
	mux     *http.ServeMux
	metrics *metrics
	backend atomic.Pointer[backend]
	work    gate // generations
	httpd   *http.Server
	stop    context.CancelCauseFunc
	ctx     context.Context // ends when running generations must end
	started time.Time
}

// backend is a Backend with what is derived from it once.
type backend struct {
	Backend
	info   engine.Info
	names  []string
	limits api.Limits
	series *series
}

var errStopping = errors.New("the server is shutting down")

// New returns a server that answers 503 until SetBackend.
func New(cfg Config) *Server {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&cfg.BodyTimeout, time.Minute)
	def(&cfg.WriteTimeout, 30*time.Second)
	def(&cfg.KeepAlive, 10*time.Second)
	def(&cfg.StallAfter, 2*time.Minute)
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 16 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Version == "" {
		cfg.Version = "baton"
	}
	s := &Server{cfg: cfg, started: time.Now()}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	for _, k := range cfg.Keys {
		s.keys = append(s.keys, sha256.Sum256([]byte(k)))
	}
	s.metrics = newMetrics(s)
	s.mux = s.routes()
	s.httpd = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return s
}

// SetBackend makes the server ready. It is called once, when the model is loaded.
func (s *Server) SetBackend(b Backend) {
	info := b.Engine.Info()
	names := append([]string(nil), s.cfg.Aliases...)
	if info.Name != "" {
		names = append(names, info.Name)
	}
	// The file's name is a name too; its directory is nobody's business.
	if file := filepath.Base(info.Path); info.Path != "" && file != info.Name {
		names = append(names, file)
	}
	if len(names) == 0 {
		names = []string{"model"}
	}
	s.metrics.registry.MustRegister(b.Collectors...)
	s.backend.Store(&backend{
		Backend: b, info: info, names: names, series: s.metrics.forModel(names[0]),
		limits: api.Limits{Models: names, Vocab: info.VocabSize, Slots: info.Slots, Tokenizer: b.Tokenizer},
	})
}

// Serve answers connections of l until Shutdown; then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.httpd.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stopGrace is how long cancelled generations get to tell their clients.
const stopGrace = 5 * time.Second

// Shutdown drains the server: new requests are refused with 503, running ones finish.
// When ctx ends first they are cancelled, their clients told, and ctx's error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	idle := s.work.close()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = context.Cause(ctx)
		s.stop(errStopping)
		select {
		case <-idle:
		case <-time.After(stopGrace):
		}
	}
	s.stop(errStopping)
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.httpd.Shutdown(grace) != nil {
		_ = s.httpd.Close()
	}
	return err
}
