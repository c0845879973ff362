package kv

// Evict gives up cached cells, least recently used first and from the end of a sequence,
// until n blocks are free that were not. It returns how many there are, which is fewer
// only if the cache has no more.
func (x *Index) Evict(n int) int {
	freed := x.evict(n, false)
	if freed < n {
		// What is left hangs above cells that sequences hold. Giving up those frees
		// nothing, but what is above them can go then.
		freed += x.evict(n-freed, true)
	}
	x.pool.check()
	return freed
}

// Clear gives up everything.
func (x *Index) Clear() {
	for n := x.recent.oldest; n != nil; n = x.recent.oldest {
		x.trim(n, len(n.tokens))
	}
	x.pool.check()
}

// evict goes through the nodes once, from the least recently used. That meets every
// child before its parent.
func (x *Index) evict(n int, held bool) int {
	freed := 0
	for v := x.recent.oldest; v != nil && freed < n; {
		next := v.newer
		for freed < n && len(v.children) == 0 && len(v.tokens) > 0 {
			last := v.runs[len(v.runs)-1]
			inUse, free := x.afterDrop(last.Block)
			if inUse && !held {
				break
			}
			x.trim(v, last.Len)
			if free {
				freed++
			}
		}
		v = next
	}
	return freed
}

// afterDrop says whether sequences hold b, and whether it is free when the index drops
// one more of its runs.
func (x *Index) afterDrop(b *Block) (inUse, free bool) {
	x.pool.mu.Lock()
	defer x.pool.mu.Unlock()
	return b.holders > 0, b.holders == 0 && b.nodes == 1
}

// trim drops the last k tokens of n, which has no children, and n itself if none are
// left. k is the length of n's last runs.
func (x *Index) trim(n *node, k int) {
	keep := len(n.tokens) - k
	x.evicted.record(n.before.addAll(n.tokens[:keep]), n.start+keep, n.tokens[keep:])
	kept := cut(n.runs, 0, keep, nil)
	x.disuse(n.runs[len(kept):])
	first := n.tokens[0]
	n.runs, n.tokens = kept, n.tokens[:keep]
	x.tokens.Add(int64(-k))
	x.evictedToks.Add(uint64(k))
	if keep == 0 {
		delete(n.parent.children, first)
		x.recent.remove(n)
		x.nodes.Add(-1)
	}
}

// recency is a list of nodes in the order of their last use.
type recency struct {
	oldest, newest *node
	clock          uint64
}

func (l *recency) pushNewest(n *node) {
	l.clock++
	n.stamp = l.clock
	n.older, n.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = n
	} else {
		l.oldest = n
	}
	l.newest = n
}

// insertAfter puts n just after m, as a little more recent.
func (l *recency) insertAfter(n, m *node) {
	n.older, n.newer = m, m.newer
	if m.newer != nil {
		m.newer.older = n
	} else {
		l.newest = n
	}
	m.newer = n
}

func (l *recency) remove(n *node) {
	if n.older != nil {
		n.older.newer = n.newer
	} else {
		l.oldest = n.newer
	}
	if n.newer != nil {
		n.newer.older = n.older
	} else {
		l.newest = n.older
	}
	n.older, n.newer = nil, nil
}
