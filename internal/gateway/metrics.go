package gateway

import (
	"maps"
	"sync"
	"time"

	"baton/internal/engine"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of choosing a route, for the metrics.
const (
	resultOK        = "ok"        // all cells were adopted
	resultPartial   = "partial"   // some; the decoder processed the rest
	resultFailed    = "failed"    // none
	resultCancelled = "cancelled" // the client left
	resultChosen    = "chosen"    // local: too little is new for a handoff
	resultBusy      = "busy"      // local: too much is in line for the provider
)

// counts are the metrics of handoffs.
type counts struct {
	results  *prometheus.CounterVec
	phases   *prometheus.HistogramVec
	bytes    prometheus.Counter
	refusals *prometheus.CounterVec

	mu       sync.Mutex
	reworked map[string]uint64 // prompt tokens processed locally after all, by reason
}

// phaseBuckets reach from a handoff's own work to a provider's, in seconds.
var phaseBuckets = []float64{1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}

func newCounts() *counts {
	c := &counts{
		reworked: make(map[string]uint64),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "baton_handoff_total", Help: "Prompts, by the route of their cells and what came of it."}, []string{"route", "result"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "baton_handoff_seconds", Help: "Time that a handoff took, by phase.", Buckets: phaseBuckets}, []string{"phase"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "baton_handoff_bytes_copied_total", Help: "Bytes of K and V that handoffs copied."}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "baton_refusals_total", Help: "Handoffs that were refused, by reason."}, []string{"reason"}),
	}
	for _, result := range []string{resultOK, resultPartial, resultFailed, resultCancelled} {
		c.results.WithLabelValues(string(engine.RouteShared), result)
	}
	for _, result := range []string{resultChosen, resultBusy} {
		c.results.WithLabelValues(string(engine.RouteLocal), result)
	}
	for _, phase := range []string{"share", "prefill", "adopt"} {
		c.phases.WithLabelValues(phase)
	}
	return c
}

// Collectors are the metrics of handoffs, to be registered once.
func (h *Handoff) Collectors() []prometheus.Collector {
	c := h.counts
	return []prometheus.Collector{c.results, c.phases, c.bytes, c.refusals}
}

func (c *counts) result(route engine.Route, result string) {
	c.results.WithLabelValues(string(route), result).Inc()
}

func (c *counts) phase(name string, d time.Duration) {
	c.phases.WithLabelValues(name).Observe(d.Seconds())
}

func (c *counts) copied(n int64) { c.bytes.Add(float64(max(n, 0))) }

func (c *counts) refusal(reason string) { c.refusals.WithLabelValues(reason).Inc() }

// reprefill counts prompt tokens that the decoder had to process although a provider
// was asked to; the reason is the code of a refusal.
func (c *counts) reprefill(reason string, tokens int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reworked[reason] += uint64(max(tokens, 0))
}

// addTo adds those tokens to a snapshot that is the caller's own.
func (c *counts) addTo(st *engine.Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.reworked) == 0 {
		return
	}
	st.Recomputed = maps.Clone(st.Recomputed)
	if st.Recomputed == nil {
		st.Recomputed = make(map[string]uint64, len(c.reworked))
	}
	for reason, n := range c.reworked {
		st.Recomputed[reason] += n
	}
}
