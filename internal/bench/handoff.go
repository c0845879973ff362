package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"baton/internal/control"
	"baton/internal/handoff"
	"baton/internal/kv"
	"baton/internal/load"
)

// HandoffOptions say what MeasureHandoffs measures.
type HandoffOptions struct {
	Baton   string // the program; "baton decode" of it is the decoder
	Model   string // GGUF file; empty: the built-in model
	Sizes   []int  // tokens of a prompt
	Reps    int
	Trust   handoff.Trust
	Threads int
	Llama   string // llamapeer's path; empty: llama.cpp is not measured
	Log     func(format string, args ...any)
}

// HandoffResult is what handoffs of prompts of one length take. All durations are in
// milliseconds.
type HandoffResult struct {
	Model  string        `json:"model"`
	Trust  handoff.Trust `json:"trust"`
	Tokens int           `json:"tokens"`
	Cells  int           `json:"cells"` // handed over: all tokens but the last
	Bytes  int64         `json:"bytes"` // of their rows
	Blocks int           `json:"blocks"`
	Reps   int           `json:"reps"`
	Steps  []HandoffStep `json:"steps"`
	// Others is what other processes used meanwhile, as a share of all cores.
	Others float64 `json:"others"`
	// Ratios compare figures of this run; those that lack one of them are left out.
	Ratios []HandoffRatio `json:"ratios"`
}

// HandoffStep is a part of a handoff, or what it is compared with.
type HandoffStep struct {
	Name   string    `json:"name"`
	Median float64   `json:"ms"`
	Low    float64   `json:"low"`
	High   float64   `json:"high"`
	Runs   []float64 `json:"runs"`
	What   string    `json:"what"` // is measured
}

// HandoffRatio is one figure over another, and the aim.
type HandoffRatio struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Aim   string  `json:"aim"`
	Met   bool    `json:"met"`
}

// The steps, in the order of the table.
const (
	stepFresh    = "share, fresh"
	stepFreshMap = "map, fresh"
	stepShare    = "share"
	stepEvict    = "share, evicting"
	stepMap      = "map"
	stepPrefill  = "prefill"
	stepCopy     = "memcpy"
	stepLetGo    = "let go"
	stepConfirm  = "confirm"
	stepVerify   = "verify"
	stepAttach   = "attach"
	stepAdopt    = "adopt"
	stepHandoff  = "handoff"
	stepFirst    = "first token"
	stepLocal    = "first, local"
	stepRow      = "row to token"
	stepCPU      = "CPU"
	stepRefill   = "CPU, refill"
	stepSave     = "save"
	stepRestore  = "restore"
	stepPeerSave = "llama save"
	stepPeerLoad = "llama restore"
)

var handoffSteps = []struct{ name, what string }{
	{stepFresh, "the first share of a new decoder, whose blocks have no pages yet"},
	{stepFreshMap, "the provider maps those and writes the header"},
	{stepShare, "blocks that are free, descriptors sent and acknowledged"},
	{stepEvict, "the same when the cache has to give up another prompt's blocks first"},
	{stepMap, "the provider maps recycled blocks and writes the header"},
	{stepPrefill, "the provider computes the rows, once; then they are replayed"},
	{stepCopy, "the replay: a plain copy of the rows into the blocks by one thread"},
	{stepLetGo, "the provider unmaps everything"},
	{stepConfirm, "the kernel's word that nobody can write any more (lease or seal)"},
	{stepVerify, "header and content"},
	{stepAttach, "on the step loop"},
	{stepAdopt, "confirm, verify and attach, from the parsed request to the slot being ready"},
	{stepHandoff, "share and adopt together"},
	{stepFirst, "the request after the adopt, to its first token, prompt_n 1"},
	{stepLocal, "the same request on a cache that the decoder filled itself"},
	{stepRow, "from the last row to the first token: let go, replies, adopt, first token"},
	{stepCPU, "CPU time of both processes for a handoff, without the replay, refill included"},
	{stepRefill, "of it, after the adopt: blocks made ready for the next share"},
	{stepSave, "Baton writes the same cells to a file, with its checksum, and syncs it"},
	{stepRestore, "Baton reads and verifies it into other cells"},
	{stepPeerSave, "llama.cpp writes its state file, not synced"},
	{stepPeerLoad, "llama.cpp reads Baton's file"},
}

// MeasureHandoffs measures handoffs between two processes: a decoder, and this one as
// its provider, which computes the rows of a prompt once for each length and then
// replays them. So what is measured is everything but computing.
func MeasureHandoffs(ctx context.Context, o HandoffOptions) (results []HandoffResult, err error) {
	b, err := load.Open(o.Model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	for _, n := range o.Sizes {
		if n < 2 || n+handoffExtra > b.Model.CtxTrain {
			return nil, fmt.Errorf("bench: prompts of %d tokens, expected 2 to %d, for which the model was made", n, b.Model.CtxTrain-handoffExtra)
		}
	}
	if o.Model != "" {
		if err := warmFile(o.Model); err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
	}
	for _, n := range o.Sizes {
		r, err := measureHandoff(ctx, &o, b, n)
		if err != nil {
			return results, fmt.Errorf("%d tokens: %w", n, err)
		}
		results = append(results, *r)
	}
	return results, nil
}

// handoffExtra is the room in a slot behind the prompt.
const handoffExtra = 32

// handoffRun is the measurement of one length.
type handoffRun struct {
	o       *HandoffOptions
	decoder *decoderProcess
	replay  *replayer
	prompt  []int32
	fresh   int // prompts made of it
	runs    map[string][]float64
	blocks  int
}

func measureHandoff(ctx context.Context, o *HandoffOptions, b *load.Bundle, n int) (_ *HandoffResult, err error) {
	h := &handoffRun{o: o, prompt: randomPrompt(n, b.Model.Vocab), runs: map[string][]float64{}}
	o.Log("%d tokens: computing their rows once here, and once in the decoder", n)
	if h.replay, err = newReplayer(b, o.Threads, o.Trust); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.replay.close()) }()
	prefill, err := h.replay.compute(h.prompt[:n-1])
	if err != nil {
		return nil, err
	}
	h.add(stepPrefill, prefill)
	if h.decoder, err = startDecoder(ctx, o.Baton, o.Model, n+handoffExtra, 1, o.Threads, "--handoff", o.Trust.String()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.decoder.stop()) }()
	provide, err := h.replay.connect(ctx, h.decoder.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, provide()) }()
	before, began := busyTicks(readText("/proc/stat")), time.Now()
	mine := h.cpu()
	if err := h.handoffs(ctx); err != nil {
		return nil, err
	}
	wall := time.Since(began) * time.Duration(runtime.NumCPU())
	busy := time.Duration(busyTicks(readText("/proc/stat"))-before) * tick
	others := max(0, float64(busy-(h.cpu()-mine))/float64(wall))
	if err := h.files(ctx); err != nil {
		return nil, err
	}
	r := &HandoffResult{
		Model: b.Name, Trust: o.Trust, Tokens: n, Cells: n - 1, Bytes: int64(n-1) * int64(h.replay.layout.CellBytes()),
		Blocks: h.blocks, Reps: o.Reps, Others: others,
	}
	r.summarize(h.runs)
	return r, nil
}

// handoffs hands prompts over, each followed by the same request on a local cache.
func (h *handoffRun) handoffs(ctx context.Context) error {
	if _, err := h.decoder.complete(ctx, h.prompt, 0, -1); err != nil {
		return err
	}
	const warmUps = 2
	for i := range warmUps + 2*h.o.Reps {
		runs := h.runs
		evicting := i >= warmUps+h.o.Reps
		if i < warmUps || evicting {
			h.runs = map[string][]float64{}
		}
		err := h.handoff(ctx, evicting)
		if err == nil {
			err = h.local(ctx)
		}
		switch {
		case i == 0:
			runs[stepFresh], runs[stepFreshMap] = h.runs[stepShare], h.runs[stepMap]
		case evicting && i > warmUps+h.o.Reps: // the first of these finds free blocks
			runs[stepEvict] = append(runs[stepEvict], h.runs[stepShare]...)
		}
		h.runs = runs
		if err != nil {
			return err
		}
	}
	return nil
}

// handoff hands one prompt over, and measures. Its cells stay in the cache, or are erased,
// so that their blocks are made ready for the next one.
func (h *handoffRun) handoff(ctx context.Context, keep bool) error {
	if err := h.decoder.settle(ctx); err != nil {
		return err
	}
	prompt := h.next()
	var s control.ShareAnswer
	cpu := h.cpu()
	if err := h.decoder.action(ctx, "share", &control.ShareRequest{Provider: providerName, Tokens: prompt}, &s); err != nil {
		return err
	}
	var order replayed
	select {
	case order = <-h.replay.orders:
	default:
		return errors.New("bench: the decoder answers a share that its provider was not asked for")
	}
	if s.Filled != len(prompt)-1 || s.Pos0 != 0 || s.Stopped != "" {
		return fmt.Errorf("bench: a share of %d cells from %d on was filled to %d: %s", len(prompt)-1, s.Pos0, s.Filled, s.Stopped)
	}
	h.blocks = len(s.Regions)
	var a control.AdoptAnswer
	digest := handoff.PromptDigest(prompt)
	if err := h.decoder.action(ctx, "adopt", &control.AdoptRequest{ID: s.ID, Digest: &digest, Require: "all"}, &a); err != nil {
		return err
	}
	adopted := h.cpu()
	took, err := h.decoder.complete(ctx, prompt, 0, 1)
	if err != nil {
		return err
	}
	first := time.Now()
	told := h.cpu()
	if !keep {
		if err := h.decoder.action(ctx, "erase", struct{}{}, new(struct{})); err != nil {
			return err
		}
	}
	if err := h.decoder.settle(ctx); err != nil {
		return err
	}
	refill := h.cpu() - told
	h.add(stepMap, order.times.Map)
	h.add(stepCopy, order.times.Prefill)
	h.add(stepLetGo, order.times.LetGo)
	h.addMS(stepShare, s.ShareMS)
	h.addMS(stepConfirm, a.ConfirmMS)
	h.addMS(stepVerify, a.VerifyMS)
	h.addMS(stepAttach, a.AttachMS)
	h.addMS(stepAdopt, a.AdoptMS)
	h.addMS(stepHandoff, s.ShareMS+a.AdoptMS)
	h.add(stepFirst, took)
	h.add(stepRow, first.Sub(order.lastRow))
	h.add(stepCPU, adopted-cpu-order.cpu+refill)
	h.add(stepRefill, refill)
	return nil
}

// local asks for the prompt that the decoder has processed itself.
func (h *handoffRun) local(ctx context.Context) error {
	if err := h.decoder.settle(ctx); err != nil {
		return err
	}
	took, err := h.decoder.complete(ctx, h.prompt, 0, 1)
	h.add(stepLocal, took)
	return err
}

// files saves and restores the same cells, and has llama.cpp do it.
func (h *handoffRun) files(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "baton-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	h.o.Log("%d tokens: files", len(h.prompt))
	const name = "state.bin"
	for i := range h.o.Reps + 1 {
		save, restore, err := h.replay.file(ctx, dir, name)
		if err != nil {
			return err
		}
		if i > 0 { // the first makes the pages of the cells
			h.add(stepSave, save)
			h.add(stepRestore, restore)
		}
	}
	if h.o.Llama == "" {
		return nil
	}
	p := &llamaState{path: h.o.Llama, model: h.o.Model, dir: dir, threads: h.o.Threads, reps: h.o.Reps}
	// The file holds the cells of all tokens but the last.
	if h.runs[stepPeerLoad], err = p.restore(ctx, h.prompt[:len(h.prompt)-1], filepath.Join(dir, name)); err != nil {
		return err
	}
	if len(h.prompt) > mostPeerPrefill {
		h.o.Log("llama.cpp's save is left out beyond %d tokens: it would have to process them first", mostPeerPrefill)
		return nil
	}
	h.runs[stepPeerSave], err = p.save(ctx, h.prompt[:len(h.prompt)-1])
	return err
}

// mostPeerPrefill is the longest prompt that llama.cpp is made to process, which takes it
// longer than everything else.
const mostPeerPrefill = 4096

// next is a prompt of its own, as the decoder has those before in its cache: it begins
// with another token.
func (h *handoffRun) next() []int32 {
	h.fresh++
	p := append([]int32(nil), h.prompt...)
	p[0] = (p[0] + int32(h.fresh)) % int32(h.replay.model.Vocab)
	return p
}

// cpu is the CPU time that both processes have used.
func (h *handoffRun) cpu() time.Duration { return cpuTime(h.decoder.pid) + cpuTime(os.Getpid()) }

func (h *handoffRun) add(step string, d time.Duration) {
	h.addMS(step, float64(d)/float64(time.Millisecond))
}

func (h *handoffRun) addMS(step string, v float64) { h.runs[step] = append(h.runs[step], v) }

// randomPrompt is n token ids, the same every time.
func randomPrompt(n, vocab int) []int32 {
	rng := rand.New(rand.NewPCG(uint64(n), 5))
	p := make([]int32, n)
	for i := range p {
		p[i] = rng.Int32N(int32(vocab))
	}
	return p
}

// summarize makes the table of a result out of the single runs.
func (r *HandoffResult) summarize(runs map[string][]float64) {
	get := map[string]float64{}
	for _, step := range handoffSteps {
		v := runs[step.name]
		if len(v) == 0 {
			continue
		}
		s := HandoffStep{Name: step.name, Median: median(v), Runs: v, What: step.what}
		s.Low, s.High = limits(v)
		r.Steps = append(r.Steps, s)
		get[step.name] = s.Median
	}
	ratio := func(name string, over, under float64, aim string, met func(x float64) bool) {
		if over > 0 && under > 0 {
			x := over / under
			r.Ratios = append(r.Ratios, HandoffRatio{name, x, aim, met(x)})
		}
	}
	ratio("llama.cpp's restore / handoff", get[stepPeerLoad], get[stepHandoff], "at least 100 at 12,722 tokens", func(x float64) bool { return x >= 100 })
	ratio("Baton's restore / handoff", get[stepRestore], get[stepHandoff], "-", func(float64) bool { return true })
	ratio("memcpy / handoff", get[stepCopy], get[stepHandoff], "-", func(float64) bool { return true })
	ratio("row to token / first, local", get[stepRow], get[stepLocal], "at most 1.1", func(x float64) bool { return x <= 1.1 })
	ratio("first token / first, local", get[stepFirst], get[stepLocal], "-", func(float64) bool { return true })
	ratio("map / the first engine's", get[stepMap], firstEngineMapMS(r.Bytes), "at most 0.1", func(x float64) bool { return x <= 0.1 })
	if v, ok := get[stepAdopt]; ok {
		r.Ratios = append(r.Ratios, HandoffRatio{"adopt, ms", v, "at most 0.5", v <= 0.5})
	}
}

// firstEngineMapMS is how long a provider took to map and first touch that many bytes in
// the engine that handoffs were first built for, on its machine: 40.6, 78.7 and 150.4 ms
// for 648 MiB, 1.1 and 2.8 GiB; in between on straight lines, and below from 0 on.
func firstEngineMapMS(bytes int64) float64 {
	points := []struct{ mib, ms float64 }{{0, 0}, {648, 40.6}, {1.1 * 1024, 78.7}, {2.8 * 1024, 150.4}}
	x := float64(bytes) / (1 << 20)
	for i := 1; ; i++ {
		a, b := points[i-1], points[i]
		if x <= b.mib || i == len(points)-1 {
			return a.ms + (x-a.mib)*(b.ms-a.ms)/(b.mib-a.mib)
		}
	}
}

// copyRows copies the rows of cells into as many others.
func copyRows(dst, src []kv.Run, layers int) {
	for len(dst) > 0 && len(src) > 0 {
		d, s := &dst[0], &src[0]
		n := min(d.Len, s.Len)
		to, from := kv.Run{Block: d.Block, Cell: d.Cell, Len: n}, kv.Run{Block: s.Block, Cell: s.Cell, Len: n}
		for l := range layers {
			copy(to.K(l), from.K(l))
			copy(to.V(l), from.V(l))
		}
		if d.Cell, d.Len = d.Cell+n, d.Len-n; d.Len == 0 {
			dst = dst[1:]
		}
		if s.Cell, s.Len = s.Cell+n, s.Len-n; s.Len == 0 {
			src = src[1:]
		}
	}
}
