package provider

import (
	"context"
	"errors"
	"fmt"

	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/model"
)

// Alone processes tokens with no decoder at hand, in memory of this process, and calls
// use with their cells, which are gone when it returns: for writing them to a file.
func Alone(ctx context.Context, m *model.Model, tokens []int32, o Options, use func(l *kv.Layout, runs []kv.Run) error) (err error) {
	if err := o.fill(); err != nil {
		return err
	}
	l, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim})
	if err != nil {
		return err
	}
	blocks, err := kv.NewPool(l, kv.Options{MaxBlocks: l.BlocksFor(len(tokens)), HugePages: true})
	if err != nil {
		return err
	}
	pool := kernel.NewPool(o.Threads)
	seq := blocks.NewSequence()
	defer func() {
		seq.Free()
		pool.Close()
		err = errors.Join(err, blocks.Close())
	}()
	runner := model.NewRunner(m, pool, o.MicroBatch)
	if err := seq.Append(tokens...); err != nil {
		return err
	}
	for from := 0; from < len(tokens); from += o.MicroBatch {
		if ctx.Err() != nil {
			return fmt.Errorf("provider: stopped after %d of %d tokens: %w", from, len(tokens), context.Cause(ctx))
		}
		to := min(from+o.MicroBatch, len(tokens))
		c := model.Chunk{Tokens: tokens[from:to], Pos0: from, Runs: seq.Runs(0, to, nil)}
		if _, err := runner.Forward([]model.Chunk{c}); err != nil {
			return err
		}
	}
	return use(l, seq.Runs(0, len(tokens), nil))
}
