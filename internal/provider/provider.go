package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"baton/internal/handoff"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/model"
)

// Options says how a provider works.
type Options struct {
	Name string // that it registers with; default "cpu"
	// Trust are the modes that it keeps to; default leased and sealed. A provider that
	// is to keep its mappings between orders (attached) has to be told so.
	Trust []handoff.Trust
	// Threads computes; default: as many as this process may use.
	Threads int
	// MicroBatch is how many tokens go through the layers at once. Between two of them
	// a provider notices that it shall stop, and what it has filled counts in whole
	// ones. It changes no result. Default 256.
	MicroBatch int
	Log        *slog.Logger // default: discards
}

// Provider fills cells with the rows of one model. Its methods are safe for concurrent
// use, and orders of several decoders take turns.
type Provider struct {
	opt    Options
	layout *kv.Layout
	params map[string]string
	pool   *kernel.Pool

	turn   chan struct{} // holds a token while nobody computes
	runner *model.Runner
	runs   []kv.Run
}

// fill sets what is left to its default, and checks the rest.
func (o *Options) fill() error {
	if o.Name == "" {
		o.Name = "cpu"
	}
	if len(o.Trust) == 0 {
		o.Trust = []handoff.Trust{handoff.Leased, handoff.Sealed}
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.MicroBatch == 0 {
		o.MicroBatch = 256
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Threads < 1 || o.MicroBatch < 1 {
		return fmt.Errorf("provider: %d threads and micro-batches of %d tokens, expected at least 1 each", o.Threads, o.MicroBatch)
	}
	return nil
}

// New returns a provider of m, which stays the caller's and must outlive it. Close it.
func New(m *model.Model, o Options) (*Provider, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	params, err := m.HandoffParams()
	if err != nil {
		return nil, fmt.Errorf("provider: %w", err)
	}
	layout, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim})
	if err != nil {
		return nil, fmt.Errorf("provider: %w", err)
	}
	p := &Provider{opt: o, layout: layout, params: params, pool: kernel.NewPool(o.Threads), turn: make(chan struct{}, 1)}
	p.runner = model.NewRunner(m, p.pool, o.MicroBatch)
	p.turn <- struct{}{}
	return p, nil
}

// Close ends the threads. Nothing may be served any more.
func (p *Provider) Close() { p.pool.Close() }

// Serve works for the decoder at the other end of c until that closes the connection or
// ctx ends; then the order in work is given up within a micro-batch. It closes c.
func (p *Provider) Serve(ctx context.Context, c *net.UnixConn) error { return p.serve(ctx, c, false) }

// ServeOne is Serve for one order only.
func (p *Provider) ServeOne(ctx context.Context, c *net.UnixConn) error { return p.serve(ctx, c, true) }

func (p *Provider) serve(ctx context.Context, c *net.UnixConn, once bool) error {
	return handoff.Provide(ctx, c, handoff.ProviderOptions{
		Name: p.opt.Name, ReadsPrefix: true, Trust: p.opt.Trust, Once: once,
		Accept: func(*handoff.Welcome) (*kv.Layout, map[string]string, error) { return p.layout, p.params, nil },
		Prefill: func(ctx context.Context, j *handoff.Job) error {
			begun := time.Now()
			err := p.prefill(ctx, j)
			log := p.opt.Log.With("pos0", j.Pos0(), "cells", len(j.Tokens()), "ms", time.Since(begun).Milliseconds())
			switch {
			case err != nil:
				log.Warn("a prompt failed", "error", err)
			case ctx.Err() != nil:
				log.Debug("a prompt was given up")
			default:
				log.Debug("a prompt is done")
			}
			return err
		},
	})
}

// prefill computes the rows of a job. Stopping early is no error: what is filled is.
func (p *Provider) prefill(ctx context.Context, j *handoff.Job) error {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return nil
	}
	defer func() {
		clear(p.runs) // the blocks are unmapped next
		p.turn <- struct{}{}
	}()
	tokens := j.Tokens()
	for from := j.Pos0(); from < len(tokens) && ctx.Err() == nil; {
		to := min(from+p.runner.Max(), len(tokens))
		p.runs = j.Runs(0, to, p.runs[:0])
		if _, err := p.runner.Forward([]model.Chunk{{Tokens: tokens[from:to], Pos0: from, Runs: p.runs}}); err != nil {
			return err
		}
		if err := j.Advance(to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// Listen works for whoever connects to l, each on a connection of its own, until ctx
// ends. It closes l. Only decoders of this process's own user are served.
func (p *Provider) Listen(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return errors.Join(fmt.Errorf("provider: accept: %w", err), l.Close())
		}
		serving.Go(func() {
			err := checkUser(c)
			if err == nil {
				err = p.Serve(ctx, c)
			} else {
				_ = c.Close() // it is not to be spoken to
			}
			if err != nil {
				p.opt.Log.Warn("a decoder's connection ended", "error", err)
			}
		})
	}
}

// checkUser makes sure that the process at the other end is of this process's user: it
// gets to see what memory it sends filled, but also to keep this provider busy.
func checkUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return cerr
	}
	if err != nil {
		return fmt.Errorf("provider: ask who is at the other end: %w", err)
	}
	if want := os.Geteuid(); int(cred.Uid) != want {
		return fmt.Errorf("provider: user %d is at the other end, want %d", cred.Uid, want)
	}
	return nil
}
