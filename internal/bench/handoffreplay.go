package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"baton/internal/handoff"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/load"
	"baton/internal/model"
	"baton/internal/quant"
	"baton/internal/statefile"
)

// providerName is what this process calls itself as a provider: the name of Baton's own,
// so that it is treated as that is.
const providerName = "cpu"

// replayer is a provider that computes the rows of one prompt once, or makes them up, and
// then copies them into the blocks of every order.
type replayer struct {
	model  *model.Model
	layout *kv.Layout
	params map[string]string
	trust  handoff.Trust
	// fingerprint of the model, for files
	fingerprint string
	pool        *kernel.Pool
	keys        *model.KeyRows

	blocks *kv.Pool
	rows   *kv.Sequence // the computed ones
	copy   *kv.Sequence // cells for a file to be restored to

	orders chan replayed
	last   replayed // of the order in work
}

// replayed is how an order went.
type replayed struct {
	times   handoff.OrderTimes
	cpu     time.Duration // that the copying used
	lastRow time.Time     // when it was done
}

func newReplayer(b *load.Bundle, threads int, trust handoff.Trust) (*replayer, error) {
	params, err := b.Model.HandoffParams()
	if err != nil {
		return nil, err
	}
	m := b.Model
	fingerprint, err := m.Fingerprint()
	if err != nil {
		return nil, err
	}
	layout, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim})
	if err != nil {
		return nil, err
	}
	return &replayer{
		model: m, layout: layout, params: params, trust: trust, fingerprint: fingerprint, pool: kernel.NewPool(threads), keys: model.NewKeyRows(m),
		orders: make(chan replayed, 1),
	}, nil
}

func (r *replayer) close() (err error) {
	for _, s := range []*kv.Sequence{r.rows, r.copy} {
		if s != nil {
			s.Free()
		}
	}
	if r.blocks != nil {
		err = r.blocks.Close()
	}
	r.keys.Close()
	r.pool.Close()
	return err
}

// makeRoom makes cells of this process's own for n tokens, twice.
func (r *replayer) makeRoom(n int) (err error) {
	if r.blocks, err = kv.NewPool(r.layout, kv.Options{MaxBlocks: 2 * r.layout.BlocksFor(n)}); err != nil {
		return err
	}
	r.rows, r.copy = r.blocks.NewSequence(), r.blocks.NewSequence()
	return nil
}

// compute fills cells with the rows of tokens.
func (r *replayer) compute(tokens []int32) (time.Duration, error) {
	if err := r.makeRoom(len(tokens)); err != nil {
		return 0, err
	}
	runner := model.NewRunner(r.model, r.pool, 256)
	began := time.Now()
	for from := 0; from < len(tokens); {
		to := min(from+runner.Max(), len(tokens))
		if err := r.rows.Append(tokens[from:to]...); err != nil {
			return 0, err
		}
		if _, err := runner.Forward([]model.Chunk{{Tokens: tokens[from:to], Pos0: from, Runs: r.rows.Runs(0, to, nil)}}); err != nil {
			return 0, err
		}
		from = to
	}
	return time.Since(began), nil
}

// makeUp fills cells with rows that mean nothing, but for those that are checked, the K
// rows of layer 0: moving them takes as long as moving others, and making them does not.
func (r *replayer) makeUp(tokens []int32) error {
	err := r.makeRoom(len(tokens))
	if err == nil {
		err = r.rows.Append(tokens...)
	}
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(len(tokens)), 9))
	noise := make([]uint16, 4096)
	for i := range noise {
		noise[i] = quant.F32ToF16(float32(rng.NormFloat64()))
	}
	pos := 0
	for _, run := range r.rows.Runs(0, len(tokens), nil) {
		for layer := range r.layout.Layers {
			for _, rows := range [][]uint16{run.K(layer), run.V(layer)} {
				for len(rows) > 0 {
					rows = rows[copy(rows, noise):]
				}
			}
		}
		positions := make([]int, run.Len)
		for i := range positions {
			positions[i] = pos + i
		}
		if err := r.keys.Compute(tokens[pos:pos+run.Len], positions, run.K(0)); err != nil {
			return err
		}
		pos += run.Len
	}
	return nil
}

// connect registers with the decoder of a run directory. The function returned ends the
// connection.
func (r *replayer) connect(ctx context.Context, dir string) (end func() error, err error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, "provider.sock"), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("bench: connecting to the decoder: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	welcome, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- handoff.Provide(ctx, c, handoff.ProviderOptions{
			Name: providerName, ReadsPrefix: true, Trust: []handoff.Trust{r.trust},
			Accept: func(*handoff.Welcome) (*kv.Layout, map[string]string, error) {
				close(welcome)
				return r.layout, r.params, nil
			},
			Prefill: r.prefill,
			Measured: func(t handoff.OrderTimes) {
				r.last.times = t
				r.orders <- r.last
			},
		})
	}()
	end = func() error {
		cancel()
		return <-ended
	}
	select {
	case <-welcome:
		return end, nil
	case err := <-ended:
		cancel()
		return nil, errors.Join(errors.New("bench: the decoder closed the connection"), err)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), end())
	}
}

// prefill replays the rows. The first token of the prompt is another one than that of the
// rows, so its K row of layer 0, which the decoder checks, is computed anew. What follows
// from it in deeper layers stays as it was: nobody reads the text of a measurement.
func (r *replayer) prefill(_ context.Context, j *handoff.Job) error {
	tokens := j.Tokens()
	if len(tokens) != r.rows.Len() || j.Pos0() != 0 {
		return fmt.Errorf("bench: an order of cells %d to %d, rows were computed for 0 to %d", j.Pos0(), len(tokens), r.rows.Len())
	}
	first := make([]uint16, r.layout.RowElems)
	if err := r.keys.Compute(tokens[:1], []int{0}, first); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadCPU()
	cells := j.Runs(0, len(tokens), nil)
	head := cells[0]
	copyRows(cells, r.rows.Runs(0, len(tokens), nil), r.layout.Layers)
	copy(head.K(0), first)
	err := j.Advance(len(tokens))
	r.last = replayed{cpu: threadCPU() - before, lastRow: time.Now()}
	return err
}

// save saves the rows to a file.
func (r *replayer) save(ctx context.Context, dir, name string) (took time.Duration, err error) {
	err = withStore(dir, func(store *statefile.Store) error {
		began := time.Now()
		_, err := store.Save(ctx, name, r.fingerprint, statefile.State{Layout: r.layout, Tokens: r.rows.Tokens(), Runs: r.rows.Runs(0, r.rows.Len(), nil)})
		took = time.Since(began)
		return err
	})
	return took, err
}

// restore restores a file into other cells.
func (r *replayer) restore(ctx context.Context, dir, name string) (took time.Duration, err error) {
	r.copy.Truncate(0)
	err = withStore(dir, func(store *statefile.Store) error {
		fit := statefile.Fit{Layout: r.layout, Vocab: r.model.Vocab, MaxTokens: r.rows.Len(), Model: r.fingerprint}
		began := time.Now()
		_, err := store.Restore(ctx, name, fit, func(tokens []int32) ([]kv.Run, error) {
			if err := r.copy.Append(tokens...); err != nil {
				return nil, err
			}
			return r.copy.Runs(0, len(tokens), nil), nil
		})
		took = time.Since(began)
		return err
	})
	return took, err
}

func withStore(dir string, f func(*statefile.Store) error) error {
	store, err := statefile.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f(store), store.Close())
}

// threadCPU is the CPU time of the calling thread.
func threadCPU() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// cpuTime is the CPU time of a process, those of its threads that have ended included; 0
// if it is gone. A process's clock has the number that clock_getcpuclockid(3) computes.
func cpuTime(pid int) time.Duration { return clock(int32(^pid)<<3 | 2) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
