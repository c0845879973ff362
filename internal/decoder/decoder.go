// Package decoder runs the model: it owns the KV blocks and the step loop. Every step
// serves all running requests: one token each for those that generate, and a bounded
// piece of the prompts that are still being processed.
//
// The loop is three verbs: schedule, run, deliver. Nothing else touches the model.
//
// It knows nothing of HTTP or chat templates; requests come as token ids.
package decoder

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"baton/internal/engine"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/model"
	"baton/internal/vocab"
)

// Options configure a Decoder. Zero values mean the defaults.
type Options struct {
	Slots      int   // requests that run at once; default 4
	Ctx        int   // positions a slot has; default: the model's context length, at most 8192
	Threads    int   // default: the cores this process may use
	MicroBatch int   // tokens a step; default 512
	KVBytes    int64 // limit of the KV pool; default: every slot full, and one slot's worth for the cache
	// StepTarget is how long a step may take while answers are being generated; it
	// bounds the piece of a prompt that is processed in between. Default 50 ms.
	StepTarget time.Duration
	// ShareReady is how many free blocks are kept ready for other processes to fill.
	ShareReady int
	Name, Path string // as Info reports them
}

// Decoder implements engine.Engine in this process.
type Decoder struct {
	opt   Options
	info  engine.Info
	model *model.Model
	vocab *vocab.Vocab
	eog   []int32 // end-of-generation tokens

	threads *kernel.Pool
	runner  *model.Runner
	blocks  *kv.Pool
	index   *kv.Index

	mu       sync.Mutex
	wake     *sync.Cond // signalled when queue, calls or stopping changes
	queue    []*task    // waiting for a slot, in order
	calls    []*call    // to be run by the step loop, between two steps
	stopping bool
	ended    bool        // the loop takes no more calls
	abort    atomic.Bool // cancel whatever still runs
	slots    []*slot     // the step loop's own
	batch    batch
	pace     pace
	rawRow   []float32 // a row of logits before sampling, for log probabilities

	statMu sync.Mutex
	stat   engine.Stats

	closers []func() // run when the loop has ended
	done    chan struct{}
	failed  error // what went wrong at the end
}

// New prepares a decoder for m and starts its step loop. Close ends it.
func New(m *model.Model, v *vocab.Vocab, opt Options) (*Decoder, error) {
	if v.Size() != m.Vocab {
		return nil, fmt.Errorf("decoder: the vocabulary has %d tokens, the model %d rows", v.Size(), m.Vocab)
	}
	if err := opt.fill(m); err != nil {
		return nil, err
	}
	layout, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim, Extra: shortBlocks})
	if err != nil {
		return nil, err
	}
	d := &Decoder{opt: opt, model: m, vocab: v, done: make(chan struct{})}
	d.wake = sync.NewCond(&d.mu)
	d.blocks, err = kv.NewPool(layout, kv.Options{MaxBlocks: opt.maxBlocks(layout), Ready: 2, ShareReady: opt.ShareReady, HugePages: true, Collapse: true})
	if err != nil {
		return nil, err
	}
	d.index = kv.NewIndex(d.blocks)
	d.threads = kernel.NewPool(opt.Threads)
	d.runner = model.NewRunner(m, d.threads, opt.MicroBatch)
	for id := range int32(v.Size()) {
		if v.IsEOG(id) {
			d.eog = append(d.eog, id)
		}
	}
	for i := range opt.Slots {
		d.slots = append(d.slots, &slot{id: i})
	}
	d.pace.target = opt.StepTarget
	d.describe(layout)
	go d.loop()
	return d, nil
}

func (o *Options) fill(m *model.Model) error {
	if o.Slots == 0 {
		o.Slots = 4
	}
	if o.Ctx == 0 {
		o.Ctx = min(m.CtxTrain, 8192)
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0) // knows affinity and cgroup quotas
	}
	if o.MicroBatch == 0 {
		o.MicroBatch = 512
	}
	if o.StepTarget == 0 {
		o.StepTarget = 50 * time.Millisecond
	}
	switch {
	case o.Slots < 1 || o.Slots > 1024:
		return fmt.Errorf("decoder: %d slots, expected 1 to 1024", o.Slots)
	case o.Ctx < 16:
		return fmt.Errorf("decoder: a context of %d positions, expected at least 16", o.Ctx)
	case o.Ctx > m.CtxTrain:
		return fmt.Errorf("decoder: a context of %d positions, the model was made for %d: ask for at most that", o.Ctx, m.CtxTrain)
	case o.Threads < 1 || o.Threads > 1024:
		return fmt.Errorf("decoder: %d threads, expected 1 to 1024", o.Threads)
	case o.MicroBatch < o.Slots || o.MicroBatch > 1<<16:
		return fmt.Errorf("decoder: micro-batches of %d tokens, expected at least one a slot (%d) and at most 65536", o.MicroBatch, o.Slots)
	}
	return nil
}

// shortBlocks is how many partly filled blocks a sequence may have in it: each prompt
// that another process fills leaves one behind, so a conversation of more turns has to
// process its beginning anew at some point.
const shortBlocks = 8

// maxBlocks is the pool's limit: every slot full, in the worst division into blocks,
// and as much as one slot for the cache.
func (o *Options) maxBlocks(l *kv.Layout) int {
	if o.KVBytes > 0 {
		return int(o.KVBytes / int64(l.BlockBytes))
	}
	return (o.Slots + 1) * l.BlocksFor(o.Ctx)
}

func (d *Decoder) describe(l *kv.Layout) {
	size, params := d.model.ModelBytes()
	d.info = engine.Info{
		Name: d.opt.Name, Path: d.opt.Path, Arch: d.model.Arch, Quant: d.model.Quant(), Params: params, ModelBytes: size,
		VocabSize: d.model.Vocab, CtxTrain: d.model.CtxTrain, CtxSlot: d.opt.Ctx, Slots: d.opt.Slots,
		Embd: d.model.Embd, Layers: d.model.Layers, Kernels: kernel.Active(), Threads: d.opt.Threads,
		KVBytes: uint64(d.opt.maxBlocks(l)) * uint64(l.BlockBytes), KVPerToken: l.CellBytes(),
	}
	if d.info.Name == "" {
		d.info.Name = d.model.Name
	}
	d.stat.Slots = make([]engine.SlotState, len(d.slots))
	for i := range d.stat.Slots {
		d.stat.Slots[i] = engine.SlotState{ID: i, NCtx: d.opt.Ctx, Remaining: -1}
	}
	d.stat.Recomputed = make(map[string]uint64)
	d.stat.LastStep = time.Now()
}

// Info implements engine.Engine.
func (d *Decoder) Info() engine.Info { return d.info }

// Generate implements engine.Engine.
func (d *Decoder) Generate(ctx context.Context, r *engine.Request) (engine.Stream, error) {
	if err := d.info.Check(r); err != nil {
		return nil, err
	}
	t := newTask(ctx, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		t.release()
		return nil, &engine.Error{Code: engine.CodeStopping, Message: "the server is shutting down"}
	}
	t.watch()
	d.queue = append(d.queue, t)
	d.wake.Signal()
	return t.out, nil
}

// Close stops taking requests, lets those that are queued or running finish until ctx
// ends, then cancels the rest and frees everything.
func (d *Decoder) Close(ctx context.Context) error {
	d.mu.Lock()
	d.stopping = true
	d.wake.Signal()
	d.mu.Unlock()
	select {
	case <-d.done:
	case <-ctx.Done():
		d.abort.Store(true) // the loop looks at it before every step
		<-d.done
	}
	return d.failed
}
