package decoder

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	step := func(tokens int) *batch { return &batch{tokens: tokens, prompt: tokens} }
	p := pace{target: 50 * time.Millisecond}
	check := func(what string, generating, want int) {
		t.Helper()
		if got := p.room(generating, 512); got != want {
			t.Errorf("%s: room for %d tokens, want %d", what, got, want)
		}
	}
	check("nothing known", 0, firstPiece)
	check("nothing known beside others", 3, minPiece)

	p.measured(step(100), 100*time.Millisecond) // 1 ms a token
	check("fast", 0, 512)
	check("fast beside others", 2, 50)

	p = pace{target: 50 * time.Millisecond}
	p.measured(step(64), 64*50*time.Millisecond) // 50 ms a token: kernels in plain Go
	check("slow", 0, 20)
	check("slow beside others", 1, minPiece)

	p.measured(step(minPiece-1), time.Hour) // too few to learn from
	check("after a step of few tokens", 0, 20)
}
