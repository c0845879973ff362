package decoder

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"baton/internal/demo"
	"baton/internal/engine"
	"baton/internal/gguf"
	"baton/internal/model"
	"baton/internal/vocab"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a decoder of the demo model.
func start(t testing.TB, opt Options) *Decoder {
	t.Helper()
	f, err := gguf.Parse(demo.GGUF(), "demo")
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
	d, err := New(m, v, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

// answer is what a request brought.
type answer struct {
	tokens []int32
	text   string
	events []engine.Event
	*engine.Result
}

func collect(t testing.TB, st engine.Stream) (a answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		e, err := st.Recv(ctx)
		if err == io.EOF {
			return a
		}
		if err != nil {
			t.Fatal(err)
		}
		a.events = append(a.events, e)
		a.text += e.Text
		switch e.Kind {
		case engine.Token:
			a.tokens = append(a.tokens, e.Token)
		case engine.Done:
			a.Result = e.Result
			a.text += e.Result.Text
		}
	}
}

func ask(t testing.TB, d *Decoder, r *engine.Request) answer {
	t.Helper()
	st, err := d.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return collect(t, st)
}

func greedy(prompt []int32, n int) *engine.Request {
	r := engine.NewRequest(prompt)
	r.Sampling.Temperature, r.MaxTokens, r.Sampling.Seed = 0, n, 1
	return r
}

func golden(t testing.TB) []demo.Prompt {
	t.Helper()
	g, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The six golden answers, one after the other and all at once: a request's answer is
// the same in any company.
func TestGoldenAnswers(t *testing.T) {
	d := start(t, Options{Slots: 6})
	check := func(g demo.Prompt, a answer) {
		t.Helper()
		want, reason := g.Greedy, engine.StopLimit
		if g.End != nil {
			want, reason = g.Greedy[:*g.End+1], engine.StopEOS
		}
		if !slices.Equal(a.tokens, want) || a.text != g.Answer || a.Reason != reason {
			t.Errorf("%s: got %v %q (%s), want %v %q (%s)", g.Name, a.tokens, a.text, a.Reason, want, g.Answer, reason)
		}
	}
	for _, g := range golden(t) {
		check(g, ask(t, d, greedy(g.Tokens, 32)))
	}
	var wg sync.WaitGroup
	for _, g := range golden(t) {
		r := greedy(g.Tokens, 32)
		r.CachePrompt = false
		wg.Go(func() { check(g, ask(t, d, r)) })
	}
	wg.Wait()
}

// The same prompt again costs one token; an extended one only what is new; and the
// answers are those of a decoder that computes everything.
func TestPrefixReuse(t *testing.T) {
	d := start(t, Options{Slots: 2})
	g := golden(t)[2]
	first := ask(t, d, greedy(g.Tokens, 5))
	if first.Timings.CacheN != 0 || first.Timings.PromptN != len(g.Tokens) || first.Recompute != "" {
		t.Errorf("first: %+v %q", first.Timings, first.Recompute)
	}
	again := ask(t, d, greedy(g.Tokens, 5))
	if again.Timings.CacheN != len(g.Tokens)-1 || again.Timings.PromptN != 1 {
		t.Errorf("again: %+v", again.Timings)
	}
	if again.text != first.text {
		t.Errorf("again: %q, first %q", again.text, first.text)
	}
	// The conversation goes on: the answer but its last token is cached too.
	longer := append(slices.Clone(g.Tokens), first.tokens...)
	longer = append(longer, golden(t)[0].Tokens...)
	warm := ask(t, d, greedy(longer, 8))
	if want := len(g.Tokens) + len(first.tokens) - 1; warm.Timings.CacheN != want {
		t.Errorf("longer: %d cached, want %d", warm.Timings.CacheN, want)
	}
	r := greedy(longer, 8)
	r.CachePrompt = false
	if cold := ask(t, d, r); cold.text != warm.text || cold.Timings.CacheN != 0 {
		t.Errorf("cold %q (%d cached), warm %q", cold.text, cold.Timings.CacheN, warm.text)
	}
	// A prompt that differs in the middle says where.
	other := slices.Clone(g.Tokens)
	other[100]++
	a := ask(t, d, greedy(other, 1))
	if a.Timings.CacheN != 100 || !strings.Contains(a.Recompute, "token 100") {
		t.Errorf("diverging: %d cached, %q", a.Timings.CacheN, a.Recompute)
	}
}

// A chat of many turns fits although the pool has room for few blocks.
func TestManyTurnsDoNotWasteBlocks(t *testing.T) {
	d := start(t, Options{Slots: 1})
	prompt := slices.Clone(golden(t)[4].Tokens)
	for turn := range 40 {
		a := ask(t, d, greedy(prompt, 10))
		if a.Reason == engine.Failed {
			t.Fatalf("turn %d: %v", turn, a.Err)
		}
		if want := len(prompt) - 30; turn > 0 && a.Timings.CacheN < want {
			t.Fatalf("turn %d: %d of %d cached", turn, a.Timings.CacheN, len(prompt))
		}
		prompt = append(prompt, a.tokens...)
		prompt = append(prompt, golden(t)[0].Tokens...)
	}
}

// A long prompt is processed in pieces between the tokens of a running answer.
func TestLongPromptDoesNotStarveOthers(t *testing.T) {
	d := start(t, Options{Slots: 2, StepTarget: time.Millisecond})
	running, err := d.Generate(t.Context(), greedy(golden(t)[0].Tokens, 2000))
	if err != nil {
		t.Fatal(err)
	}
	defer running.Cancel()
	if _, err := running.Recv(t.Context()); err != nil {
		t.Fatal(err)
	}
	long := greedy(golden(t)[3].Tokens, 1)
	long.Progress = true
	a := ask(t, d, long)
	pieces := 0
	for _, e := range a.events {
		if e.Kind == engine.Progress {
			pieces++
		}
	}
	if pieces < 10 {
		t.Errorf("1,502 tokens came in %d pieces beside a running answer", pieces)
	}
	running.Cancel()
	if got := collect(t, running); len(got.tokens) < pieces {
		t.Errorf("the running answer got %d tokens during %d pieces", len(got.tokens), pieces)
	}
}

func TestSeedsAndSampling(t *testing.T) {
	d := start(t, Options{Slots: 3})
	r := func(seed int64) *engine.Request {
		q := engine.NewRequest(golden(t)[0].Tokens)
		q.Sampling.Seed, q.Sampling.Temperature, q.MaxTokens = seed, 1.5, 24
		return q
	}
	a, b, c := ask(t, d, r(7)), ask(t, d, r(7)), ask(t, d, r(8))
	if a.text != b.text {
		t.Errorf("one seed, two texts: %q and %q", a.text, b.text)
	}
	if a.text == c.text {
		t.Errorf("two seeds, one text: %q", a.text)
	}
	if a.Seed != 7 {
		t.Errorf("seed %d", a.Seed)
	}
	if x, y := ask(t, d, r(-1)), ask(t, d, r(-1)); x.Seed == y.Seed {
		t.Errorf("two random seeds are both %d", x.Seed)
	}
}

func TestStops(t *testing.T) {
	d := start(t, Options{Slots: 2})
	g := golden(t)[0] // " a storm came and the wind broke the roof. ..."
	r := greedy(g.Tokens, 32)
	r.Stop = []string{"nowhere", "the wind"}
	a := ask(t, d, r)
	if a.text != " a storm came and " || a.Reason != engine.StopWord || a.StoppingWord != "the wind" {
		t.Errorf("got %q, %s %q", a.text, a.Reason, a.StoppingWord)
	}
	r = greedy(g.Tokens, 3)
	if a := ask(t, d, r); len(a.tokens) != 3 || a.Reason != engine.StopLimit {
		t.Errorf("%d tokens, %s", len(a.tokens), a.Reason)
	}
	if a := ask(t, d, greedy(g.Tokens, 0)); len(a.tokens) != 0 || a.Reason != engine.StopLimit || a.Timings.PromptN+a.Timings.CacheN != len(g.Tokens) {
		t.Errorf("no tokens asked for: %d, %s, %+v", len(a.tokens), a.Reason, a.Timings)
	}
	// ignore_eos: the answer to the golden question would end after five tokens.
	r = greedy(golden(t)[2].Tokens, 20)
	r.IgnoreEOS = true
	if a := ask(t, d, r); len(a.tokens) != 20 || a.Reason != engine.StopLimit {
		t.Errorf("ignore_eos: %d tokens, %s", len(a.tokens), a.Reason)
	}
}

func TestContextFull(t *testing.T) {
	d := start(t, Options{Slots: 1, Ctx: 64})
	r := greedy(golden(t)[0].Tokens, -1)
	r.IgnoreEOS = true
	a := ask(t, d, r)
	if !a.ContextFull || a.Reason != engine.StopLimit || len(r.Prompt)+len(a.tokens) != 64 {
		t.Errorf("%d + %d tokens, %s, full %v", len(r.Prompt), len(a.tokens), a.Reason, a.ContextFull)
	}
	_, err := d.Generate(t.Context(), greedy(make([]int32, 64), 1))
	var e *engine.Error
	if !errors.As(err, &e) || e.Code != engine.CodeTooLong || e.Prompt != 64 || e.Ctx != 64 {
		t.Errorf("a prompt as long as the context: %v", err)
	}
}

func TestCancelFreesTheSlot(t *testing.T) {
	d := start(t, Options{Slots: 1})
	ctx, cancel := context.WithCancel(t.Context())
	r := greedy(golden(t)[0].Tokens, -1)
	r.IgnoreEOS = true
	st, err := d.Generate(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(t.Context()); err != nil {
		t.Fatal(err)
	}
	queued, err := d.Generate(t.Context(), greedy(golden(t)[1].Tokens, 4))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if a := collect(t, st); a.Reason != engine.Cancelled {
		t.Errorf("ended for %s", a.Reason)
	}
	if a := collect(t, queued); len(a.tokens) != 4 {
		t.Errorf("the request behind it got %d tokens", len(a.tokens))
	}
	// A queued request can leave too.
	busy, err := d.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := d.Generate(t.Context(), greedy(golden(t)[1].Tokens, 4))
	if err != nil {
		t.Fatal(err)
	}
	waiting.Cancel()
	if a := collect(t, waiting); a.Reason != engine.Cancelled || len(a.tokens) != 0 {
		t.Errorf("queued: %s with %d tokens", a.Reason, len(a.tokens))
	}
	busy.Cancel()
	collect(t, busy)
}

func TestLogprobs(t *testing.T) {
	d := start(t, Options{Slots: 1})
	g := golden(t)[0]
	r := greedy(g.Tokens, 2)
	r.Logprobs = 3
	a := ask(t, d, r)
	e := a.events[0]
	// The reference's largest logit and log of the sum of exponentials.
	if want := g.Max - g.LogSumExp; e.Logprob.Token != g.Argmax || float64(e.Logprob.Logprob)-want > .05 || want-float64(e.Logprob.Logprob) > .05 {
		t.Errorf("logprob %+v, want %d with %g", e.Logprob, g.Argmax, want)
	}
	if len(e.Top) != 3 || e.Top[0] != e.Logprob || e.Top[1].Logprob > e.Top[0].Logprob || e.Top[2].Logprob > e.Top[1].Logprob {
		t.Errorf("top %+v", e.Top)
	}
}

func TestRefusals(t *testing.T) {
	d := start(t, Options{Slots: 2})
	for name, change := range map[string]func(*engine.Request){
		"empty prompt":        func(r *engine.Request) { r.Prompt = nil },
		"token out of range":  func(r *engine.Request) { r.Prompt = []int32{4096} },
		"negative token":      func(r *engine.Request) { r.Prompt = []int32{-1} },
		"slot that is not":    func(r *engine.Request) { r.Slot = 2 },
		"empty stop":          func(r *engine.Request) { r.Stop = []string{""} },
		"bias out of range":   func(r *engine.Request) { r.Sampling.LogitBias = []engine.TokenBias{{Token: 5000}} },
		"prompt over context": func(r *engine.Request) { r.Prompt = make([]int32, 2561) },
	} {
		t.Run(name, func(t *testing.T) {
			r := greedy([]int32{1}, 1)
			change(r)
			_, err := d.Generate(t.Context(), r)
			var e *engine.Error
			if !errors.As(err, &e) || e.Param == "" && e.Code != engine.CodeTooLong {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Ruling all tokens out is the caller's mistake.
func TestBiasAgainstEverything(t *testing.T) {
	d := start(t, Options{Slots: 1})
	r := greedy(golden(t)[0].Tokens, 4)
	for id := range int32(d.model.Vocab) {
		r.Sampling.LogitBias = append(r.Sampling.LogitBias, engine.TokenBias{Token: id, Bias: float32(math.Inf(-1))})
	}
	a := ask(t, d, r)
	if e := engine.AsError(a.Err); a.Reason != engine.Failed || e.Code != engine.CodeBadRequest || e.Param != "logit_bias" {
		t.Errorf("%s: %v", a.Reason, a.Err)
	}
}

// Choices of one prompt, asked for at once, process it once.
func TestSimultaneousPromptsShare(t *testing.T) {
	d := start(t, Options{Slots: 4})
	g := golden(t)[2]
	var streams []engine.Stream
	for i := range 4 {
		r := greedy(g.Tokens, 4)
		r.Sampling.Seed = int64(i)
		st, err := d.Generate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, st)
	}
	processed := 0
	for _, st := range streams {
		processed += collect(t, st).Timings.PromptN
	}
	if processed > len(g.Tokens)+3*8 {
		t.Errorf("%d prompt tokens were processed for four requests of the same %d", processed, len(g.Tokens))
	}
}

func TestCloseDrainsAndCancels(t *testing.T) {
	d := start(t, Options{Slots: 1})
	st, err := d.Generate(t.Context(), greedy(golden(t)[0].Tokens, 30))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := collect(t, st); len(a.tokens) != 30 {
		t.Errorf("drained with %d of 30 tokens", len(a.tokens))
	}
	if _, err := d.Generate(t.Context(), greedy(golden(t)[0].Tokens, 1)); engine.AsError(err).Code != engine.CodeStopping {
		t.Errorf("after close: %v", err)
	}

	d = start(t, Options{Slots: 1})
	r := greedy(golden(t)[0].Tokens, -1)
	r.IgnoreEOS = true
	if st, err = d.Generate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Close(ctx); err != nil {
		t.Error(err)
	}
	if a := collect(t, st); a.Reason != engine.Cancelled && a.Reason != engine.StopLimit {
		t.Errorf("cut off for %s", a.Reason)
	}
}

// A step allocates nothing: what a token costs beyond it is its event.
func BenchmarkGenerate(b *testing.B) {
	d := start(b, Options{Slots: 1})
	r := greedy(golden(b)[0].Tokens, 2400)
	r.IgnoreEOS = true
	b.ReportAllocs()
	for b.Loop() {
		st, err := d.Generate(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			e, err := st.Recv(b.Context())
			if err != nil {
				break
			}
			if e.Kind == engine.Token {
				n++
			}
		}
		b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tokens/s")
	}
}

// What is cached of a prompt never takes the room that the request needs: in a pool of one
// block, a prompt that begins like the one before is processed anew, and says so; one that
// goes on where that ended is not.
func TestCacheGivesWayToTheRequest(t *testing.T) {
	d := start(t, Options{Slots: 1, KVBytes: 4 << 20})
	if n := d.blocks.Stats().Limit; n != 1 {
		t.Fatalf("%d blocks, want 1", n)
	}
	first := golden(t)[2].Tokens
	a := ask(t, d, greedy(first, 8))
	more := append(append(append([]int32{}, first...), a.tokens...), 5, 6, 7)
	b := ask(t, d, greedy(more, 8))
	if want := len(first) + len(a.tokens) - 1; b.Err != nil || b.Timings.CacheN != want { // the last token's cell was never filled
		t.Errorf("extended: %d cached, want %d; %v", b.Timings.CacheN, want, b.Err)
	}
	other := append(append([]int32{}, first[:10]...), golden(t)[3].Tokens[:600]...)
	c := ask(t, d, greedy(other, 8))
	if c.Err != nil || c.Timings.CacheN != 0 || c.Timings.PromptN != len(other) || !strings.Contains(c.Recompute, "no room") {
		t.Errorf("diverging: %v; %d cached, %d processed, %q", c.Err, c.Timings.CacheN, c.Timings.PromptN, c.Recompute)
	}
	if got := d.Stats().Recomputed["crowded"]; got != uint64(len(other)) {
		t.Errorf("%d tokens processed again for want of room, want %d", got, len(other))
	}
}
