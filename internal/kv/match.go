package kv

import "fmt"

// Reason says why the reuse of cached cells stops where it does.
type Reason uint8

const (
	// None: nothing that begins like the prompt is cached, or ever was.
	None Reason = iota
	// Full: everything that was asked for is reused.
	Full
	// Extended: the prompt goes on where the cached sequence ends.
	Extended
	// Diverged: the prompt and the cached sequence have different tokens at one
	// position.
	Diverged
	// Evicted: more was cached, but had to make room.
	Evicted
	// Scattered: more is cached, but in too many short blocks to be worth it.
	Scattered
	// Crowded: more is cached, but the pool is too small to go on beside it.
	Crowded
)

var reasonNames = [...]string{"none", "full", "extended", "diverged", "evicted", "scattered", "crowded"}

// String is the reason as a metric label.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Match says how much of a prompt is cached and why not more.
type Match struct {
	Tokens int // the first that many tokens are in the cache
	Reason Reason
	// Until is the position up to which more was or is cached (Evicted, Scattered, Crowded).
	Until int
	// Cached and Wanted are the tokens at position Tokens (Diverged).
	Cached, Wanted int32
}

// Why is a sentence about tokens that have to be computed although one could expect
// them in the cache; empty if there are none.
func (m Match) Why() string {
	switch m.Reason {
	case Diverged:
		return fmt.Sprintf("token %d of the prompt is %d, the cached sequence has %d there", m.Tokens, m.Wanted, m.Cached)
	case Evicted:
		return fmt.Sprintf("tokens %d to %d were cached, but had to make room for other requests", m.Tokens, m.Until-1)
	case Scattered:
		return fmt.Sprintf("tokens %d to %d are cached, but in too many short blocks", m.Tokens, m.Until-1)
	case Crowded:
		return fmt.Sprintf("tokens %d to %d are cached, but there is no room for the rest beside the blocks that they are in", m.Tokens, m.Until-1)
	}
	return ""
}
