package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"baton/internal/kernel"
	"baton/internal/quant"
)

// KernelOptions say what MeasureKernels measures.
type KernelOptions struct {
	Kernels []string     // names out of KernelNames; empty: all
	Types   []quant.Type // of the weights
	Shapes  [][2]int     // rows and columns of the weights
	Tokens  []int
	Threads []int
	Reps    int
}

// KernelNames lists the kernels that can be measured.
func KernelNames() []string {
	return []string{"matmul", "output", "attention", "quantize", "rmsnorm", "swiglu", "rope", "softmax"}
}

// KernelResult is one kernel on one shape. Times are the best of the repetitions: what
// the machine can do when nothing else wants it.
type KernelResult struct {
	Kernel  string  `json:"kernel"`
	Type    string  `json:"type,omitempty"` // of the weights
	Shape   string  `json:"shape"`          // rows x columns; heads/kv heads x head size; or length
	Tokens  int     `json:"tokens"`
	Depth   int     `json:"depth"` // cells before the tokens (attention)
	Threads int     `json:"threads"`
	Kernels string  `json:"kernels"` // the implementation
	Micros  float64 `json:"us"`      // of one call
	GBs     float64 `json:"gb_per_s"`
	GMACs   float64 `json:"gmac_per_s,omitempty"`
	// FloorMicros is what the call would take if it did nothing but read the same bytes
	// (Bound "memory"), or nothing but the multiply-adds (Bound "arithmetic"), whichever
	// takes longer; both rates were measured in the same run, ReadGBs and PeakGMACs.
	FloorMicros float64 `json:"floor_us"`
	Bound       string  `json:"bound"`
	Reached     float64 `json:"reached"` // FloorMicros / Micros
	ReadGBs     float64 `json:"read_gb_per_s"`
	PeakGMACs   float64 `json:"peak_gmac_per_s,omitempty"`
}

// kernelCase is one thing to run, over and over. Turns take different memory, so that
// weights come from where they come from in a model.
type kernelCase struct {
	result KernelResult
	turns  int
	run    func(turn int) error
	read   func(turn int) [][]byte // what a call must read, in pieces of some microseconds
	macs   int                     // multiply-adds of a call
	peak   func(n int) int         // the loop of nothing but those; nil where none counts
}

// MeasureKernels measures each kernel beside its floor. It reports each result as it
// comes, if report is not nil.
func MeasureKernels(ctx context.Context, o KernelOptions, report func(*KernelResult)) ([]KernelResult, error) {
	for _, k := range o.Kernels {
		if !slices.Contains(KernelNames(), k) {
			return nil, fmt.Errorf("bench: no kernel %q: there are %s", k, strings.Join(KernelNames(), ", "))
		}
	}
	var results []KernelResult
	for _, threads := range o.Threads {
		p := kernel.NewPool(threads)
		err := eachCase(p, o, func(c *kernelCase) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.result.Threads, c.result.Kernels = threads, kernel.Active()
			if err := c.measure(p, max(o.Reps, 1)); err != nil {
				return err
			}
			results = append(results, c.result)
			if report != nil {
				report(&c.result)
			}
			return nil
		})
		p.Close()
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// eachCase makes the cases one after another, as each takes up to some 100 MB.
func eachCase(p *kernel.Pool, o KernelOptions, do func(*kernelCase) error) error {
	wanted := func(name string) bool { return len(o.Kernels) == 0 || slices.Contains(o.Kernels, name) }
	for _, name := range []string{"matmul", "output"} {
		for _, t := range o.Types {
			for _, shape := range o.Shapes {
				if !wanted(name) {
					continue
				}
				w, err := newWeights(t, shape[0], shape[1])
				if err != nil {
					return err
				}
				for _, n := range o.Tokens {
					if err := do(w.product(p, name, n)); err != nil {
						return err
					}
				}
			}
		}
	}
	if wanted("attention") {
		for _, a := range []struct{ tokens, depth int }{{1, 512}, {1, 4096}, {512, 0}, {512, 1536}, {512, 7680}} {
			if err := do(attentionCase(p, a.tokens, a.depth)); err != nil {
				return err
			}
		}
	}
	for _, c := range vectorCases(p) {
		if wanted(c.result.Kernel) {
			if err := do(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure takes kernel, read loop and peak loop in turn, each as often as fills a
// window, and keeps the best of each.
func (c *kernelCase) measure(p *kernel.Pool, reps int) error {
	var pieces [][]byte
	readAll := func(turn int) error {
		pieces = c.read(turn)
		return p.Run(len(pieces), func(i, _ int) { kernel.ReadSum(pieces[i]) })
	}
	size := 0
	for _, b := range c.read(0) {
		size += len(b)
	}
	for turn := range c.turns { // makes buffers and fills page tables
		if err := c.run(turn); err != nil {
			return err
		}
	}
	call, read, mac := time.Hour, time.Hour, 0.0
	for range reps {
		d, err := window(c.turns, c.run)
		if err != nil {
			return err
		}
		call = min(call, d)
		if d, err = window(c.turns, readAll); err != nil {
			return err
		}
		read = min(read, d)
		if c.peak == nil {
			continue
		}
		rate, err := peakRate(p, c.peak)
		if err != nil {
			return err
		}
		if mac == 0 || rate > mac {
			mac = rate
		}
	}
	r := &c.result
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	r.Micros = micros(call)
	r.GBs = float64(size) / call.Seconds() / 1e9
	r.ReadGBs = float64(size) / read.Seconds() / 1e9
	r.FloorMicros, r.Bound = micros(read), "memory"
	if c.peak != nil {
		r.GMACs = float64(c.macs) / call.Seconds() / 1e9
		r.PeakGMACs = mac / 1e9
		if f := float64(c.macs) / mac * 1e6; f > r.FloorMicros {
			r.FloorMicros, r.Bound = f, "arithmetic"
		}
	}
	r.Reached = r.FloorMicros / r.Micros
	return nil
}

// windowTime is short enough to fall between two disturbances, most times.
const windowTime = 20 * time.Millisecond

// window calls fn until windowTime has passed and returns the best time of a call. It
// takes several calls together as one where a call is too short for the clock.
func window(turns int, fn func(turn int) error) (best time.Duration, err error) {
	start := time.Now()
	best = time.Hour
	for i, batch := 0, 1; ; {
		began := time.Now()
		for range batch {
			if err := fn(i % turns); err != nil {
				return 0, err
			}
			i++
		}
		now := time.Now()
		d := now.Sub(began)
		if best = min(best, d/time.Duration(batch)); d < 20*time.Microsecond {
			batch *= 2
		}
		if now.Sub(start) > windowTime && i >= 3 {
			return max(best, 1), nil
		}
	}
}

// peakRate is the multiply-adds that all threads together do in a second, at best.
func peakRate(p *kernel.Pool, peak func(n int) int) (float64, error) {
	const tasks, rounds = 64, 400
	macs := make([]int, tasks)
	d, err := window(1, func(int) error {
		return p.Run(tasks, func(i, _ int) { macs[i] = peak(rounds) })
	})
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, n := range macs {
		sum += n
	}
	return float64(sum) / d.Seconds(), nil
}

func randomFloats(n int) []float32 {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// pieces cuts memory for a pool's threads.
func pieces(b ...[]byte) (out [][]byte) {
	const most = 64 << 10
	for _, d := range b {
		for ; len(d) > 0; d = d[min(most, len(d)):] {
			out = append(out, d[:min(most, len(d))])
		}
	}
	return out
}
