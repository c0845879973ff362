package remote

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"baton/internal/decoder"
	"baton/internal/engine"
)

// both runs f with a decoder in this process and with one behind a socket.
func both(t *testing.T, opt decoder.Options, f func(t *testing.T, e engine.Engine, d *decoder.Decoder)) {
	t.Helper()
	t.Run("local", func(t *testing.T) {
		d := newDecoder(t, opt)
		f(t, d, d)
	})
	t.Run("remote", func(t *testing.T) {
		d := newDecoder(t, opt)
		c, _ := serve(t, d)
		f(t, c, d)
	})
}

// sameEvents compares events but for what no two runs have in common.
var sameEvents = cmp.Options{
	cmpopts.IgnoreFields(engine.Event{}, "At"),
	cmpopts.IgnoreFields(engine.Timings{}, "Queue", "Prompt", "Predicted"),
	cmpopts.EquateEmpty(),
}

// What a request brings is the same from either side of the socket, event by event.
func TestSameEvents(t *testing.T) {
	g := golden(t)
	ask := func(prompt []int32, n int, change func(*engine.Request)) *engine.Request {
		r := greedy(prompt, n)
		r.ID = "request"
		if change != nil {
			change(r)
		}
		return r
	}
	cases := []struct {
		name   string
		r      *engine.Request
		reason engine.Reason
	}{
		{"greedy", ask(g[0].Tokens, 32, nil), engine.StopLimit},
		{"ends by itself", ask(g[2].Tokens, 32, nil), engine.StopEOS},
		{"cached", ask(g[0].Tokens, 8, nil), engine.StopLimit},
		{"not cached", ask(g[0].Tokens, 8, func(r *engine.Request) { r.CachePrompt = false }), engine.StopLimit},
		{"no tokens", ask(g[1].Tokens, 0, nil), engine.StopLimit},
		{"sampled", ask(g[0].Tokens, 24, func(r *engine.Request) { r.Sampling.Temperature, r.Sampling.Seed = 1.5, 7 }), engine.StopLimit},
		{"stop string", ask(g[0].Tokens, 32, func(r *engine.Request) { r.Stop = []string{"nowhere", "the wind"} }), engine.StopWord},
		{"log probabilities", ask(g[0].Tokens, 4, func(r *engine.Request) { r.Logprobs = 5 }), engine.StopLimit},
		{"log probability", ask(g[0].Tokens, 4, func(r *engine.Request) { r.Logprobs = 0 }), engine.StopLimit},
		{"progress and timings", ask(g[2].Tokens, 4, func(r *engine.Request) { r.Progress, r.Timings, r.CachePrompt = true, true, false }), engine.StopLimit},
		{"other slot", ask(g[1].Tokens, 4, func(r *engine.Request) { r.Slot = 1 }), engine.StopLimit},
		{"a token that is forbidden", ask(g[0].Tokens, 8, func(r *engine.Request) {
			r.Sampling.LogitBias = []engine.TokenBias{{Token: g[0].Argmax, Bias: float32(math.Inf(-1))}}
		}), engine.StopLimit},
		{"penalties", ask(g[0].Tokens, 16, func(r *engine.Request) { r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty = 1.3, 0.5 }), engine.StopLimit},
	}
	opt := decoder.Options{Slots: 2, MicroBatch: 32} // a prompt takes several steps
	local := newDecoder(t, opt)
	client, _ := serve(t, newDecoder(t, opt))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			want := collect(t, generate(t, local, c.r))
			got := collect(t, generate(t, client, c.r))
			if d := cmp.Diff(want, got, sameEvents); d != "" {
				t.Errorf("remote differs:\n%s", d)
			}
			if r := last(got); r.Reason != c.reason {
				t.Errorf("ended for %q, want %q", r.Reason, c.reason)
			}
			if now := time.Now(); got[0].At.After(now) || now.Sub(got[0].At) > time.Minute {
				t.Errorf("the first event is from %v, it is %v", got[0].At, now)
			}
			if c.name == "greedy" && text(got) != g[0].Answer {
				t.Errorf("text %q, want %q", text(got), g[0].Answer)
			}
			if c.name == "a token that is forbidden" && got[0].Token == g[0].Argmax {
				t.Error("the forbidden token was chosen")
			}
		})
	}
	if d := cmp.Diff(local.Info(), client.Info()); d != "" {
		t.Errorf("description differs:\n%s", d)
	}
	stats := cmp.Options{cmpopts.IgnoreFields(engine.Stats{}, "PromptTime", "GenTime", "LastStep"), cmpopts.EquateEmpty(), exactly}
	want := local.Stats()
	if got := until(t, client, func(s engine.Stats) bool { return s.Running == 0 && s.GenTokens == want.GenTokens }); !cmp.Equal(want, got, stats) {
		t.Errorf("statistics differ:\n%s", cmp.Diff(want, got, stats))
	}
}

// until asks for statistics until they are as wanted: they may be a step old.
func until(t *testing.T, e engine.Engine, ok func(engine.Stats) bool) engine.Stats {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s := e.Stats()
		if ok(s) {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("statistics stay at %+v", s)
		}
	}
}

func idle(s engine.Stats) bool { return s.Running == 0 && s.Waiting == 0 }

func TestSameRefusals(t *testing.T) {
	opt := decoder.Options{Slots: 2}
	local := newDecoder(t, opt)
	client, _ := serve(t, newDecoder(t, opt))
	for name, change := range map[string]func(*engine.Request){
		"empty prompt":        func(r *engine.Request) { r.Prompt = nil },
		"token out of range":  func(r *engine.Request) { r.Prompt = []int32{4096} },
		"negative token":      func(r *engine.Request) { r.Prompt = []int32{-1} },
		"slot that is not":    func(r *engine.Request) { r.Slot = 2 },
		"empty stop":          func(r *engine.Request) { r.Stop = []string{""} },
		"bias out of range":   func(r *engine.Request) { r.Sampling.LogitBias = []engine.TokenBias{{Token: 5000}} },
		"prompt over context": func(r *engine.Request) { r.Prompt = make([]int32, 100_000) },
	} {
		t.Run(name, func(t *testing.T) {
			r := greedy([]int32{1}, 1)
			change(r)
			_, want := local.Generate(t.Context(), r)
			_, got := client.Generate(t.Context(), r)
			var e *engine.Error
			if !errors.As(want, &e) || !errors.As(got, &e) {
				t.Fatalf("local %v, remote %v: want an *engine.Error from both", want, got)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A caller that leaves, or cancels, gets what was produced, then the end; the slot is free
// by then, for a request that waits and for one that names it.
func TestCancel(t *testing.T) {
	for _, how := range []string{"context", "cancel"} {
		t.Run(how, func(t *testing.T) {
			both(t, decoder.Options{Slots: 1}, func(t *testing.T, e engine.Engine, _ *decoder.Decoder) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				st, err := e.Generate(ctx, endless(t))
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if ev := next(t, st); ev.Kind != engine.Token {
						t.Fatalf("got %+v", ev)
					}
				}
				waiting := generate(t, e, greedy(golden(t)[1].Tokens, 4))
				if how == "cancel" {
					st.Cancel()
					st.Cancel() // twice is once
				} else {
					leave()
				}
				r := last(collect(t, st))
				if r.Reason != engine.Cancelled || !errors.Is(r.Err, context.Canceled) || r.Slot != 0 || r.Timings.PredictedN < 3 {
					t.Errorf("ended with %+v", r)
				}
				if events := collect(t, waiting); len(events) != 5 {
					t.Errorf("the request behind it got %d events, want 4 tokens and the end", len(events))
				}
				until(t, e, idle)
			})
		})
	}
}

func TestCancelInQueue(t *testing.T) {
	both(t, decoder.Options{Slots: 1}, func(t *testing.T, e engine.Engine, _ *decoder.Decoder) {
		busy := generate(t, e, endless(t))
		defer busy.Cancel()
		next(t, busy)
		waiting := generate(t, e, greedy(golden(t)[1].Tokens, 4))
		waiting.Cancel()
		events := collect(t, waiting)
		if r := last(events); len(events) != 1 || r.Reason != engine.Cancelled || r.Slot != -1 {
			t.Errorf("%d events, ended with %+v", len(events), r)
		}
		busy.Cancel()
		collect(t, busy)
	})
}

// A caller who has left already gets a stream that says so, not an error.
func TestCancelledBefore(t *testing.T) {
	both(t, decoder.Options{Slots: 1}, func(t *testing.T, e engine.Engine, _ *decoder.Decoder) {
		ctx, leave := context.WithCancel(t.Context())
		leave()
		st, err := e.Generate(ctx, endless(t))
		if err != nil {
			t.Fatal(err)
		}
		if r := last(collect(t, st)); r.Reason != engine.Cancelled || !errors.Is(r.Err, context.Canceled) {
			t.Errorf("ended with %+v", r)
		}
		st.Cancel() // after the end it does nothing
		until(t, e, idle)
	})
}

// The context of Recv ends the wait, not the request.
func TestRecvContext(t *testing.T) {
	both(t, decoder.Options{Slots: 1}, func(t *testing.T, e engine.Engine, _ *decoder.Decoder) {
		busy := generate(t, e, endless(t))
		st := generate(t, e, greedy(golden(t)[0].Tokens, 4))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if ev, err := st.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a request that waits gave %+v, %v", ev, err)
		}
		busy.Cancel()
		if events := collect(t, st); len(events) != 5 || last(events).Reason != engine.StopLimit {
			t.Errorf("%d events, ended with %+v", len(events), last(events))
		}
		collect(t, busy)
	})
}

// A caller that reads nothing holds nobody up, and can read it all later.
func TestSlowReader(t *testing.T) {
	both(t, decoder.Options{Slots: 2}, func(t *testing.T, e engine.Engine, _ *decoder.Decoder) {
		const n = 300 // of 1 KB each: more than a socket holds
		r := endless(t)
		r.MaxTokens, r.Logprobs = n, 20
		slow := generate(t, e, r)
		until(t, e, func(s engine.Stats) bool { return s.GenTokens == n })
		collect(t, generate(t, e, greedy(golden(t)[1].Tokens, 8)))
		if events := collect(t, slow); len(events) != n+1 {
			t.Errorf("%d events, want %d tokens and the end", len(events), n)
		}
	})
}

// An abandoned stream ends by itself when its context does.
func TestAbandonedStream(t *testing.T) {
	both(t, decoder.Options{Slots: 1}, func(t *testing.T, e engine.Engine, _ *decoder.Decoder) {
		ctx, leave := context.WithCancel(t.Context())
		if _, err := e.Generate(ctx, endless(t)); err != nil {
			t.Fatal(err)
		}
		leave()
		until(t, e, idle)
	})
}

// Closing lets what runs finish and refuses what comes.
func TestClose(t *testing.T) {
	both(t, decoder.Options{Slots: 1}, func(t *testing.T, e engine.Engine, d *decoder.Decoder) {
		st := generate(t, e, greedy(golden(t)[0].Tokens, 30))
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if events := collect(t, st); len(events) != 31 {
			t.Errorf("%d events, want 30 tokens and the end", len(events))
		}
		if _, err := e.Generate(t.Context(), greedy(golden(t)[0].Tokens, 1)); engine.AsError(err).Code != engine.CodeStopping {
			t.Errorf("after closing: %v", err)
		}
	})
}
