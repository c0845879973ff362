package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"

	"baton/internal/gguf"
	"baton/internal/modelfile"
)

// EngineOptions say what CompareEngines measures.
type EngineOptions struct {
	Model   string
	Threads int
	Prompts []int // lengths; each is a test at every depth
	Gen     int   // tokens to generate; 0: no such test
	Depths  []int
	Seqs    int // also generate in that many sequences together, at the first depth; 1: do not
	Reps    int
	// Baton and Peer are the command lines of the two engines for a context of ctx
	// cells and seqs sequences; Peer is nil when there is none.
	Baton, Peer func(ctx, seqs int) Program
	PeerName    string // as the results call it
	Priority    bool   // put the engines before all other work
	Log         func(format string, args ...any)
}

// Result is one test of one model: medians over the repetitions.
type Result struct {
	Test      string  `json:"test"` // pp512, tg64, ..., or load, first, rss
	Unit      string  `json:"unit"` // tokens/s, s or MiB
	Depth     int     `json:"depth"`
	Threads   int     `json:"threads"`
	Sequences int     `json:"sequences"`
	Type      string  `json:"type"` // of the weights, as the file calls itself
	Model     string  `json:"model"`
	Kernels   string  `json:"kernels"`
	PeerName  string  `json:"peer_name,omitempty"`
	Baton     float64 `json:"baton"`
	Peer      float64 `json:"peer,omitempty"`
	// Ratio is Baton / Peer. Spread is how far the ratios of the single repetitions lie
	// apart, (largest - smallest) / median; without a peer, the same of Baton's figures.
	Ratio  float64 `json:"ratio,omitempty"`
	Spread float64 `json:"spread"`
	Low    float64 `json:"low"` // the smallest and the largest ratio, or figure
	High   float64 `json:"high"`
	// Of the generation of one sequence: bytes that it had to read each second, the rate
	// of a plain read loop over the same bytes in the same run, and what part of it that
	// is; the peer's part, too.
	GBs           float64 `json:"gb_per_s,omitempty"`
	ReadGBs       float64 `json:"read_gb_per_s,omitempty"`
	Bandwidth     float64 `json:"bandwidth,omitempty"`
	PeerBandwidth float64 `json:"peer_bandwidth,omitempty"`
	// Scaling is the rate of all sequences together over that of one.
	Scaling float64 `json:"scaling,omitempty"`
	// Allocs is the fewest allocations that a repetition of Baton made for one token.
	Allocs float64 `json:"allocs_per_token,omitempty"`
	// How undisturbed the repetitions were, the worse of both engines, medians: Waited
	// is the part of the time that a thread was ready but had no core; Others is what
	// other processes used, as a share of all cores. Repeated counts the repetitions
	// thrown away because of that, by a rule that does not look at their speed.
	Waited   float64 `json:"waited"`
	Others   float64 `json:"others"`
	Repeated int     `json:"repeated,omitempty"`

	BatonRuns []float64 `json:"baton_runs,omitempty"`
	PeerRuns  []float64 `json:"peer_runs,omitempty"`
}

// Disturbed tells whether other work slowed a test so much that its figures say little.
func (r *Result) Disturbed() bool { return disturbed(r.Waited, r.Others, r.Threads) }

// disturbed: what Linux takes even from a real-time process, a twentieth, is allowed
// for; and others may use cores that the engine does not.
func disturbed(waited, others float64, threads int) bool {
	free := max(0, 1-float64(threads)/float64(runtime.NumCPU()))
	return waited > 0.08 || others > 0.08+free
}

// comparison is a running measurement.
type comparison struct {
	o           EngineOptions
	base        Result // what all results have in common
	baton, peer *process
	cell        float64 // bytes of a cell
	weights     float64 // bytes that a token reads
	results     []Result
}

// CompareEngines measures Baton, and a peer in turn with it, over one model.
func CompareEngines(ctx context.Context, o EngineOptions) ([]Result, error) {
	c := &comparison{o: o}
	if err := c.describe(); err != nil {
		return nil, err
	}
	if err := warmFile(o.Model); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	defer c.close()
	if err := c.startAll(ctx); err != nil {
		return nil, err
	}
	for _, t := range c.plan() {
		if err := c.measure(ctx, t); err != nil {
			return c.results, err
		}
		if t.Seqs > 1 {
			c.scale(&c.results[len(c.results)-1])
		}
	}
	return c.results, c.close()
}

func (c *comparison) describe() error {
	f, err := gguf.Open(c.o.Model)
	if err != nil {
		return err
	}
	defer f.Close()
	c.base = Result{Unit: "tokens/s", Threads: c.o.Threads, Sequences: 1, Type: modelfile.Quantization(f), Model: filepath.Base(c.o.Model), PeerName: c.o.PeerName}
	return nil
}

// plan lists the tests, depth by depth, so that the cells of a depth are made once;
// several sequences come last, as they need more memory.
func (c *comparison) plan() (tests []Test) {
	for _, d := range c.o.Depths {
		for _, n := range c.o.Prompts {
			tests = append(tests, Test{Kind: "pp", N: n, Depth: d, Seqs: 1})
		}
		if c.o.Gen > 0 {
			tests = append(tests, Test{Kind: "tg", N: c.o.Gen, Depth: d, Seqs: 1})
		}
	}
	if c.o.Seqs > 1 && c.o.Gen > 0 {
		tests = append(tests, Test{Kind: "tg", N: c.o.Gen, Depth: c.o.Depths[0], Seqs: c.o.Seqs})
	}
	return tests
}

// cells is the most that a sequence needs.
func (c *comparison) cells() (n int) {
	for _, t := range c.plan() {
		n = max(n, t.Depth+t.N)
	}
	return n
}

// startAll starts both engines some times over, for the time that takes, and leaves
// them running.
func (c *comparison) startAll(ctx context.Context) (err error) {
	load, first := c.base, c.base
	load.Test, load.Unit = "load", "s"
	first.Test, first.Unit = "first", "s"
	for i := range min(c.o.Reps, 3) {
		if i > 0 {
			if err := c.close(); err != nil {
				return err
			}
		}
		if c.baton, err = c.startOne(ctx, c.o.Baton, &load.BatonRuns, &first.BatonRuns); err != nil {
			return err
		}
		if c.o.Peer != nil {
			if c.peer, err = c.startOne(ctx, c.o.Peer, &load.PeerRuns, &first.PeerRuns); err != nil {
				return err
			}
		}
	}
	if c.cell, err = c.baton.info.number("cell"); err != nil {
		return err
	}
	if c.weights, err = c.baton.info.number("weights"); err != nil {
		return err
	}
	c.base.Kernels = c.baton.info["kernels"]
	for _, r := range []*Result{&load, &first} {
		r.Kernels = c.base.Kernels
		c.add(r)
	}
	return nil
}

func (c *comparison) startOne(ctx context.Context, program func(ctx, seqs int) Program, load, first *[]float64) (*process, error) {
	p, err := start(ctx, program(c.cells(), max(c.o.Seqs, 1)), c.o.Priority)
	if err != nil {
		return nil, err
	}
	s, err := p.run(Test{Kind: "tg", N: 1, Seqs: 1}.line())
	if err == nil {
		err = p.settle(ctx)
	}
	*load = append(*load, p.load.Seconds())
	*first = append(*first, p.load.Seconds()+s.seconds)
	return p, err
}

func (c *comparison) close() (err error) {
	for _, p := range []**process{&c.baton, &c.peer} {
		if *p != nil {
			if e := (*p).stop(); err == nil {
				err = e
			}
			*p = nil
		}
	}
	return err
}

// measure runs one test: both engines in turn, which begins changing each time.
func (c *comparison) measure(ctx context.Context, t Test) error {
	r := c.base
	r.Test, r.Depth, r.Sequences = t.Name(), t.Depth, t.Seqs
	if t.Seqs == 1 && !c.hasMemory() && t.Depth == c.o.Depths[len(c.o.Depths)-1] && t.Kind == "tg" {
		defer c.addMemory() // before several sequences take more
	}
	engines := []*process{c.baton}
	if c.peer != nil {
		engines = append(engines, c.peer)
	}
	for _, p := range engines {
		if _, err := p.run(t.warmUp().line()); err != nil {
			return err
		}
		if err := p.settle(ctx); err != nil {
			return err
		}
	}
	var reads, waited, others []float64
	r.Allocs = -1
	for try := 0; len(r.BatonRuns) < c.o.Reps; try++ {
		var figures [2]float64
		var wait, other float64
		for i := range engines {
			i = (i + try) % len(engines)
			s, err := engines[i].run(t.line())
			if err == nil {
				err = engines[i].settle(ctx)
			}
			if err != nil {
				return err
			}
			figures[i] = float64(t.Tokens()) / s.seconds
			wait, other = max(wait, s.waited), max(other, s.others)
			if i == 0 {
				r.countAllocs(s, t)
			}
		}
		if disturbed(wait, other, c.o.Threads) && r.Repeated < 2*c.o.Reps {
			r.Repeated++
			continue
		}
		if t.Kind == "tg" && t.Seqs == 1 {
			rate, err := c.read(ctx, t.Depth)
			if err != nil {
				return err
			}
			reads = append(reads, rate)
		}
		waited, others = append(waited, wait), append(others, other)
		r.BatonRuns = append(r.BatonRuns, figures[0])
		if c.peer != nil {
			r.PeerRuns = append(r.PeerRuns, figures[1])
		}
	}
	r.Waited, r.Others = median(waited), median(others)
	c.add(&r)
	if len(reads) > 0 {
		c.bandwidth(&c.results[len(c.results)-1], t, median(reads))
	}
	return nil
}

func (r *Result) countAllocs(s sample, t Test) {
	n, err := strconv.ParseFloat(s.answer["allocs"], 64)
	if err != nil {
		return
	}
	if n /= float64(t.Tokens()); r.Allocs < 0 || n < r.Allocs {
		r.Allocs = n
	}
}

// read is the rate, in GB/s, of a plain loop over what a token at that depth reads.
func (c *comparison) read(ctx context.Context, depth int) (float64, error) {
	best := 0.0
	for range 3 {
		s, err := c.baton.run(fmt.Sprintf("read %d", depth))
		if err != nil {
			return 0, err
		}
		bytes, err := s.answer.number("bytes")
		if err != nil {
			return 0, err
		}
		best = max(best, bytes/s.seconds/1e9)
	}
	return best, c.baton.settle(ctx)
}

// bandwidth fills in how much of the read rate the generation of t used: each token
// reads the weights, and the cells before it.
func (c *comparison) bandwidth(r *Result, t Test, read float64) {
	bytes := c.weights + (float64(t.Depth)+float64(t.N-1)/2)*c.cell
	r.ReadGBs = read
	r.GBs = bytes * r.Baton / 1e9
	r.Bandwidth = r.GBs / read
	r.PeerBandwidth = bytes * r.Peer / 1e9 / read
}

// add completes a result from its repetitions and keeps it.
func (c *comparison) add(r *Result) {
	r.Allocs = max(r.Allocs, 0)
	r.summarize()
	c.results = append(c.results, *r)
	if c.o.Log != nil {
		c.o.Log("%s", resultLine(r))
	}
}

func (r *Result) summarize() {
	r.Baton, r.Peer = median(r.BatonRuns), median(r.PeerRuns)
	figures := r.BatonRuns
	mid := r.Baton
	if len(r.PeerRuns) > 0 {
		figures = make([]float64, len(r.PeerRuns))
		for i := range figures {
			figures[i] = r.BatonRuns[i] / r.PeerRuns[i]
		}
		r.Ratio = r.Baton / r.Peer
		mid = r.Ratio
	}
	r.Low, r.High = limits(figures)
	if mid > 0 {
		r.Spread = (r.High - r.Low) / mid
	}
}

func (c *comparison) hasMemory() bool {
	for i := range c.results {
		if c.results[i].Test == "rss" {
			return true
		}
	}
	return false
}

func (c *comparison) addMemory() {
	r := c.base
	r.Test, r.Unit = "rss", "MiB"
	peak := func(p *process) []float64 {
		bytes, _ := memory(p.pid)
		return []float64{float64(bytes) / (1 << 20)}
	}
	r.BatonRuns = peak(c.baton)
	if c.peer != nil {
		r.PeerRuns = peak(c.peer)
	}
	c.add(&r)
}

// scale compares several sequences with one.
func (c *comparison) scale(r *Result) {
	for i := range c.results {
		if one := &c.results[i]; one.Test == r.Test && one.Depth == r.Depth && one.Sequences == 1 && one.Baton > 0 {
			r.Scaling = r.Baton / one.Baton
		}
	}
}
