package kv

import (
	"slices"
	"sync/atomic"
)

// Index finds cells that were computed before: a radix tree over tokens, whose nodes
// hold the runs of cells of their tokens. A lookup compares tokens, so what it finds is
// what was asked for, and it finds it to the token, wherever blocks begin and end.
//
// The index uses blocks without pinning them: it gives them back, least recently used
// first, when the pool needs room.
type Index struct {
	pool    *Pool
	root    *node
	recent  recency
	evicted *evictedSet
	scratch []Run

	nodes, tokens             atomic.Int64
	hits, misses, evictedToks atomic.Uint64
}

// node is tokens that follow its parent's, and the cells that hold them.
type node struct {
	parent   *node
	children map[int32]*node // by their first token
	tokens   []int32         // none only in the root
	runs     []Run           // of len(tokens) cells in all
	start    int             // position of the first token
	before   prefixHash      // of the tokens before start

	older, newer *node // in the recency list
	stamp        uint64
}

func (n *node) end() int { return n.start + len(n.tokens) }

// NewIndex makes the index of a pool; a pool has at most one.
func NewIndex(p *Pool) *Index {
	x := &Index{pool: p, evicted: newEvictedSet()}
	x.root = &node{before: x.evicted.seed}
	p.index = x
	return x
}

// Lookup says how many of the first most tokens are cached, and why not more. It changes
// nothing.
func (x *Index) Lookup(tokens []int32, most int) Match {
	m, _ := x.lookup(tokens, most)
	return m
}

// Attach starts a sequence with the cells of as many of the first most tokens as are
// cached; the sequence then has Match.Tokens tokens. The caller, who needs the logits of
// the last token of a prompt, passes at most len(tokens)-1.
//
// The sequence holds the cells, so that they are not evicted, and goes on in the last
// block if that is filled just so far and nobody else does.
func (x *Index) Attach(tokens []int32, most int) (*Sequence, Match) {
	m, runs := x.lookup(tokens, most)
	s := x.pool.NewSequence()
	if m.Tokens == 0 {
		x.misses.Add(1)
		return s, m
	}
	x.hits.Add(1)
	s.tokens = append(make([]int32, 0, len(tokens)+1), tokens[:m.Tokens]...)
	s.hold(runs)
	if last := s.runs[len(s.runs)-1]; last.appendable(nil) {
		last.Block.owner = s
	}
	// Only what is reused counts as used.
	n := x.root
	for n.end() < m.Tokens {
		n = x.child(n, tokens[n.end():m.Tokens])
	}
	x.touch(n)
	x.pool.check()
	return s, m
}

// lookup returns the match and the cells of its tokens; these are valid until the next
// lookup.
func (x *Index) lookup(tokens []int32, most int) (Match, []Run) {
	want := tokens[:min(len(tokens), max(most, 0))]
	n, within := x.root, 0 // the deepest node of which the first within tokens match
	found := 0
	runs := x.scratch[:0]
	for within == len(n.tokens) && found < len(want) {
		child := n.children[want[found]]
		if child == nil {
			break
		}
		n, within = child, common(child.tokens, want[found:])
		found += within
		runs = cut(n.runs, 0, within, runs)
	}
	x.scratch = runs[:0]
	runs, kept := worthwhile(runs, nil)

	m := Match{Tokens: kept, Reason: Full}
	if kept < found {
		m.Reason, m.Until = Scattered, found
		return m, runs
	}
	if found == len(want) {
		return m, runs
	}
	if until := x.evicted.until(want, found); until > found {
		m.Reason, m.Until = Evicted, until
		return m, runs
	}
	m.Wanted = want[found]
	switch {
	case found == 0:
		m.Reason, m.Wanted = None, 0
	case within < len(n.tokens):
		m.Reason, m.Cached = Diverged, n.tokens[within]
	case len(n.children) > 0:
		m.Reason, m.Cached = Diverged, n.latestChild().tokens[0]
	default:
		m.Reason, m.Wanted = Extended, 0
	}
	return m, runs
}

// latestChild is the child used last.
func (n *node) latestChild() *node {
	var latest *node
	for _, c := range n.children {
		if latest == nil || c.stamp > latest.stamp {
			latest = c
		}
	}
	return latest
}

// common is the length of the common beginning of a and b.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i, t := range a[:n] {
		if t != b[i] {
			return i
		}
	}
	return n
}

// cut appends to dst the runs of cells from to to-1 of runs.
func cut(runs []Run, from, to int, dst []Run) []Run {
	pos := 0
	for _, r := range runs {
		a, b := max(from, pos), min(to, pos+r.Len)
		if a < b {
			dst = appendRun(dst, Run{Block: r.Block, Cell: r.Cell + a - pos, Len: b - a})
		}
		pos += r.Len
	}
	return dst
}

// appendable reports whether s, nil for a new sequence, can go on in the block of r when
// it ends with r.
func (r Run) appendable(s *Sequence) bool {
	b := r.Block
	return !b.frozen && (b.owner == nil || b.owner == s) && r.end() == b.used
}

// worthwhile cuts runs to those that s, nil for a new sequence, may consist of before it
// goes on in a new block, and counts their cells.
// The cells of their blocks that it cannot use may be at most Layout.Extra blocks' in all:
// so it never holds more than that many blocks beyond what its tokens need, and prompts
// that differ again and again in the middle of a block do not end up with a block each.
func worthwhile(runs []Run, s *Sequence) ([]Run, int) {
	cells, waste := 0, 0
	for i, r := range runs {
		size := r.Block.layout.CellsPerBlock
		unused := size - r.Len
		if i == len(runs)-1 && r.appendable(s) {
			unused = r.Cell // the cells behind it will be used
		}
		if waste+unused > r.Block.layout.Extra*size {
			return runs[:i], cells
		}
		waste += unused
		cells += r.Len
	}
	return runs, cells
}

// Insert makes the cells of a sequence findable; all their rows must be written. The
// sequence goes on as before, the index uses its blocks beside it. Where the tokens are
// already there, the index keeps the cells that it has, unless those are too scattered
// for Attach and the sequence's are not.
func (x *Index) Insert(s *Sequence) {
	n := x.root
	var path []Run // cells that the index has for the tokens of s
	for n.end() < len(s.tokens) {
		next := x.child(n, s.tokens[n.end():])
		if next == nil {
			next = x.addLeaf(n, s)
		}
		for _, r := range next.runs {
			path = appendRun(path, r)
		}
		n = next
	}
	x.touch(n)
	if _, kept := worthwhile(path, s); kept < len(s.tokens) {
		x.gather(n, s)
	}
	x.pool.check()
}

// child returns the child of n whose tokens all are at the beginning of tokens,
// splitting the one that has some; nil if there is none.
func (x *Index) child(n *node, tokens []int32) *node {
	c := n.children[tokens[0]]
	if c == nil {
		return nil
	}
	if k := common(c.tokens, tokens); k < len(c.tokens) {
		return x.split(c, k)
	}
	return c
}

// split makes two nodes of n, the first with k tokens, and returns that. n becomes the
// second, so that its children keep their parent.
func (x *Index) split(n *node, k int) *node {
	first := &node{
		parent: n.parent, children: map[int32]*node{n.tokens[k]: n},
		tokens: n.tokens[:k:k], runs: cut(n.runs, 0, k, nil), start: n.start, before: n.before,
		stamp: n.stamp,
	}
	n.parent.children[n.tokens[0]] = first
	rest := cut(n.runs, k, len(n.tokens), nil)
	// A run that is cut in two counts twice. Take before giving back, so that no block
	// is without users in between.
	x.use(first.runs)
	x.use(rest)
	x.disuse(n.runs)
	n.parent, n.tokens, n.runs = first, n.tokens[k:], rest
	n.start, n.before = first.end(), first.before.addAll(first.tokens)
	x.recent.insertAfter(first, n)
	x.nodes.Add(1)
	return first
}

// addLeaf adds the tokens of s from the end of n on as a child of n.
func (x *Index) addLeaf(n *node, s *Sequence) *node {
	leaf := &node{
		parent: n, tokens: slices.Clone(s.tokens[n.end():]), runs: s.Runs(n.end(), len(s.tokens), nil),
		start: n.end(), before: n.before.addAll(n.tokens),
	}
	if n.children == nil {
		n.children = map[int32]*node{}
	}
	n.children[leaf.tokens[0]] = leaf
	x.use(leaf.runs)
	x.recent.pushNewest(leaf)
	x.nodes.Add(1)
	x.tokens.Add(int64(len(leaf.tokens)))
	return leaf
}

// gather puts the cells of s, whose tokens end with those of n, in the place of those
// that n and the nodes above it have. So the index comes to hold the cells that were
// computed anew because the old ones are scattered.
func (x *Index) gather(n *node, s *Sequence) {
	if _, kept := worthwhile(s.Runs(0, len(s.tokens), nil), s); kept < len(s.tokens) {
		return
	}
	for ; n != x.root; n = n.parent {
		runs := s.Runs(n.start, n.end(), nil)
		x.use(runs)
		x.disuse(n.runs)
		n.runs = runs
	}
}

func (x *Index) use(runs []Run) {
	x.pool.mu.Lock()
	defer x.pool.mu.Unlock()
	for _, r := range runs {
		x.pool.addNode(r.Block)
	}
}

func (x *Index) disuse(runs []Run) {
	x.pool.mu.Lock()
	defer x.pool.mu.Unlock()
	for _, r := range runs {
		x.pool.dropNode(r.Block)
	}
}

// touch makes n, and after it each node above it, the most recently used. So a node is
// never less recent than one below it, and the least recent of all is a leaf.
func (x *Index) touch(n *node) {
	for ; n != x.root; n = n.parent {
		x.recent.remove(n)
		x.recent.pushNewest(n)
	}
}

// IndexStats is a snapshot of an index.
type IndexStats struct {
	Nodes         int
	Tokens        int    // that can be found
	Hits          uint64 // calls of Attach that reused cells
	Misses        uint64 // those that did not
	EvictedTokens uint64
}

// Stats may be called at any time from any goroutine.
func (x *Index) Stats() IndexStats {
	return IndexStats{
		Nodes: int(x.nodes.Load()), Tokens: int(x.tokens.Load()),
		Hits: x.hits.Load(), Misses: x.misses.Load(), EvictedTokens: x.evictedToks.Load(),
	}
}
