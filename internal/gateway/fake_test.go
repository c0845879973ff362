package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"baton/internal/engine"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// limit bounds what would otherwise hang; no result depends on it.
const limit = 20 * time.Second

// fakeDecoder answers each request with as many tokens as it asks for, one each time the
// test lets it.
type fakeDecoder struct {
	info engine.Info
	stat engine.Stats

	mu      sync.Mutex
	refuse  []error // of the next requests
	running map[int]int
	most    int // requests at once in a slot
	seen    []engine.Request
	step    chan struct{} // nil: tokens come at once
	die     chan struct{} // closed: streams end as with a decoder that was killed
	cached  int           // cells that the next prompts find
}

func newFakeDecoder(slots int) *fakeDecoder {
	d := &fakeDecoder{info: engine.Info{VocabSize: 1000, CtxSlot: 4096, Slots: slots}, running: map[int]int{}, die: make(chan struct{})}
	d.stat.Slots = make([]engine.SlotState, slots)
	return d
}

func (d *fakeDecoder) Info() engine.Info { return d.info }

func (d *fakeDecoder) Stats() engine.Stats {
	st := d.stat
	st.Slots = append([]engine.SlotState(nil), st.Slots...)
	return st
}

func (d *fakeDecoder) Generate(ctx context.Context, r *engine.Request) (engine.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, *r)
	if len(d.refuse) > 0 {
		err := d.refuse[0]
		d.refuse = d.refuse[1:]
		if err != nil {
			return nil, err
		}
	}
	d.running[r.Slot]++
	d.most = max(d.most, d.running[r.Slot])
	s := &fakeStream{Queue: engine.NewQueue()}
	ctx, s.cancel = context.WithCancel(ctx)
	go d.answer(ctx, s.Queue, *r, d.die)
	return s, nil
}

type fakeStream struct {
	*engine.Queue
	cancel func()
}

func (s *fakeStream) Cancel() { s.cancel() }

var errKilled = &engine.Error{Code: engine.CodeAway, Message: "the decoder process ended"}

func (d *fakeDecoder) answer(ctx context.Context, q *engine.Queue, r engine.Request, die <-chan struct{}) {
	res := &engine.Result{Reason: engine.StopLimit, Slot: r.Slot}
	res.Timings = engine.Timings{Queue: time.Millisecond, CacheN: d.cached, PromptN: len(r.Prompt) - d.cached}
loop:
	for i := range r.MaxTokens {
		if d.step != nil {
			select {
			case <-d.step:
			case <-ctx.Done():
				res.Reason, res.Err = engine.Cancelled, context.Canceled
				break loop
			case <-die:
				res.Reason, res.Err = engine.Failed, errKilled
				break loop
			}
		}
		q.Send(engine.Event{Kind: engine.Token, At: time.Now(), Text: string(rune('a' + i%26)), Token: int32(i)})
		res.Timings.PredictedN++
	}
	d.mu.Lock()
	d.running[r.Slot]--
	d.mu.Unlock()
	q.Send(engine.Event{Kind: engine.Done, At: time.Now(), Result: res})
}

// kill ends what runs; the next decoder is there at once.
func (d *fakeDecoder) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.die)
	d.die = make(chan struct{})
}

// stepwise makes the tokens wait for the test.
func (d *fakeDecoder) stepwise() *fakeDecoder {
	d.step = make(chan struct{})
	return d
}

func (d *fakeDecoder) requests() []engine.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]engine.Request(nil), d.seen...)
}

func start(t *testing.T, opt Options) *Engine {
	e := New(opt)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		e.Close(ctx)
	})
	return e
}

func withLimit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// request asks for n tokens.
func request(id string, n int, prompt ...int32) *engine.Request {
	if len(prompt) == 0 {
		prompt = []int32{1, 2, 3}
	}
	r := engine.NewRequest(prompt)
	r.ID, r.MaxTokens = id, n
	return r
}

// long is a prompt of n tokens that begins with first.
func long(n int, first int32) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = (first + int32(i)) % 1000
	}
	return p
}

func generate(t *testing.T, e *Engine, r *engine.Request) engine.Stream {
	t.Helper()
	st, err := e.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// finish reads a stream to its end: its text and its result, of which there is one.
func finish(t *testing.T, st engine.Stream) (string, *engine.Result) {
	t.Helper()
	var text bytes.Buffer
	ctx := withLimit(t)
	for {
		ev, err := st.Recv(ctx)
		if err != nil {
			t.Fatalf("no result after %q: %v", text.String(), err)
		}
		text.WriteString(ev.Text)
		if ev.Kind == engine.Done {
			if ev, err := st.Recv(ctx); !errors.Is(err, io.EOF) {
				t.Errorf("after the last event: %+v, %v", ev, err)
			}
			return text.String(), ev.Result
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// logBuffer is a log that tests read.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newLog() (*logBuffer, *slog.Logger) {
	b := new(logBuffer)
	return b, slog.New(slog.NewTextHandler(b, nil))
}
