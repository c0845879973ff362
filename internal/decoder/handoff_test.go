package decoder

import (
	"context"
	"net"
	"os"
	"testing"

	"baton/internal/engine"
	"baton/internal/handoff"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/model"

	"golang.org/x/sys/unix"
)

// provide runs a provider of the decoder's own model in this process, over a socketpair,
// and returns when it is registered.
func provide(t *testing.T, d *Decoder, table *handoff.Table, trust handoff.Trust) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socketpair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		return c.(*net.UnixConn)
	}
	pool := kernel.NewPool(1)
	runner := model.NewRunner(d.model, pool, 64)
	params, err := d.model.HandoffParams()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- handoff.Provide(ctx, conn(fds[0]), handoff.ProviderOptions{
			Name: "test", ReadsPrefix: true, Trust: []handoff.Trust{trust},
			Accept: func(w *handoff.Welcome) (*kv.Layout, map[string]string, error) {
				l, err := kv.NewLayout(kv.Config{Layers: d.model.Layers, KVHeads: d.model.KVHeads, HeadDim: d.model.HeadDim})
				return l, params, err
			},
			Prefill: func(_ context.Context, j *handoff.Job) error {
				for from := j.Pos0(); from < len(j.Tokens()); from += runner.Max() {
					to := min(from+runner.Max(), len(j.Tokens()))
					_, err := runner.Forward([]model.Chunk{{Tokens: j.Tokens()[from:to], Pos0: from, Runs: j.Runs(0, to, nil)}})
					if err == nil {
						err = j.Advance(to)
					}
					if err != nil {
						return err
					}
				}
				return nil
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		pool.Close()
	})
	self, err := handoff.OpenProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Register(t.Context(), conn(fds[1]), handoff.Policy{Trust: trust, Process: self}); err != nil {
		t.Fatal(err)
	}
}

// handOver has a prompt filled by the provider and adopted into slot 0.
func handOver(t *testing.T, table *handoff.Table, prompt []int32) *handoff.Adopted {
	t.Helper()
	share, err := table.Share(t.Context(), &handoff.Request{Slot: 0, Provider: "test", Tokens: prompt})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := table.Wait(t.Context(), 0, share.ID); err != nil || out.Err != nil || out.Filled != len(prompt)-1 {
		t.Fatalf("wait: %+v, %v", out, err)
	}
	digest := handoff.PromptDigest(prompt)
	a, err := table.Adopt(t.Context(), &handoff.AdoptRequest{Slot: 0, ID: share.ID, Digest: &digest})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A prompt that another hand has filled is answered with the text of one filled here,
// after a single prompt token; and so is the conversation's next turn, of which the
// provider reads the beginning and fills only the rest.
func TestAdoptedPromptsGiveTheSameText(t *testing.T) {
	for _, trust := range []handoff.Trust{handoff.Leased, handoff.Sealed, handoff.Attached} {
		t.Run(trust.String(), func(t *testing.T) {
			d := start(t, Options{Slots: 2})
			table, err := d.NewTable(handoff.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := table.Close(); err != nil {
					t.Error(err)
				}
			}()
			provide(t, d, table, trust)
			for _, g := range golden(t)[2:4] {
				adopted := handOver(t, table, g.Tokens)
				// The prompts begin with the same few tokens.
				if adopted.Filled != len(g.Tokens)-1 || adopted.Pos0 > 16 {
					t.Errorf("%s: adopted %+v", g.Name, adopted)
				}
				r := greedy(g.Tokens, 32)
				r.Slot = 0
				a := ask(t, d, r)
				if a.text != g.Answer || a.Timings.PromptN != 1 || a.Timings.CacheN != len(g.Tokens)-1 {
					t.Errorf("%s: %q after %d prompt tokens, want %q after 1", g.Name, a.text, a.Timings.PromptN, g.Answer)
				}
				// The next turn.
				next := append(append(append([]int32{}, g.Tokens...), a.tokens...), golden(t)[2].Tokens...)
				adopted = handOver(t, table, next)
				if adopted.Pos0 < len(g.Tokens)-1 || adopted.Filled != len(next)-1 {
					t.Errorf("%s: next turn: adopted %+v", g.Name, adopted)
				}
				r = greedy(next, 16)
				r.Slot = 0
				shared := ask(t, d, r)
				local := greedy(next, 16)
				local.CachePrompt = false
				if want := ask(t, d, local); shared.text != want.text || shared.Timings.PromptN != 1 {
					t.Errorf("%s: next turn: %q after %d prompt tokens, want %q", g.Name, shared.text, shared.Timings.PromptN, want.text)
				}
			}
		})
	}
}

// An adopted prompt that nobody asks for does not take the room of those who do.
func TestKeptCellsGiveWay(t *testing.T) {
	d := start(t, Options{Slots: 2})
	table, err := d.NewTable(handoff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	provide(t, d, table, handoff.Leased)
	handOver(t, table, golden(t)[3].Tokens)
	r := greedy(golden(t)[0].Tokens, -1) // fills a slot to its end
	r.IgnoreEOS, r.Slot = true, 1
	if a := ask(t, d, r); a.Reason != engine.StopLimit || !a.ContextFull {
		t.Errorf("ended for %s: %v", a.Reason, a.Err)
	}
}
