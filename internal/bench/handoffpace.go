package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"baton/internal/control"
	"baton/internal/handoff"
	"baton/internal/load"
)

// PaceOptions say what MeasurePace measures.
type PaceOptions struct {
	Baton   string // the program
	Model   string // GGUF file; empty: the built-in model
	Sizes   []int  // tokens of the long prompt
	Reps    int
	Trust   handoff.Trust
	Threads int
	Nice    int // how much the provider gives way
	Log     func(format string, args ...any)
}

// PaceResult is how evenly the tokens of an answer come in one situation.
type PaceResult struct {
	Model  string `json:"model"`
	Tokens int    `json:"tokens"` // of the long prompt
	// Case is idle, local (the decoder processes the long prompt) or provider.
	Case string `json:"case"`
	Gaps int    `json:"gaps"` // between two tokens, in all repetitions
	// The median, the 99th percentile and the largest gap, in milliseconds.
	Median float64 `json:"median_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
	// Prompt is how long the long prompt took to its first token, in seconds.
	Prompt float64 `json:"prompt_s"`
	// The CPU time that the two processes got meanwhile, in cores.
	DecoderCPU  float64 `json:"decoder_cores"`
	ProviderCPU float64 `json:"provider_cores"`
	Others      float64 `json:"others"` // what other processes used, as a share of all cores
}

// The cases.
const (
	paceIdle     = "idle"
	paceLocal    = "local"
	paceProvider = "provider"
)

// MeasurePace has one client read an answer while another one sends a long prompt, and
// measures the gaps between the tokens that the first one sees meanwhile.
func MeasurePace(ctx context.Context, o PaceOptions) (results []PaceResult, err error) {
	b, err := load.Open(o.Model)
	if err != nil {
		return nil, err
	}
	name, vocab, most := b.Name, b.Model.Vocab, b.Model.CtxTrain-handoffExtra
	if err := b.Close(); err != nil {
		return nil, err
	}
	for _, n := range o.Sizes {
		if n < 2 || n > most {
			return nil, fmt.Errorf("bench: prompts of %d tokens, expected 2 to %d, for which the model was made", n, most)
		}
		p := &paceRun{o: &o, n: n, vocab: vocab, ctx: min(most, 2*n+4096)}
		r, err := p.measure(ctx)
		if err != nil {
			return results, fmt.Errorf("%d tokens: %w", n, err)
		}
		for i := range r {
			r[i].Model, r[i].Tokens = name, n
		}
		results = append(results, r...)
	}
	return results, nil
}

// paceRun measures with prompts of one length.
type paceRun struct {
	o             *PaceOptions
	n, vocab, ctx int
	seed          uint64
	decoder       *decoderProcess
	provider      *child
}

func (p *paceRun) measure(ctx context.Context) (_ []PaceResult, err error) {
	o := p.o
	if p.decoder, err = startDecoder(ctx, o.Baton, o.Model, p.ctx, 2, o.Threads, "--handoff", o.Trust.String()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.decoder.stop()) }()
	args := []string{"prefill", "--connect", filepath.Join(p.decoder.dir, "provider.sock"), "--nice", strconv.Itoa(o.Nice), "-t", strconv.Itoa(o.Threads), "--trust", o.Trust.String()}
	if o.Model != "" {
		args = append(args, "-m", o.Model)
	}
	if p.provider, err = startChild(ctx, o.Baton, args...); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.provider.stop()) }()
	if err := p.warmUp(ctx); err != nil {
		return nil, err
	}
	cases := []PaceResult{{Case: paceIdle}, {Case: paceLocal}, {Case: paceProvider}}
	gaps := make([][]float64, len(cases))
	began := time.Now()
	if _, err := p.decoder.complete(ctx, p.next(), 1, -1); err != nil {
		return nil, err
	}
	idle := min(max(time.Since(began), 500*time.Millisecond), 3*time.Second)
	for range o.Reps {
		for i := range cases {
			g, took, err := p.run(ctx, &cases[i], idle)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cases[i].Case, err)
			}
			gaps[i] = append(gaps[i], g...)
			o.Log("%s: %d gaps in %.2f s", cases[i].Case, len(g), took.Seconds())
		}
	}
	for i := range cases {
		cases[i].summarize(gaps[i], o.Reps)
	}
	return cases, nil
}

// warmUp waits for the provider, and has it fill something.
func (p *paceRun) warmUp(ctx context.Context) (err error) {
	for range 200 {
		if err = p.handOver(ctx, p.next()); err == nil {
			return nil
		}
		select {
		case <-p.provider.exited:
			return p.provider.failed()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return err
}

// run reads an answer, and sends a long prompt meanwhile, unless the case is idle, which
// lasts as long as it is told. It adds to the sums in r.
func (p *paceRun) run(ctx context.Context, r *PaceResult, idle time.Duration) (gaps []float64, took time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := p.startReader(ctx)
	if err != nil {
		return nil, 0, err
	}
	select { // some tokens, for an even start
	case <-s.flowing:
	case <-s.ended:
		return nil, 0, fmt.Errorf("bench: the answer ended early: %w", s.err)
	}
	decoder, provider, all := cpuTime(p.decoder.pid), cpuTime(p.provider.pid), busyTicks(readText("/proc/stat"))
	began := time.Now()
	switch r.Case {
	case paceIdle:
		time.Sleep(idle)
	case paceLocal:
		_, err = p.decoder.complete(ctx, p.next(), 1, -1)
	case paceProvider:
		err = p.handOver(ctx, p.next())
	}
	end := time.Now()
	if err != nil {
		return nil, 0, err
	}
	took = end.Sub(began)
	decoder, provider = cpuTime(p.decoder.pid)-decoder, cpuTime(p.provider.pid)-provider
	busy := time.Duration(busyTicks(readText("/proc/stat"))-all) * tick
	select {
	case <-s.ended:
		return nil, 0, errors.New("bench: the answer ended before the long prompt was processed: choose a shorter one")
	default:
	}
	cancel()
	<-s.ended
	gaps = gapsBetween(s.times, began, end)
	r.Prompt += took.Seconds()
	r.DecoderCPU += float64(decoder) / float64(took)
	r.ProviderCPU += float64(provider) / float64(took)
	r.Others += max(0, float64(busy-decoder-provider)/float64(took)/float64(runtime.NumCPU()))
	return gaps, took, nil
}

// handOver has the provider process a prompt, and gets its first token.
func (p *paceRun) handOver(ctx context.Context, prompt []int32) error {
	var s control.ShareAnswer
	if err := p.decoder.slotAction(ctx, 1, "share", &control.ShareRequest{Provider: providerName, Tokens: prompt}, &s); err != nil {
		return err
	}
	if s.Filled != len(prompt)-1 {
		return fmt.Errorf("bench: the provider filled %d cells of %d: %s", s.Filled, len(prompt)-1, s.Stopped)
	}
	digest := handoff.PromptDigest(prompt)
	if err := p.decoder.slotAction(ctx, 1, "adopt", &control.AdoptRequest{ID: s.ID, Digest: &digest}, new(control.AdoptAnswer)); err != nil {
		return err
	}
	_, err := p.decoder.complete(ctx, prompt, 1, 1)
	return err
}

// next is a long prompt that nobody has seen before.
func (p *paceRun) next() []int32 {
	p.seed++
	rng := rand.New(rand.NewPCG(p.seed, 7))
	prompt := make([]int32, p.n)
	for i := range prompt {
		prompt[i] = rng.Int32N(int32(p.vocab))
	}
	return prompt
}

// reader notes when the tokens of an answer come.
type reader struct {
	flowing chan struct{} // closed when some are there
	ended   chan struct{}
	times   []time.Time // when it has ended
	err     error
}

func (p *paceRun) startReader(ctx context.Context) (*reader, error) {
	resp, err := p.decoder.send(ctx, "/completion", &completion{
		Prompt: []int32{1, 2, 3, 4, 5, 6, 7, 8}, N: p.ctx - 16, IgnoreEOS: true, Stream: true,
	})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("bench: POST /completion: %s", resp.Status), resp.Body.Close())
	}
	r := &reader{flowing: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		defer resp.Body.Close()
		r.read(resp.Body)
	}()
	return r, nil
}

func (r *reader) read(body io.Reader) {
	const some = 8
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "data: ") {
			continue
		}
		r.times = append(r.times, time.Now())
		if len(r.times) == some {
			close(r.flowing)
		}
	}
	r.err = lines.Err()
}

// gapsBetween is the milliseconds between two times in a row of which at least one is
// between began and end: also the gap that is open at either of them counts.
func gapsBetween(times []time.Time, began, end time.Time) (ms []float64) {
	for i := 1; i < len(times); i++ {
		if times[i].After(began) && times[i-1].Before(end) {
			ms = append(ms, float64(times[i].Sub(times[i-1]))/float64(time.Millisecond))
		}
	}
	return ms
}

// percentile is the smallest x that at least the share q of all are not above (the
// nearest-rank method); 0 of nothing.
func percentile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	i := int(q*float64(len(s)) + 0.9999999)
	return s[min(max(i-1, 0), len(s)-1)]
}

func (r *PaceResult) summarize(gaps []float64, reps int) {
	n := float64(reps)
	r.Gaps = len(gaps)
	r.Median, r.P99 = median(gaps), percentile(gaps, 0.99)
	_, r.Max = limits(gaps)
	r.Prompt, r.DecoderCPU, r.ProviderCPU, r.Others = r.Prompt/n, r.DecoderCPU/n, r.ProviderCPU/n, r.Others/n
}

// WritePace writes results as tables for people: each idle case and those behind it.
func WritePace(w io.Writer, results []PaceResult) error {
	for len(results) > 0 {
		n := 1
		for n < len(results) && results[n].Tokens == results[0].Tokens {
			n++
		}
		if err := writePace(w, results[:n]); err != nil {
			return err
		}
		results = results[n:]
	}
	return nil
}

func writePace(w io.Writer, results []PaceResult) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "%s, prompts of %d tokens beside an answer\n", results[0].Model, results[0].Tokens)
	fmt.Fprintf(tw, "case\tgaps\tmedian ms\tp99 ms\tmax ms\tprompt s\tdecoder, cores\tprovider, cores\n")
	p99, others := map[string]float64{}, 0.0
	for _, r := range results {
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%.2f\t%.2f\t%.2f\n", r.Case, r.Gaps, milliseconds(r.Median), milliseconds(r.P99), milliseconds(r.Max), r.Prompt, r.DecoderCPU, r.ProviderCPU)
		p99[r.Case] = r.P99
		others = max(others, r.Others)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, under := range []struct{ name, aim string }{{paceLocal, "at most 0.33"}, {paceIdle, "at most 2"}} {
		if p99[under.name] > 0 {
			fmt.Fprintf(w, "p99 with the provider / %s: %.2f (aim: %s)\n", under.name, p99[paceProvider]/p99[under.name], under.aim)
		}
	}
	if others > 0.08 {
		fmt.Fprintf(w, "other work used %.0f %% of the cores meanwhile: the figures are provisional\n", 100*others)
	}
	_, err := fmt.Fprintln(w)
	return err
}
