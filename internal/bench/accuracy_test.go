package bench

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
)

func TestNMSE(t *testing.T) {
	if got := nmse([]float32{1, 2, 2}, []float32{1, 2, 2}); got != 0 {
		t.Errorf("of equal rows: %g", got)
	}
	// (0² + 1² + 1²) / (1² + 2² + 2²)
	if got := nmse([]float32{1, 3, 1}, []float32{1, 2, 2}); got != 2.0/9 {
		t.Errorf("found %g, want 2/9", got)
	}
}

// Equal logits predict every token with 1/vocab; certain ones with 1. Large logits must
// not overflow.
func TestPerplexity(t *testing.T) {
	const vocab = 8
	tokens := []int32{3, 1, 7, 0}
	flat, sure := make([]float32, len(tokens)*vocab), make([]float32, len(tokens)*vocab)
	for i := range flat {
		flat[i] = 1e4
	}
	for i, next := range tokens[1:] {
		sure[i*vocab+int(next)] = 1e4
	}
	if got := perplexity(flat, vocab, tokens); math.Abs(got-vocab) > 1e-9 {
		t.Errorf("equal logits: %g, want %d", got, vocab)
	}
	if got := perplexity(sure, vocab, tokens); got != 1 {
		t.Errorf("certain logits: %g, want 1", got)
	}
	// Two tokens with logits ln 3 and 0: p = 3/4 and 1/4.
	row := []float32{float32(math.Log(3)), 0}
	if got := perplexity(append(row, row...), 2, []int32{0, 1}); math.Abs(got-4) > 1e-6 {
		t.Errorf("found %g, want 4", got)
	}
}

// On the built-in model the engine is within 0.5 % of the float path's perplexity, and
// that is the perplexity of a model that has learnt such tales: its training reported
// 3.13 nats, exp(3.13) = 23, on tales that it had not seen.
func TestDemoAccuracy(t *testing.T) {
	r, err := MeasureAccuracy(context.Background(), AccuracyOptions{Threads: 2, Tokens: 256})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if d := math.Abs(r.Perplexity/r.FloatPerplexity - 1); d > 0.005 {
		t.Errorf("perplexity %g, the float path has %g: %.2f %% off, at most 0.5", r.Perplexity, r.FloatPerplexity, 100*d)
	}
	if r.FloatPerplexity < 5 || r.FloatPerplexity > 60 {
		t.Errorf("perplexity %g does not look like that of a tale", r.FloatPerplexity)
	}
	if r.NMSE <= 0 || r.NMSE > 1e-3 {
		t.Errorf("NMSE %g, want a small number above zero", r.NMSE)
	}
	var text bytes.Buffer
	if err := WriteAccuracy(&text, []AccuracyResult{r}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Demo 13M", "Q8_0", "256", "perplexity"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestAccuracyRefusals(t *testing.T) {
	if _, err := MeasureAccuracy(context.Background(), AccuracyOptions{Threads: 1, Tokens: 1}); err == nil {
		t.Error("one token is no text")
	}
	missing := func(model, tokens, logits string) Program { return Program{Path: "/nonexistent/llamapeer"} }
	if _, err := MeasureAccuracy(context.Background(), AccuracyOptions{Threads: 1, Tokens: 3, Peer: missing, PeerName: "missing"}); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a peer that is not there: %v", err)
	}
}
