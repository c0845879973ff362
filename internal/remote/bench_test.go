package remote

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"baton/internal/engine"
	"baton/internal/server/servertest"
)

// steps is an engine that produces a token whenever it is told to.
type steps struct {
	servertest.Engine
	queue *engine.Queue
}

func (s *steps) Generate(context.Context, *engine.Request) (engine.Stream, error) {
	s.queue = engine.NewQueue()
	return stepStream{s.queue}, nil
}

type stepStream struct{ *engine.Queue }

func (stepStream) Cancel() {}

var token = engine.Event{Kind: engine.Token, At: time.Now(), Text: " word", Token: 1234}

func start(b *testing.B, e engine.Engine) engine.Stream {
	c, _ := serve(b, e)
	return generate(b, c, engine.NewRequest([]int32{1}))
}

// finish ends the stream of e, so that nothing is left running.
func (s *steps) finish(b *testing.B, st engine.Stream) {
	s.queue.Send(engine.Event{Kind: engine.Done, Result: &engine.Result{Reason: engine.StopLimit}})
	collect(b, st)
}

// A token that is waited for: the way through both processes' halves and the socket.
func BenchmarkTokenLatency(b *testing.B) {
	e := &steps{}
	st := start(b, e)
	b.ReportAllocs()
	for b.Loop() {
		e.queue.Send(token)
		if _, err := st.Recv(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	e.finish(b, st)
}

// Tokens that come faster than they are read: the processor time of both ends.
func BenchmarkTokenThroughput(b *testing.B) {
	e := &steps{}
	st := start(b, e)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		e.queue.Send(token)
		n++
		if n%64 == 0 {
			for range 64 {
				if _, err := st.Recv(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	e.finish(b, st)
}

func BenchmarkEncodeEvent(b *testing.B) {
	var buf bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		buf.Reset()
		if err := appendEvent(&buf, &token); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(buf.Len()), "bytes")
}

func BenchmarkDecodeEvent(b *testing.B) {
	var buf bytes.Buffer
	if err := appendEvent(&buf, &token); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeEvent(buf.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}

// A request with a prompt of 100,000 tokens, to its first event.
func BenchmarkLongPrompt(b *testing.B) {
	c, _ := serve(b, &servertest.Engine{Reply: strings.Repeat("x", 10), Ctx: 1 << 20})
	r := engine.NewRequest(make([]int32, 100_000))
	for i := range r.Prompt {
		r.Prompt[i] = int32(i)
	}
	r.MaxTokens = 1
	b.ReportAllocs()
	for b.Loop() {
		collect(b, generate(b, c, r))
	}
}

// A request of three tokens: what the connection costs.
func BenchmarkShortRequest(b *testing.B) {
	c, _ := serve(b, &servertest.Engine{Reply: "x"})
	r := engine.NewRequest([]int32{1, 2, 3})
	r.MaxTokens = 1
	b.ReportAllocs()
	for b.Loop() {
		collect(b, generate(b, c, r))
	}
}
