package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"baton/internal/engine"
)

func TestGenerate(t *testing.T) {
	d := newFakeDecoder(2)
	e := start(t, Options{Decoder: d})
	text, r := finish(t, generate(t, e, request("one", 3)))
	if text != "abc" || r.Reason != engine.StopLimit || r.Slot != 0 || r.Timings.PredictedN != 3 || r.Timings.PromptN != 3 {
		t.Errorf("%q, %+v", text, r)
	}
	if r.Timings.Handoff != (engine.Handoff{Route: engine.RouteLocal}) {
		t.Errorf("without providers: %+v", r.Timings.Handoff)
	}
	if r.Timings.Queue < time.Millisecond {
		t.Errorf("queue %v is less than the decoder's own", r.Timings.Queue)
	}
	if seen := d.requests(); len(seen) != 1 || seen[0].Slot != 0 || seen[0].ID != "one" {
		t.Errorf("the decoder got %+v", seen)
	}
}

func TestRefusedAtOnce(t *testing.T) {
	e := start(t, Options{Decoder: newFakeDecoder(2)})
	r := request("bad", 1)
	r.Slot = 2
	var bad *engine.Error
	if _, err := e.Generate(t.Context(), r); !errors.As(err, &bad) || bad.Code != engine.CodeBadRequest || bad.Param != "id_slot" {
		t.Errorf("%#v", err)
	}
	if err := e.Close(withLimit(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Generate(t.Context(), request("late", 1)); engine.AsError(err).Code != engine.CodeStopping {
		t.Errorf("after Close: %v", err)
	}
}

// What the decoder refuses ends the request with the decoder's error.
func TestRefusedByDecoder(t *testing.T) {
	d := newFakeDecoder(1)
	want := &engine.Error{Code: engine.CodeNoRoom, Message: "no room"}
	d.refuse = []error{want}
	e := start(t, Options{Decoder: d})
	if _, r := finish(t, generate(t, e, request("one", 1))); r.Reason != engine.Failed || !errors.Is(r.Err, want) {
		t.Errorf("%+v", r)
	}
	if text, _ := finish(t, generate(t, e, request("two", 1))); text != "a" {
		t.Errorf("the next request: %q", text)
	}
}

// Requests get slots in order of arrival; one for a busy slot lets others by.
func TestSlotOrder(t *testing.T) {
	s := newSlots(2)
	get := func(p *place) int {
		select {
		case id := <-p.got:
			return id
		default:
			return -1
		}
	}
	a, b, c := s.enqueue("a", -1), s.enqueue("b", 1), s.enqueue("c", 1)
	d, e := s.enqueue("d", -1), s.enqueue("e", 0)
	if ga, gb, gc, gd, ge := get(a), get(b), get(c), get(d), get(e); ga != 0 || gb != 1 || gc != -1 || gd != -1 || ge != -1 {
		t.Fatalf("at first: %d %d %d %d %d", ga, gb, gc, gd, ge)
	}
	s.release(0) // d came before e
	if gc, gd, ge := get(c), get(d), get(e); gc != -1 || gd != 0 || ge != -1 {
		t.Fatalf("slot 0 is free: %d %d %d", gc, gd, ge)
	}
	s.release(1)
	if gc, ge := get(c), get(e); gc != 1 || ge != -1 {
		t.Fatalf("slot 1 is free: %d %d", gc, ge)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.wait(ctx, e); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was cancelled: %v", err)
	}
	s.release(0)
	if f := s.enqueue("f", -1); get(f) != 0 {
		t.Error("slot 0 went to a request that had left")
	}
}

// However requests come, go and are cancelled, no slot has two, and all slots are free in
// the end.
func TestSlotsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "slots")
		s := newSlots(n)
		var queued []*place
		held := map[int]bool{}
		collect := func() {
			left := queued[:0]
			for _, p := range queued {
				select {
				case id := <-p.got:
					if held[id] || p.want >= 0 && p.want != id {
						t.Fatalf("slot %d given to a request for %d; held: %v", id, p.want, held)
					}
					held[id] = true
				default:
					left = append(left, p)
				}
			}
			queued = left
			for _, p := range queued { // nobody waits for a slot that is free
				if p.want >= 0 && !held[p.want] || p.want < 0 && len(held) < n {
					t.Fatalf("a request for %d waits; held: %v of %d", p.want, held, n)
				}
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "op") {
			case 0:
				queued = append(queued, s.enqueue("r", rapid.IntRange(-1, n-1).Draw(t, "want")))
			case 1:
				for id := range held {
					delete(held, id)
					s.release(id)
					break
				}
			case 2:
				if len(queued) > 0 {
					ctx, cancel := context.WithCancel(context.Background())
					cancel()
					if _, err := s.wait(ctx, queued[0]); err == nil {
						t.Fatal("a cancelled wait got a slot")
					}
					queued = queued[1:]
				}
			}
			collect()
		}
		for len(held) > 0 {
			for id := range held {
				delete(held, id)
				s.release(id)
			}
			collect()
		}
		if _, busy, waiting := s.snapshot(); waiting != 0 || strings.Contains(fmt.Sprint(busy), "true") {
			t.Fatalf("in the end: busy %v, waiting %d", busy, waiting)
		}
	})
}

func TestOnePerSlot(t *testing.T) {
	d := newFakeDecoder(3).stepwise()
	e := start(t, Options{Decoder: d})
	const n = 12
	streams := make([]engine.Stream, n)
	for i := range streams {
		streams[i] = generate(t, e, request(fmt.Sprint(i), 2))
	}
	eventually(t, "three run and nine wait", func() bool {
		st := e.Stats()
		return st.Running == 3 && st.Waiting == n-3 && len(d.requests()) == 3
	})
	st := e.Stats()
	for i, s := range st.Slots {
		if !s.Busy || s.RequestID == "" {
			t.Errorf("slot %d: %+v", i, s)
		}
	}
	close(d.step)
	for _, st := range streams {
		if text, r := finish(t, st); text != "ab" || r.Reason != engine.StopLimit {
			t.Errorf("%q, %+v", text, r)
		}
	}
	if d.most != 1 {
		t.Errorf("a slot had %d requests at once", d.most)
	}
	eventually(t, "all slots are free", func() bool { st := e.Stats(); return st.Running == 0 && st.Waiting == 0 })
}

func TestCancel(t *testing.T) {
	d := newFakeDecoder(1).stepwise()
	e := start(t, Options{Decoder: d})
	running := generate(t, e, request("runs", 100))
	eventually(t, "it runs", func() bool { return len(d.requests()) == 1 })
	waiting := generate(t, e, request("waits", 100))
	ctx, leave := context.WithCancel(t.Context())
	left, err := e.Generate(ctx, request("leaves", 100))
	if err != nil {
		t.Fatal(err)
	}
	leave()
	for _, st := range []engine.Stream{waiting, running} {
		st.Cancel()
	}
	for _, st := range []engine.Stream{waiting, running, left} {
		if _, r := finish(t, st); r.Reason != engine.Cancelled || !errors.Is(r.Err, context.Canceled) {
			t.Errorf("%+v", r)
		}
	}
	eventually(t, "the slot is free", func() bool { return e.Stats().Running == 0 })
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[0] != 0 || len(d.seen) != 1 {
		t.Errorf("the decoder got %d requests and still has %d", len(d.seen), d.running[0])
	}
}

// A decoder that dies ends what runs, at once and with a reason; what waits goes to the
// next one.
func TestDecoderDies(t *testing.T) {
	d := newFakeDecoder(1).stepwise()
	e := start(t, Options{Decoder: d})
	runs := generate(t, e, request("runs", 10))
	d.step <- struct{}{}
	waits := generate(t, e, request("waits", 2))
	d.kill()
	text, r := finish(t, runs)
	if text != "a" || r.Reason != engine.Failed || engine.AsError(r.Err).Code != engine.CodeAway {
		t.Errorf("%q, %+v", text, r)
	}
	close(d.step)
	if text, r := finish(t, waits); text != "ab" || r.Reason != engine.StopLimit {
		t.Errorf("%q, %+v", text, r)
	}
}

func TestDecoderAway(t *testing.T) {
	away := &engine.Error{Code: engine.CodeAway, Message: "nobody there"}
	t.Run("for a moment", func(t *testing.T) {
		d := newFakeDecoder(1)
		d.refuse = []error{away, away}
		e := start(t, Options{Decoder: d})
		if text, r := finish(t, generate(t, e, request("one", 1))); text != "a" {
			t.Errorf("%q, %+v", text, r)
		}
	})
	t.Run("again and again", func(t *testing.T) {
		d := newFakeDecoder(1)
		d.refuse = []error{away, away, away, away, away}
		e := start(t, Options{Decoder: d})
		if _, r := finish(t, generate(t, e, request("one", 1))); !errors.Is(r.Err, away) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("until it is up", func(t *testing.T) {
		up := make(chan struct{})
		d := newFakeDecoder(1)
		e := start(t, Options{Decoder: d, Up: func(ctx context.Context) error {
			select {
			case <-up:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		st := generate(t, e, request("one", 1))
		time.Sleep(5 * time.Millisecond)
		if n := len(d.requests()); n != 0 {
			t.Errorf("a decoder that is not up got %d requests", n)
		}
		close(up)
		if text, r := finish(t, st); text != "a" {
			t.Errorf("%q, %+v", text, r)
		}
	})
	t.Run("too long", func(t *testing.T) {
		e := start(t, Options{Decoder: newFakeDecoder(1), UpLimit: time.Millisecond, Up: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		if _, r := finish(t, generate(t, e, request("one", 1))); engine.AsError(r.Err).Code != engine.CodeAway || !strings.Contains(r.Err.Error(), "restarted") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("for good", func(t *testing.T) {
		e := start(t, Options{Decoder: newFakeDecoder(1), Up: func(context.Context) error { return errors.New("it cannot be started") }})
		if _, r := finish(t, generate(t, e, request("one", 1))); engine.AsError(r.Err).Code != engine.CodeAway || !strings.Contains(r.Err.Error(), "it cannot be started") {
			t.Errorf("%+v", r)
		}
	})
}

func TestClose(t *testing.T) {
	d := newFakeDecoder(1).stepwise()
	e := New(Options{Decoder: d})
	runs, waits := generate(t, e, request("runs", 1)), generate(t, e, request("waits", 1))
	closed := make(chan error, 1)
	go func() { closed <- e.Close(withLimit(t)) }()
	close(d.step)
	for _, st := range []engine.Stream{runs, waits} {
		if text, r := finish(t, st); text != "a" {
			t.Errorf("not finished: %+v", r)
		}
	}
	if err := <-closed; err != nil {
		t.Errorf("drained: %v", err)
	}

	d = newFakeDecoder(1).stepwise()
	e = New(Options{Decoder: d})
	st := generate(t, e, request("runs", 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("not drained: %v", err)
	}
	if _, r := finish(t, st); r.Reason != engine.Cancelled {
		t.Errorf("%+v", r)
	}
}

// A step loop that has nothing to do is not late while a provider is at work.
func TestIdleIsNotLate(t *testing.T) {
	d := newFakeDecoder(1)
	d.stat.LastStep = time.Now().Add(-time.Hour)
	e := start(t, Options{Decoder: d})
	if age := time.Since(e.Stats().LastStep); age > time.Minute {
		t.Errorf("idle: last step %v ago", age)
	}
	d.stat.Running = 1
	if age := time.Since(e.Stats().LastStep); age < time.Minute {
		t.Errorf("busy: last step %v ago", age)
	}
}
