package server

import (
	"net/http"
	"strconv"
	"time"

	"baton/internal/engine"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the server's Prometheus series: our own names, and those of vLLM and
// llama-server that gateways and dashboards look for. What the engine counts is read from
// a snapshot when the page is asked for.
type metrics struct {
	registry *prometheus.Registry
	page     http.Handler
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	panics   prometheus.Counter
}

// series are the series of a model, which carry its name as vLLM's do.
type series struct {
	finished                *prometheus.CounterVec
	firstToken              prometheus.Histogram
	interToken, perToken    prometheus.Histogram // the same, under vLLM's new and old name
	e2e, queue              prometheus.Histogram
	prefill, decode         prometheus.Histogram
	promptTokens, genTokens prometheus.Histogram
}

// Buckets of vLLM's histograms (vllm/v1/metrics/loggers.py), with finer ones at the low
// end, where a small model on a CPU is.
var (
	firstTokenBuckets = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBuckets      = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestBuckets    = []float64{0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	countBuckets      = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000}
)

func newMetrics(s *Server) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "baton_http_requests_total", Help: "Requests answered."}, []string{"route", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "baton_http_request_seconds", Help: "Time from a request's header to the end of its answer.", Buckets: requestBuckets}, []string{"route"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "baton_panics_total", Help: "Panics that were caught; each is a bug."}),
	}
	m.registry.MustRegister(m.requests, m.latency, m.panics, &snapshot{s},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.page = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
	return m
}

// forModel registers the series of a model. It is called once.
func (m *metrics) forModel(name string) *series {
	labels := prometheus.Labels{"model_name": name}
	hist := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, ConstLabels: labels})
		m.registry.MustRegister(h)
		return h
	}
	s := &series{
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vllm:request_success_total", Help: "Generations finished, by reason.", ConstLabels: labels}, []string{"finished_reason"}),
		firstToken:   hist("vllm:time_to_first_token_seconds", "Time from a request's arrival to its first token.", firstTokenBuckets),
		interToken:   hist("vllm:inter_token_latency_seconds", "Time between two tokens of a generation.", tokenBuckets),
		perToken:     hist("vllm:time_per_output_token_seconds", "Time between two tokens of a generation.", tokenBuckets),
		e2e:          hist("vllm:e2e_request_latency_seconds", "Time from a request's arrival to its last token.", requestBuckets),
		queue:        hist("vllm:request_queue_time_seconds", "Time that a generation waited for a slot.", requestBuckets),
		prefill:      hist("vllm:request_prefill_time_seconds", "Time that processing the prompt took.", requestBuckets),
		decode:       hist("vllm:request_decode_time_seconds", "Time from a generation's first token to its last.", requestBuckets),
		promptTokens: hist("vllm:request_prompt_tokens", "Tokens of a prompt, cached ones included.", countBuckets),
		genTokens:    hist("vllm:request_generation_tokens", "Tokens of a generation.", countBuckets),
	}
	m.registry.MustRegister(s.finished)
	for _, reason := range []string{"stop", "length", "abort", "error"} {
		s.finished.WithLabelValues(reason)
	}
	return s
}

// request counts an answer. A status of 0 is a connection that ended before one.
func (m *metrics) request(route string, status int, d time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.latency.WithLabelValues(route).Observe(d.Seconds())
}

// token records a token that came d after the one before it.
func (s *series) token(d time.Duration) {
	v := max(d.Seconds(), 0)
	s.interToken.Observe(v)
	s.perToken.Observe(v)
}

// done records a generation that ended well.
func (s *series) done(r *engine.Result, prompt int, e2e time.Duration) {
	reason := "stop"
	if r.Reason == engine.StopLimit {
		reason = "length"
	}
	s.finished.WithLabelValues(reason).Inc()
	t := r.Timings
	s.e2e.Observe(e2e.Seconds())
	s.queue.Observe(t.Queue.Seconds())
	s.prefill.Observe(t.Prompt.Seconds())
	s.decode.Observe(t.Predicted.Seconds())
	s.promptTokens.Observe(float64(prompt))
	s.genTokens.Observe(float64(t.PredictedN))
}

// snapshot is a collector of what the engine counts.
type snapshot struct{ s *Server }

// Describe implements prometheus.Collector. Describing nothing makes the collector
// unchecked: which series there are depends on the engine.
func (*snapshot) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *snapshot) Collect(ch chan<- prometheus.Metric) {
	b := c.s.backend.Load()
	if b == nil {
		return
	}
	st := b.Engine.Stats()
	emit := func(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
		var names, values []string
		for i := 0; i+1 < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
	}
	gauge := func(name, help string, v float64, labels ...string) {
		emit(prometheus.GaugeValue, name, help, v, labels...)
	}
	counter := func(name, help string, v float64, labels ...string) {
		emit(prometheus.CounterValue, name, help, v, labels...)
	}
	c.own(b, st, gauge, counter)

	model := []string{"model_name", b.names[0]}
	gauge("vllm:num_requests_running", "Requests that have a slot.", float64(st.Running), model...)
	gauge("vllm:num_requests_waiting", "Requests that wait for a slot.", float64(st.Waiting), model...)
	gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks that running sequences use, 0 to 1.", ratio(float64(st.KVUsedBlocks), float64(st.KVTotalBlocks)), model...)
	counter("vllm:prompt_tokens_total", "Prompt tokens processed.", float64(st.PromptTokens), model...)
	counter("vllm:generation_tokens_total", "Tokens generated.", float64(st.GenTokens), model...)
	counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", float64(st.PromptTokens+st.CachedTokens), model...)
	counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", float64(st.CachedTokens), model...)

	counter("llamacpp:prompt_tokens_total", "Prompt tokens processed.", float64(st.PromptTokens))
	counter("llamacpp:prompt_seconds_total", "Time spent on prompts, in seconds.", st.PromptTime.Seconds())
	counter("llamacpp:tokens_predicted_total", "Tokens generated.", float64(st.GenTokens))
	counter("llamacpp:tokens_predicted_seconds_total", "Time spent on generation, in seconds.", st.GenTime.Seconds())
	gauge("llamacpp:prompt_tokens_seconds", "Mean prompt tokens per second.", ratio(float64(st.PromptTokens), st.PromptTime.Seconds()))
	gauge("llamacpp:predicted_tokens_seconds", "Mean generated tokens per second.", ratio(float64(st.GenTokens), st.GenTime.Seconds()))
	gauge("llamacpp:requests_processing", "Requests that have a slot.", float64(st.Running))
	gauge("llamacpp:requests_deferred", "Requests that wait for a slot.", float64(st.Waiting))
	gauge("llamacpp:kv_cache_usage_ratio", "Share of the KV blocks that running sequences use, 0 to 1.", ratio(float64(st.KVUsedBlocks), float64(st.KVTotalBlocks)))
	counter("llamacpp:n_decode_total", "Steps of the step loop.", float64(st.Steps))
}

type emitter func(name, help string, v float64, labels ...string)

// own emits the series under our own names.
func (c *snapshot) own(b *backend, st engine.Stats, gauge, counter emitter) {
	gauge("baton_info", "What is running; always 1.", 1, "version", c.s.cfg.Version, "model", b.names[0],
		"arch", b.info.Arch, "quant", b.info.Quant, "kernels", b.info.Kernels)
	busy := 0
	for _, slot := range st.Slots {
		if slot.Busy {
			busy++
		}
	}
	gauge("baton_slots", "Slots, by state.", float64(busy), "state", "busy")
	gauge("baton_slots", "Slots, by state.", float64(len(st.Slots)-busy), "state", "idle")
	gauge("baton_kv_blocks", "KV blocks, by use.", float64(st.KVUsedBlocks), "use", "running")
	gauge("baton_kv_blocks", "KV blocks, by use.", float64(st.KVCachedBlocks), "use", "cached")
	gauge("baton_kv_blocks", "KV blocks, by use.", float64(max(st.KVTotalBlocks-st.KVUsedBlocks-st.KVCachedBlocks, 0)), "use", "free")
	counter("baton_prompt_tokens_total", "Prompt tokens, by where their cells came from.", float64(st.PromptTokens-st.AdoptedTokens), "source", "processed")
	counter("baton_prompt_tokens_total", "Prompt tokens, by where their cells came from.", float64(st.AdoptedTokens), "source", "provider")
	counter("baton_prompt_tokens_total", "Prompt tokens, by where their cells came from.", float64(st.CachedTokens), "source", "cached")
	counter("baton_generated_tokens_total", "Tokens generated.", float64(st.GenTokens))
	counter("baton_steps_total", "Steps of the step loop.", float64(st.Steps))
	counter("baton_failed_requests_total", "Requests that the engine could not finish.", float64(st.Failed))
	for reason, n := range st.Recomputed {
		counter("baton_reprefill_tokens_total", "Prompt tokens processed again, by reason.", float64(n), "reason", reason)
	}
	if !st.LastStep.IsZero() {
		gauge("baton_last_step_age_seconds", "Time since the step loop last reported.", max(time.Since(st.LastStep).Seconds(), 0))
	}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
