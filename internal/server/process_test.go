package server_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"baton/internal/engine"
	"baton/internal/server"
	"baton/internal/server/servertest"
)

// elsewhere is an engine in another process, which gets the cells of its prompts from a
// third one.
type elsewhere struct {
	*servertest.Engine
	err error
}

func (e *elsewhere) Err() error { return e.err }

func (e *elsewhere) Generate(ctx context.Context, r *engine.Request) (engine.Stream, error) {
	st, err := e.Engine.Generate(ctx, r)
	return &handedOver{st}, err
}

type handedOver struct{ engine.Stream }

func (s *handedOver) Recv(ctx context.Context) (engine.Event, error) {
	ev, err := s.Stream.Recv(ctx)
	if ev.Result != nil {
		ev.Result.Timings.PromptN = 1
		ev.Result.Timings.Handoff = engine.Handoff{
			Route: engine.RouteShared, Trust: "leased", Cells: 5, Prefill: 20 * time.Millisecond, Took: 500 * time.Microsecond,
		}
	}
	return ev, err
}

func TestEngineElsewhere(t *testing.T) {
	e := &elsewhere{Engine: &servertest.Engine{Reply: "x"}}
	handoffs := prometheus.NewCounter(prometheus.CounterOpts{Name: "some_handoffs_total", Help: "Handoffs."})
	s := start(t, server.Config{}, nil)
	s.SetBackend(server.Backend{Engine: e, Tokenizer: servertest.Tokenizer{}, Collectors: []prometheus.Collector{handoffs}})

	const handoff = `"route":"shared","trust":"leased","cells":5,"prefill_ms":20,"handoff_ms":0.5,"bytes_copied":0`
	for _, path := range []string{"/v1/completions", "/completion"} {
		want(t, 200, readAll(t, s.post(t, path, `{"prompt": "secret"}`)), 200, handoff)
	}
	_, page := s.get(t, "/metrics")
	want(t, 200, page, 200, "some_handoffs_total 0")

	_, health := s.get(t, "/health")
	want(t, 200, health, 200, `"status":"ok"`)
	e.err = errors.New("the decoder is being restarted")
	status, health := s.get(t, "/health")
	want(t, status, health, http.StatusServiceUnavailable, "the decoder is being restarted", "decoder_away")
}
