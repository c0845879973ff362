package handoff

import (
	"context"
	"testing"
	"time"

	"baton/internal/kv"
)

// The handoff of a prompt of 12,722 tokens for a 0.6B model (50 blocks, 1.4 GiB), without
// the time that rows take to compute: neither the provider nor the check compute any.
func BenchmarkHandoff12k(b *testing.B) {
	l, err := kv.NewLayout(kv.Config{Layers: 28, KVHeads: 8, HeadDim: 128})
	if err != nil {
		b.Fatal(err)
	}
	pool, err := kv.NewPool(l, kv.Options{MaxBlocks: 50, ShareReady: -1, Collapse: true})
	if err != nil {
		b.Fatal(err)
	}
	calls, stop := make(chan func()), make(chan struct{})
	go func() {
		for {
			select {
			case f := <-calls:
				f()
			case <-stop:
				return
			}
		}
	}()
	do := func(_ context.Context, f func()) error {
		done := make(chan struct{})
		calls <- func() { f(); close(done) }
		<-done
		return nil
	}
	var adopted *kv.Sequence
	table, err := NewTable(Options{
		Pool: pool, Index: kv.NewIndex(pool), OnLoop: do, Slots: 1, Context: 20480, Vocab: 1 << 20,
		Attach:  func(_ int, s *kv.Sequence) error { adopted = s; return nil },
		KeyRows: func(context.Context, []int32, []int, []uint16) error { return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	ours, theirs := socketpair(b)
	ended := make(chan error)
	go func() {
		ended <- Provide(context.Background(), theirs, ProviderOptions{
			Name: "cpu", Trust: []Trust{Leased},
			Accept: func(*Welcome) (*kv.Layout, map[string]string, error) { return l, nil, nil },
			Prefill: func(_ context.Context, j *Job) error {
				for _, run := range j.Runs(0, len(j.Tokens()), nil) {
					clear(run.K(0)) // what KeyRows gives
				}
				return j.Advance(len(j.Tokens()))
			},
		})
	}()
	if _, err := table.Register(context.Background(), ours, Policy{}); err != nil {
		b.Fatal(err)
	}
	tokens := make([]int32, 12723)
	for i := range tokens {
		tokens[i] = int32(i * 7 % 150000)
	}
	digest := PromptDigest(tokens)
	var share, provider, confirm, verify, attach, adopt time.Duration
	handoff := func() {
		s, err := table.Share(context.Background(), &Request{Provider: "cpu", Tokens: tokens})
		if err != nil {
			b.Fatal(err)
		}
		at := time.Now()
		if out, err := table.Wait(context.Background(), 0, s.ID); err != nil || out.Err != nil {
			b.Fatal(err, out.Err)
		}
		provider += time.Since(at)
		a, err := table.Adopt(context.Background(), &AdoptRequest{ID: s.ID, Digest: &digest})
		if err != nil || a.Filled != 12722 {
			b.Fatal(a, err)
		}
		share, confirm, verify, attach, adopt = share+s.Took, confirm+a.Confirm, verify+a.Verify, attach+a.Attach, adopt+a.Took
		if err := do(context.Background(), adopted.Free); err != nil {
			b.Fatal(err)
		}
	}
	// The pool's goroutine makes the blocks ready again, and moves them to huge pages the
	// first time; that is not in a handoff.
	ready := func() {
		for pool.Stats().ShareReady < 50 {
			time.Sleep(time.Millisecond)
		}
	}
	handoff()
	ready()
	time.Sleep(3 * time.Second)
	share, provider, confirm, verify, attach, adopt = 0, 0, 0, 0, 0, 0
	rounds := 0
	for b.Loop() {
		handoff()
		rounds++
		b.StopTimer()
		ready()
		b.StartTimer()
	}
	for name, d := range map[string]time.Duration{
		"share": share, "provider": provider, "confirm": confirm, "verify": verify, "attach": attach, "adopt": adopt,
	} {
		b.ReportMetric(float64(d.Microseconds())/float64(rounds), name+"-µs")
	}
	if err := table.Close(); err != nil {
		b.Fatal(err)
	}
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	close(stop)
	if err := pool.Close(); err != nil {
		b.Fatal(err)
	}
}

// The parts of a share that grow with the prompt.

func BenchmarkDigests12k(b *testing.B) {
	tokens := prompt(1, 12723)
	for b.Loop() {
		promptDigests(tokens)
	}
}

func BenchmarkEncodeOrder12k(b *testing.B) {
	o := benchOrder(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := appendText(nil, &orderMessage{*o}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeOrder12k(b *testing.B) {
	text, err := appendText(nil, &orderMessage{*benchOrder(b)})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := decode(text); err != nil {
			b.Fatal(err)
		}
	}
}

func benchOrder(b *testing.B) *Order {
	l, err := kv.NewLayout(kv.Config{Layers: 28, KVHeads: 8, HeadDim: 128})
	if err != nil {
		b.Fatal(err)
	}
	o := &Order{Layout: layoutMessage(l, nil), Tokens: make([]int32, 12722)}
	for i := range o.Tokens {
		o.Tokens[i] = int32(i * 7 % 150000)
	}
	for i := range 50 {
		o.Regions = append(o.Regions, Region{Mode: ReadWrite, Block: uint64(i), FD: i + 1, Pos: 256 * i, Cells: min(256, 12722-256*i)})
	}
	return o
}
