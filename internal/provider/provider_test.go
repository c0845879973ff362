package provider_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"baton/internal/decoder"
	"baton/internal/demo"
	"baton/internal/engine"
	"baton/internal/gguf"
	"baton/internal/handoff"
	"baton/internal/model"
	"baton/internal/provider"
	"baton/internal/vocab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(t testing.TB, data []byte) (*model.Model, *vocab.Vocab) {
	t.Helper()
	f, err := gguf.Parse(data, "demo")
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return m, v
}

// rig is a decoder of the demo model with a table of handoffs.
type rig struct {
	t       testing.TB
	model   *model.Model
	decoder *decoder.Decoder
	table   *handoff.Table
}

func newRig(t testing.TB, o handoff.Options) *rig {
	t.Helper()
	r := &rig{t: t}
	var v *vocab.Vocab
	r.model, v = load(t, demo.GGUF())
	var err error
	if r.decoder, err = decoder.New(r.model, v, decoder.Options{Slots: 2, Threads: 1}); err != nil {
		t.Fatal(err)
	}
	if r.table, err = r.decoder.NewTable(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := errors.Join(r.table.Close(), r.decoder.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return r
}

// provider starts a provider and registers it.
func (r *rig) provider(m *model.Model, trust handoff.Trust, o provider.Options) {
	r.t.Helper()
	o.Threads, o.Trust = 1, []handoff.Trust{trust}
	p, err := provider.New(m, o)
	if err != nil {
		r.t.Fatal(err)
	}
	ours, theirs := socketpair(r.t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, theirs) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the provider ended: %v", err)
		}
		p.Close()
	})
	self, err := handoff.OpenProcess(os.Getpid())
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.table.Register(r.t.Context(), ours, handoff.Policy{Trust: trust, Process: self}); err != nil {
		r.t.Fatal(err)
	}
}

func socketpair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// handOver has a prompt filled and adopted into slot 0.
func (r *rig) handOver(q handoff.Request) *handoff.Adopted {
	r.t.Helper()
	s, err := r.table.Share(r.t.Context(), &q)
	if err != nil {
		r.t.Fatal(err)
	}
	if out, err := r.table.Wait(r.t.Context(), 0, s.ID); err != nil || out.Err != nil {
		r.t.Fatalf("wait: %+v, %v", out, err)
	}
	digest := handoff.PromptDigest(q.Tokens)
	a, err := r.table.Adopt(r.t.Context(), &handoff.AdoptRequest{Slot: 0, ID: s.ID, Digest: &digest, All: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// answer is the greedy text that follows a prompt in slot 0, and how many of the
// prompt's tokens the decoder processed for it.
func (r *rig) answer(prompt []int32, n int) (text string, tokens []int32, processed int) {
	r.t.Helper()
	q := engine.NewRequest(prompt)
	q.Sampling.Temperature, q.MaxTokens, q.Slot = 0, n, 0
	s, err := r.decoder.Generate(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	for {
		e, err := s.Recv(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		text += e.Text
		switch e.Kind {
		case engine.Token:
			tokens = append(tokens, e.Token)
		case engine.Done:
			return text + e.Result.Text, tokens, e.Result.Timings.PromptN
		}
	}
}

func golden(t testing.TB) []demo.Prompt {
	t.Helper()
	g, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// What the provider fills gives the text that the reference implementation of the demo
// model gives; also where it reads the beginning of a conversation from blocks that it
// or the decoder filled before. The micro-batches are small and odd, so that their
// borders fall everywhere.
func TestGoldenTextFromFilledCells(t *testing.T) {
	for _, trust := range []handoff.Trust{handoff.Leased, handoff.Sealed, handoff.Attached} {
		t.Run(trust.String(), func(t *testing.T) {
			r := newRig(t, handoff.Options{})
			r.provider(r.model, trust, provider.Options{MicroBatch: 37})
			g := golden(t)[2]
			a := r.handOver(handoff.Request{Provider: "cpu", Tokens: g.Tokens})
			text, answer, n := r.answer(g.Tokens, 32)
			if a.Pos0 != 0 || text != g.Answer || n != 1 {
				t.Errorf("adopted from %d; %q after %d prompt tokens, want %q after 1", a.Pos0, text, n, g.Answer)
			}
			next := append(append(append([]int32{}, g.Tokens...), answer...), golden(t)[0].Tokens...)
			a = r.handOver(handoff.Request{Provider: "cpu", Tokens: next})
			shared, _, n := r.answer(next, 12)
			if a.Pos0 < len(g.Tokens)-1 || n != 1 {
				t.Errorf("second turn: adopted from %d of %d, %d prompt tokens", a.Pos0, len(next), n)
			}
			other := newRig(t, handoff.Options{})
			if local, _, n := other.answer(next, 12); shared != local || n != len(next) {
				t.Errorf("second turn: %q, want %q", shared, local)
			}
		})
	}
}

// A provider waits at a socket, and works for each decoder that connects.
func TestListen(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "prefill.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, handoff.Options{RunDir: root})
	p, err := provider.New(r.model, provider.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Listen(ctx, l) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for _, g := range golden(t)[:2] {
		r.handOver(handoff.Request{Socket: "prefill.sock", Tokens: g.Tokens, Policy: handoff.Policy{Trust: handoff.Sealed}})
		if text, _, n := r.answer(g.Tokens, 32); text != g.Answer || n != 1 {
			t.Errorf("%q after %d prompt tokens, want %q after 1", text, n, g.Answer)
		}
	}
}

// When nobody wants the prompt any more the provider stops after the micro-batch that it
// is at, and is free for the next one.
func TestReleaseStopsTheWork(t *testing.T) {
	r := newRig(t, handoff.Options{})
	r.provider(r.model, handoff.Leased, provider.Options{MicroBatch: 1})
	long := golden(t)[3].Tokens // several seconds of work at one token a micro-batch
	s, err := r.table.Share(t.Context(), &handoff.Request{Provider: "cpu", Tokens: long})
	if err != nil {
		t.Fatal(err)
	}
	for filled := 0; filled < 2; {
		if filled, err = r.table.Progress(0, s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := r.table.Release(0, s.ID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	short := golden(t)[0].Tokens
	next, err := r.table.Share(ctx, &handoff.Request{Provider: "cpu", Tokens: short})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.table.Wait(ctx, 0, next.ID); err != nil || out.Err != nil || out.Filled != len(short)-1 {
		t.Errorf("the next prompt: %+v, %v", out, err)
	}
}

// A provider of other weights is told apart by the model's fingerprint, and named so.
func TestOtherModelIsRefused(t *testing.T) {
	r := newRig(t, handoff.Options{})
	data := bytes.Clone(demo.GGUF())
	data[len(data)-1] ^= 1 // of the last tensor
	other, _ := load(t, data)
	r.provider(other, handoff.Leased, provider.Options{})
	tokens := golden(t)[0].Tokens
	s, err := r.table.Share(t.Context(), &handoff.Request{Provider: "cpu", Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.table.Wait(t.Context(), 0, s.ID)
	var refusal *handoff.Refusal
	if err != nil || !errors.As(out.Err, &refusal) || refusal.Code != handoff.LayoutDiffers || !strings.Contains(refusal.Detail, "model") {
		t.Errorf("the provider replied %v (%v), want layout_differs that names the model", out.Err, err)
	}
	digest := handoff.PromptDigest(tokens)
	if _, err := r.table.Adopt(t.Context(), &handoff.AdoptRequest{Slot: 0, ID: s.ID, Digest: &digest}); !errors.As(err, &refusal) || refusal.Code != handoff.LayoutDiffers {
		t.Errorf("adopt: %v, want layout_differs", err)
	}
}
