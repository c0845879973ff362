package gateway

import (
	"context"
	"slices"
	"sync"
)

// line is where prompts wait for a provider, which takes one at a time.
type line struct {
	mu    sync.Mutex
	turns []*turn // the first is with the provider
}

// turn is a prompt in line.
type turn struct {
	prompt []int32
	first  chan struct{} // closed when it is the first
}

// patience is how many times the length of a prompt may be ahead of it in line. With
// more, the decoder has it done sooner.
const patience = 4

// join takes a place at the end of the line, or none if too much is ahead. Prompts that
// share at least common tokens with this one do not count: what is filled for them need
// not be filled again.
func (l *line) join(prompt []int32, common int) (*turn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ahead := 0
	for _, t := range l.turns {
		if commonPrefix(t.prompt, prompt) < common {
			ahead += len(t.prompt)
		}
	}
	if ahead > patience*len(prompt) {
		return nil, false
	}
	t := &turn{prompt: prompt, first: make(chan struct{})}
	if l.turns = append(l.turns, t); len(l.turns) == 1 {
		close(t.first)
	}
	return t, true
}

// wait waits until t is the first. The caller has to leave, whatever wait returns.
func (t *turn) wait(ctx context.Context) error {
	select {
	case <-t.first:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave lets the next come.
func (l *line) leave(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.turns, t)
	l.turns = slices.Delete(l.turns, i, i+1)
	if i == 0 && len(l.turns) > 0 {
		close(l.turns[0].first)
	}
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
