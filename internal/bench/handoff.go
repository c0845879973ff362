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
	// MadeUp: replay rows that mean nothing, instead of computing them, which takes
	// minutes for long prompts.
	MadeUp bool
	Log    func(format string, args ...any)
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
	if h.replay, err = newReplayer(b, o.Threads, o.Trust); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.replay.close()) }()
	if err := h.makeRows(); err != nil {
		return nil, err
	}
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
		Blocks: h.blocks, Reps: o.Reps, MadeUp: o.MadeUp, Others: others,
	}
	r.summarize(h.runs)
	return r, nil
}

// makeRows makes the rows that are replayed, for all tokens but the last.
func (h *handoffRun) makeRows() error {
	tokens := h.prompt[:len(h.prompt)-1]
	if h.o.MadeUp {
		return h.replay.makeUp(tokens)
	}
	h.o.Log("%d tokens: computing their rows once", len(h.prompt))
	took, err := h.replay.compute(tokens)
	h.add(stepPrefill, took)
	return err
}

// handoffs hands prompts over, each followed by the same request on a local cache.
func (h *handoffRun) handoffs(ctx context.Context) error {
	if err := h.fillLocal(ctx); err != nil {
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

// fillLocal has the decoder fill blocks of its own with the prompt's cells. It reads them
// from a file, which is what it would compute, to the bit, and takes seconds, not minutes.
func (h *handoffRun) fillLocal(ctx context.Context) error {
	const name = "local.bin"
	dir := h.decoder.files()
	if _, err := h.replay.save(ctx, dir, name); err != nil {
		return err
	}
	var a struct {
		N int `json:"n_restored"`
	}
	if err := h.decoder.action(ctx, "restore", map[string]string{"filename": name}, &a); err != nil {
		return err
	}
	if a.N != len(h.prompt)-1 {
		return fmt.Errorf("bench: the decoder restored %d cells, expected %d", a.N, len(h.prompt)-1)
	}
	return os.Remove(filepath.Join(dir, name))
}

// local asks for the prompt whose cells are in blocks of the decoder's own.
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
		save, err := h.replay.save(ctx, dir, name)
		if err != nil {
			return err
		}
		restore, err := h.replay.restore(ctx, dir, name)
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
