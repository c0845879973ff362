package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"baton/internal/engine"
	"baton/internal/supervise"
)

// fakeActions are a decoder's slot actions with a provider behind them.
type fakeActions struct {
	mu       sync.Mutex
	calls    []string
	share    func(ctx context.Context, slot int, prompt []int32) (*Share, error)
	wait     func(ctx context.Context, slot int, share *Share) (*Progress, error)
	adopt    func(ctx context.Context, slot int, share *Share) (*Adopted, error)
	sharing  int // shares that are being filled
	most     int
	released chan string
	restore  func(name string) (*Restored, error)
}

func (f *fakeActions) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fakeActions) Share(ctx context.Context, slot int, provider string, prompt []int32, minTokens int) (*Share, error) {
	f.note("share %d %s %d %d", slot, provider, len(prompt), minTokens)
	return f.share(ctx, slot, prompt)
}

func (f *fakeActions) Wait(ctx context.Context, slot int, share *Share, limit time.Duration) (*Progress, error) {
	f.mu.Lock()
	f.sharing++
	f.most = max(f.most, f.sharing)
	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.sharing--; f.mu.Unlock() }()
	return f.wait(ctx, slot, share)
}

func (f *fakeActions) Adopt(ctx context.Context, slot int, share *Share, prompt []int32) (*Adopted, error) {
	f.note("adopt %d %s %d", slot, share.ID, len(prompt))
	return f.adopt(ctx, slot, share)
}

func (f *fakeActions) Restore(_ context.Context, slot int, name string) (*Restored, error) {
	f.note("restore %d", slot)
	return f.restore(name)
}

func (f *fakeActions) Release(_ context.Context, slot int, share *Share) error {
	f.note("release %d %s", slot, share.ID)
	if f.released != nil {
		f.released <- string(share.ID)
	}
	return nil
}

func (f *fakeActions) list() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.calls, "; ")
}

// works is a provider that fills all that is not cached.
func works(cached int) *fakeActions {
	return &fakeActions{
		share: func(context.Context, int, []int32) (*Share, error) {
			return &Share{ID: json.RawMessage("7"), Provider: "cpu", Pos0: cached}, nil
		},
		wait: func(context.Context, int, *Share) (*Progress, error) {
			return &Progress{Done: true, Filled: 599}, nil
		},
		adopt: func(context.Context, int, *Share) (*Adopted, error) {
			return &Adopted{Cells: 599 - cached, Trust: "leased"}, nil
		},
	}
}

type setup struct {
	d        *fakeDecoder
	e        *Engine
	h        *Handoff
	log      *logBuffer
	restarts chan string
}

// stall is how long a provider may be silent in tests.
const stall = 20 * time.Millisecond

func newSetup(t *testing.T, slots int, a *fakeActions) *setup {
	s := &setup{d: newFakeDecoder(slots), restarts: make(chan string, 10)}
	buf, logger := newLog()
	s.log = buf
	s.h = NewHandoff(HandoffOptions{Actions: a, Provider: "cpu", MinTokens: 512, Logger: logger, Stall: stall,
		Restart: func(why string) { s.restarts <- why }})
	s.e = start(t, Options{Decoder: s.d, Handoff: s.h, Logger: logger})
	return s
}

// metric is the value of a series, such as `baton_handoff_total{route="shared",result="ok"}`;
// the count of a histogram.
func (s *setup) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(s.h.Collectors()...)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	next:
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue next
				}
			}
			if m.Histogram != nil {
				return float64(m.GetHistogram().GetSampleCount())
			}
			return m.GetCounter().GetValue()
		}
	}
	return -1
}

func TestShared(t *testing.T) {
	a := works(100)
	s := newSetup(t, 1, a)
	s.d.cached = 599 // what the decoder finds in its cache: cached before and adopted
	text, r := finish(t, generate(t, s.e, request("req-1", 3, long(600, 0)...)))
	if text != "abc" {
		t.Errorf("text %q", text)
	}
	tm := r.Timings
	if h := tm.Handoff; h.Route != engine.RouteShared || h.Trust != "leased" || h.Cells != 499 || h.BytesCopied != 0 {
		t.Errorf("%+v", h)
	}
	if tm.CacheN != 100 || tm.PromptN != 1 || tm.CacheN+tm.PromptN+tm.Handoff.Cells != 600 {
		t.Errorf("cached %d + handed over %d + processed %d, want 100 + 499 + 1", tm.CacheN, tm.Handoff.Cells, tm.PromptN)
	}
	if want := "share 0 cpu 600 512; adopt 0 7 600"; a.list() != want {
		t.Errorf("actions %q, want %q", a.list(), want)
	}
	if seen := s.d.requests(); len(seen) != 1 || seen[0].Handoff != tm.Handoff { // without it, it would count them as reused
		t.Errorf("the decoder got %+v, want with it that 499 cells were handed over", seen)
	}
	line := s.log.String()
	for _, want := range []string{`msg="handoff: 499 cells, `, ` ms, 0 bytes copied"`, "route=shared trust=leased provider=cpu request=req-1"} {
		if !strings.Contains(line, want) || strings.Count(line, "\n") != 1 {
			t.Errorf("log %q, want one line with %q", line, want)
		}
	}
	for _, m := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{1, "baton_handoff_total", []string{"route", "shared", "result", "ok"}},
		{0, "baton_handoff_total", []string{"route", "shared", "result", "failed"}},
		{0, "baton_handoff_bytes_copied_total", nil},
		{1, "baton_handoff_seconds", []string{"phase", "share"}},
		{1, "baton_handoff_seconds", []string{"phase", "prefill"}},
		{1, "baton_handoff_seconds", []string{"phase", "adopt"}},
	} {
		if got := s.metric(t, m.name, m.labels...); got != m.want {
			t.Errorf("%s%v is %v, want %v", m.name, m.labels, got, m.want)
		}
	}
}

func TestLocalByChoice(t *testing.T) {
	a := works(0)
	s := newSetup(t, 1, a)
	finish(t, generate(t, s.e, request("short", 1, long(512, 0)...))) // 511 cells
	r := request("uncached", 1, long(600, 0)...)
	r.CachePrompt = false
	_, res := finish(t, generate(t, s.e, r))
	if a.list() != "" {
		t.Errorf("actions %q for a short prompt and one that must not be reused", a.list())
	}
	if res.Timings.Handoff != (engine.Handoff{Route: engine.RouteLocal}) {
		t.Errorf("%+v", res.Timings.Handoff)
	}

	a.share = func(context.Context, int, []int32) (*Share, error) { return &Share{Route: "local"}, nil }
	finish(t, generate(t, s.e, request("cached", 1, long(600, 0)...)))
	if want := "share 0 cpu 600 512"; a.list() != want {
		t.Errorf("actions %q, want %q", a.list(), want)
	}
	if got := s.metric(t, "baton_handoff_total", "route", "local", "result", "chosen"); got != 3 {
		t.Errorf("%v local by choice, want 3", got)
	}
	if s.log.String() != "" {
		t.Errorf("log %q for a choice", s.log)
	}
}

// What a provider filled before it ended early is used.
func TestPartial(t *testing.T) {
	a := works(0)
	a.wait = func(context.Context, int, *Share) (*Progress, error) {
		return &Progress{Done: true, Filled: 256, Stopped: "the provider has gone"}, nil
	}
	a.adopt = func(context.Context, int, *Share) (*Adopted, error) {
		return &Adopted{Cells: 256, Trust: "leased"}, nil
	}
	s := newSetup(t, 1, a)
	s.d.cached = 256
	_, r := finish(t, generate(t, s.e, request("one", 1, long(600, 0)...)))
	if tm := r.Timings; tm.Handoff.Route != engine.RouteShared || tm.Handoff.Cells != 256 || tm.CacheN != 0 || tm.PromptN != 344 {
		t.Errorf("%+v", tm)
	}
	if line := s.log.String(); !strings.Contains(line, "missing=343") || !strings.Contains(line, `reason="the provider has gone"`) {
		t.Errorf("log %q", line)
	}
	if got := s.metric(t, "baton_handoff_total", "route", "shared", "result", "partial"); got != 1 {
		t.Errorf("%v partial", got)
	}
	if got := s.e.Stats().Recomputed[codeShort]; got != 343 {
		t.Errorf("%d tokens processed again", got)
	}
}

// A provider that filled nothing had no part in the answer.
func TestNothingFilled(t *testing.T) {
	a := works(0)
	a.wait = func(context.Context, int, *Share) (*Progress, error) {
		return &Progress{Done: true, Stopped: "the provider has gone"}, nil
	}
	a.adopt = func(context.Context, int, *Share) (*Adopted, error) { return &Adopted{Trust: "leased"}, nil }
	s := newSetup(t, 1, a)
	_, r := finish(t, generate(t, s.e, request("one", 1, long(600, 0)...)))
	if r.Timings.Handoff != (engine.Handoff{Route: engine.RouteLocal}) || !strings.Contains(s.log.String(), "the provider has gone") {
		t.Errorf("%+v; log %q", r.Timings.Handoff, s.log)
	}
	if got := s.metric(t, "baton_handoff_total", "route", "shared", "result", "failed"); got != 1 {
		t.Errorf("%v failed", got)
	}
}

// Whatever is refused, the answer comes, with one line that says why, and without a
// second run of a provider.
func TestRefusals(t *testing.T) {
	for _, code := range []string{"bad_request", "share_unknown", "still_writable", "share_expired", "header_missing", "layout_differs",
		"content_differs", "sharing_off", "model_not_shareable", "provider_unreachable", "no_room", codeUnreachable} {
		for _, action := range []string{"share", "wait", "adopt"} {
			t.Run(action+" "+code, func(t *testing.T) {
				a := works(0)
				refused := &Refused{Action: action, Status: 409, Code: code, Reason: "because of " + code}
				switch action {
				case "share":
					a.share = func(context.Context, int, []int32) (*Share, error) { return nil, refused }
				case "wait":
					a.wait = func(context.Context, int, *Share) (*Progress, error) { return nil, refused }
				case "adopt":
					a.adopt = func(context.Context, int, *Share) (*Adopted, error) { return nil, refused }
				}
				s := newSetup(t, 1, a)
				text, r := finish(t, generate(t, s.e, request("one", 2, long(600, 0)...)))
				if text != "ab" || r.Reason != engine.StopLimit || r.Timings.Handoff != (engine.Handoff{Route: engine.RouteLocal}) {
					t.Errorf("%q, %+v", text, r)
				}
				if n := strings.Count(a.list(), "share"); n != 1 {
					t.Errorf("%d shares for one request", n)
				}
				line := s.log.String()
				if strings.Count(line, "\n") != 1 || !strings.Contains(line, "code="+code) || !strings.Contains(line, "because of") {
					t.Errorf("log %q", line)
				}
				if got := s.metric(t, "baton_refusals_total", "reason", code); got != 1 {
					t.Errorf("%v refusals", got)
				}
				if got := s.e.Stats().Recomputed[code]; got != 599 {
					t.Errorf("%d tokens processed again, want 599", got)
				}
				if want := code == codeExpired; len(s.restarts) > 0 != want {
					t.Errorf("provider killed: %v, want %v", !want, want)
				}
			})
		}
	}
}

// Cells that were handed over but that the decoder could not use were not used.
func TestNoRoomForTheCells(t *testing.T) {
	s := newSetup(t, 1, works(0))
	s.d.cached = 0 // it has processed all of the prompt itself
	_, r := finish(t, generate(t, s.e, request("one", 1, long(600, 0)...)))
	if tm := r.Timings; tm.Handoff.Cells != 0 || tm.CacheN != 0 || tm.PromptN != 600 {
		t.Errorf("cached %d + handed over %d + processed %d, want 0 + 0 + 600", tm.CacheN, tm.Handoff.Cells, tm.PromptN)
	}
}

// The time that a provider took which brought nothing does not vanish: it was waited for.
func TestLostTimeIsWaiting(t *testing.T) {
	const lost = 30 * time.Millisecond
	a := works(0)
	a.wait = func(context.Context, int, *Share) (*Progress, error) {
		time.Sleep(lost)
		return nil, &Refused{Action: "wait", Status: 409, Code: "provider_unreachable", Reason: "it has gone"}
	}
	s := newSetup(t, 1, a)
	begun := time.Now()
	_, r := finish(t, generate(t, s.e, request("one", 1, long(600, 0)...)))
	if took := time.Since(begun); r.Timings.Queue < lost || r.Timings.Queue > took+time.Millisecond { // the fake decoder's own
		t.Errorf("waited %v, want %v to %v", r.Timings.Queue, lost, took)
	}

	// What it took to bring cells is the handoff's, and only that.
	full := works(0).wait
	a.wait = func(ctx context.Context, slot int, share *Share) (*Progress, error) {
		time.Sleep(lost)
		return full(ctx, slot, share)
	}
	begun = time.Now()
	_, r = finish(t, generate(t, s.e, request("two", 1, long(600, 1)...)))
	tm, took := r.Timings, time.Since(begun)
	if sum := tm.Queue + tm.Handoff.Took + tm.Handoff.Prefill; tm.Handoff.Prefill < lost || sum > took+time.Millisecond {
		t.Errorf("waited %v, handoff %v, prefill %v: more than %v", tm.Queue, tm.Handoff.Took, tm.Handoff.Prefill, took)
	}
}

// A slot whose last request was cancelled may still be busy for a step.
func TestSlotStillBusy(t *testing.T) {
	a := works(0)
	full, tries := a.share, 0
	a.share = func(ctx context.Context, slot int, prompt []int32) (*Share, error) {
		if tries++; tries < 3 {
			return nil, &Refused{Action: "share", Status: 409, Code: codeSlotBusy, Reason: "busy"}
		}
		return full(ctx, slot, prompt)
	}
	s := newSetup(t, 1, a)
	if _, r := finish(t, generate(t, s.e, request("one", 1, long(600, 0)...))); r.Timings.Handoff.Route != engine.RouteShared {
		t.Errorf("%+v", r.Timings.Handoff)
	}
}

// A provider that hangs is ended, once; what it has filled is used.
func TestHangs(t *testing.T) {
	a := works(0)
	var s *setup
	a.wait = func(context.Context, int, *Share) (*Progress, error) {
		time.Sleep(time.Millisecond)
		if len(s.restarts) == 0 {
			return &Progress{Filled: 256}, nil
		}
		return &Progress{Done: true, Filled: 256, Stopped: "its process has ended"}, nil
	}
	a.adopt = func(context.Context, int, *Share) (*Adopted, error) {
		return &Adopted{Cells: 256, Trust: "leased"}, nil
	}
	s = newSetup(t, 1, a)
	s.d.cached = 256
	text, r := finish(t, generate(t, s.e, request("one", 1, long(600, 0)...)))
	if text != "a" || r.Timings.Handoff.Cells != 256 || len(s.restarts) != 1 {
		t.Errorf("%q, %+v, ended %d times", text, r.Timings.Handoff, len(s.restarts))
	}
	if why := <-s.restarts; !strings.Contains(why, "filled nothing for") {
		t.Errorf("why: %s", why)
	}
}

// Slow is not hanging, and whoever asked for it is told how far it is.
func TestProgress(t *testing.T) {
	a := works(100)
	filled := 100
	a.wait = func(context.Context, int, *Share) (*Progress, error) {
		time.Sleep(stall / 4)
		if filled += 50; filled >= 599 {
			return &Progress{Done: true, Filled: 599}, nil
		}
		return &Progress{Filled: filled}, nil
	}
	s := newSetup(t, 1, a)
	r := request("one", 1, long(600, 0)...)
	r.Progress = true
	st := generate(t, s.e, r)
	want := 150
	for ctx := withLimit(t); ; want += 50 {
		ev, err := st.Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind != engine.Progress {
			break
		}
		if ev.Prompt != want || ev.PromptOf != 600 || ev.Timings.CacheN != 100 || ev.Timings.Handoff.Cells != want-100 {
			t.Errorf("%+v, %+v, want %d", ev, ev.Timings, want)
		}
	}
	if want != 600 {
		t.Errorf("told of %d cells at last, want 550", want-50)
	}
	if len(s.restarts) != 0 {
		t.Error("ended although it worked")
	}
	finish(t, st)
}

// A client that leaves during a handoff ends it at once.
func TestCancelledHandoff(t *testing.T) {
	t.Run("while it is filled", func(t *testing.T) {
		a := works(0)
		a.released = make(chan string, 1)
		filling := make(chan struct{})
		a.wait = func(ctx context.Context, _ int, _ *Share) (*Progress, error) {
			close(filling)
			<-ctx.Done()
			return nil, &Refused{Action: "wait", Code: codeUnreachable, Reason: ctx.Err().Error()}
		}
		s := newSetup(t, 1, a)
		st := generate(t, s.e, request("one", 1, long(600, 0)...))
		<-filling
		st.Cancel()
		if _, r := finish(t, st); r.Reason != engine.Cancelled {
			t.Errorf("%+v", r)
		}
		if n := len(s.d.requests()); n != 0 || s.log.String() != "" || len(s.restarts) != 0 {
			t.Errorf("%d requests; log %q", n, s.log)
		}
		if id := <-a.released; id != "7" {
			t.Errorf("released %s", id)
		}
	})
	t.Run("when it is full", func(t *testing.T) {
		a := works(0)
		a.released = make(chan string, 1)
		adopting := make(chan struct{})
		a.adopt = func(ctx context.Context, _ int, _ *Share) (*Adopted, error) {
			close(adopting)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		s := newSetup(t, 1, a)
		st := generate(t, s.e, request("one", 1, long(600, 0)...))
		<-adopting
		st.Cancel()
		finish(t, st)
		if id := <-a.released; id != "7" {
			t.Errorf("released %s", id)
		}
	})
	t.Run("in line", func(t *testing.T) {
		a := works(0)
		go1 := make(chan struct{})
		full := a.share
		a.share = func(ctx context.Context, slot int, prompt []int32) (*Share, error) {
			<-go1
			return full(ctx, slot, prompt)
		}
		s := newSetup(t, 2, a)
		first := generate(t, s.e, request("first", 1, long(600, 0)...))
		eventually(t, "the first is shared", func() bool { return a.list() != "" })
		second := generate(t, s.e, request("second", 1, long(600, 500)...))
		eventually(t, "the second is in line", func() bool { s.h.line.mu.Lock(); defer s.h.line.mu.Unlock(); return len(s.h.line.turns) == 2 })
		second.Cancel()
		if _, r := finish(t, second); r.Reason != engine.Cancelled {
			t.Errorf("%+v", r)
		}
		close(go1)
		if _, r := finish(t, first); r.Timings.Handoff.Route != engine.RouteShared {
			t.Errorf("%+v", r)
		}
	})
}

// A provider has one prompt at a time, in order.
func TestOneAtATime(t *testing.T) {
	a := works(0)
	s := newSetup(t, 4, a)
	var streams []engine.Stream
	for i := range 4 {
		streams = append(streams, generate(t, s.e, request(fmt.Sprint(i), 1, long(600, int32(i)*100)...)))
	}
	for _, st := range streams {
		if _, r := finish(t, st); r.Reason != engine.StopLimit {
			t.Errorf("%+v", r)
		}
	}
	if a.most != 1 {
		t.Errorf("%d prompts are with the provider at once", a.most)
	}
}

func TestLine(t *testing.T) {
	var l line
	big, ok := l.join(long(3000, 0), 512)
	if !ok {
		t.Fatal("the first is not let in")
	}
	if _, ok := l.join(long(600, 500), 512); ok {
		t.Error("600 tokens wait for 3000 others")
	}
	same, ok := l.join(long(600, 0), 512)
	if !ok {
		t.Error("600 tokens do not wait for the very same ones")
	}
	other, ok := l.join(long(950, 300), 512)
	if !ok {
		t.Error("950 tokens do not wait for 3600")
	}
	first := func(turn *turn) bool {
		select {
		case <-turn.first:
			return true
		default:
			return false
		}
	}
	if !first(big) || first(same) || first(other) {
		t.Error("not in order")
	}
	l.leave(same) // out of the middle
	if first(other) {
		t.Error("two are first")
	}
	l.leave(big)
	if !first(other) {
		t.Error("the last does not come up")
	}
	l.leave(other)
	if len(l.turns) != 0 {
		t.Errorf("%d are left", len(l.turns))
	}
}

// fileRoute is a setup where memory cannot be shared, and a program writes state files.
func fileRoute(t *testing.T, a *fakeActions, script string) *setup {
	t.Helper()
	a.share = func(context.Context, int, []int32) (*Share, error) {
		return nil, &Refused{Action: "share", Status: 501, Code: codeSharingOff, Reason: "off"}
	}
	s := newSetup(t, 1, a)
	s.h.opt.Files = &StateFiles{Dir: t.TempDir(), Command: func(path string) *supervise.Command {
		return &supervise.Command{Path: "/bin/sh", Args: []string{"-c", script, "sh", path}}
	}}
	return s
}

func TestFileRoute(t *testing.T) {
	a := works(0)
	var s *setup
	var ids string
	a.restore = func(name string) (*Restored, error) {
		b, err := os.ReadFile(filepath.Join(s.h.opt.Files.Dir, name))
		ids = string(b)
		return &Restored{Tokens: 599, BytesCopied: 1234, Verified: true}, err
	}
	s = fileRoute(t, a, `cat >"$1"; touch "$1.sum"`)
	s.d.cached = 599
	prompt := long(600, 7)
	text, r := finish(t, generate(t, s.e, request("one", 2, prompt...)))
	if h := r.Timings.Handoff; text != "ab" || h.Route != engine.RouteFile || h.Cells != 599 || h.BytesCopied != 1234 || r.Timings.PromptN != 1 || r.Timings.CacheN != 0 {
		t.Errorf("%q, %+v", text, r.Timings)
	}
	var got []int32
	for f := range strings.FieldsSeq(ids) {
		id, err := strconv.ParseInt(f, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, int32(id))
	}
	if !slices.Equal(got, prompt[:599]) {
		t.Errorf("the program got %d ids, want all of the prompt but the last", len(got))
	}
	if left, err := os.ReadDir(s.h.opt.Files.Dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if got := s.metric(t, "baton_handoff_total", "route", "file", "result", "ok"); got != 1 {
		t.Errorf("%v ok", got)
	}
	if got := s.metric(t, "baton_handoff_bytes_copied_total"); got != 1234 {
		t.Errorf("%v bytes copied", got)
	}
}

func TestFileRouteFails(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		restore func(string) (*Restored, error)
		code    string
	}{
		"the program fails": {`cat >"$1"; exit 1`, nil, codeGone},
		"a full disk":       {`cat >/dev/full`, nil, codeGone},
		"the decoder refuses the file": {`cat >"$1"`, func(string) (*Restored, error) {
			return nil, &Refused{Action: "restore", Status: 422, Code: "bad_file", Reason: "layout differs"}
		}, "bad_file"},
		"half of it": {`cat >"$1"`, func(string) (*Restored, error) { return &Restored{Tokens: 300, Verified: true}, nil }, codeShort},
		"no sum":     {`cat >"$1"`, func(string) (*Restored, error) { return &Restored{Tokens: 599}, nil }, codeShort},
	} {
		t.Run(name, func(t *testing.T) {
			a := works(0)
			a.restore = c.restore
			s := fileRoute(t, a, c.script)
			text, r := finish(t, generate(t, s.e, request("one", 2, long(600, 7)...)))
			if text != "ab" || r.Timings.Handoff != (engine.Handoff{Route: engine.RouteLocal}) {
				t.Errorf("%q, %+v", text, r.Timings)
			}
			if line := s.log.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, "code="+c.code) {
				t.Errorf("log %q", line)
			}
			if left, err := os.ReadDir(s.h.opt.Files.Dir); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
