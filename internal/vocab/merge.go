package vocab

import (
	"math"
	"sync"
)

// unmerged is the rank of a pair that no merge joins.
const unmerged = math.MaxUint32

// shortWord is the number of symbols up to which the best pair is found by looking at all
// of them, which beats a heap for the words of a natural language.
const shortWord = 48

// ranker knows which neighbouring symbols can be joined.
type ranker interface {
	// rankPair returns the rank of joining symbols l and r, neighbours in w.text, and the
	// token that they make; the lowest rank is joined first. unmerged: never.
	rankPair(w *word, l, r int32) (uint32, int32)
}

// word is a piece of text on its way from symbols to tokens. Symbols are numbered by their
// place in the text and linked into a list; a join keeps the left symbol's number.
type word struct {
	text  string
	id    []int32  // the symbol's token, or none
	start []int32  // where the symbol's text starts; start[n] is the end of the text
	next  []int32  // the symbol to the right; the number of symbols at the end
	prev  []int32  // the symbol to the left; -1 at the start
	rank  []uint32 // of joining the symbol with the one to its right
	join  []int32  // the token that would make
	heap  []uint64 // rank<<32 | symbol
}

// words recycles scratch memory between calls.
var words = sync.Pool{New: func() any { return new(word) }}

// maxKept is the number of symbols a recycled word may have room for (some 24 bytes each),
// so that one huge text does not pin its scratch memory.
const maxKept = 1 << 18

func getWord() *word { return words.Get().(*word) }

func putWord(w *word) {
	w.text = ""
	if cap(w.id) <= maxKept {
		words.Put(w)
	}
}

// reset starts a word of text with no symbols.
func (w *word) reset(text string) {
	w.text = text
	// At most a symbol a byte, and the end.
	w.id, w.start = resize(w.id, len(text)+1)[:0], resize(w.start, len(text)+1)[:0]
}

// add appends the symbol that starts at byte start of the text.
func (w *word) add(start int, id int32) {
	w.start = append(w.start, int32(start))
	w.id = append(w.id, id)
}

// end is where the text of symbol i ends.
func (w *word) end(i int32) int32 { return w.start[w.next[i]] }

// merge joins the pair of the lowest rank, the leftmost of equals, until no pair can be
// joined: in time n log n of the number of symbols.
func (w *word) merge(r ranker) {
	n := len(w.id)
	w.start = append(w.start, int32(len(w.text)))
	w.next = resize(w.next, n)
	w.prev = resize(w.prev, n)
	w.rank = resize(w.rank, n)
	w.join = resize(w.join, n)
	for i := range n {
		w.next[i], w.prev[i] = int32(i+1), int32(i-1)
	}
	for i := range n {
		w.score(r, int32(i))
	}
	if n <= shortWord {
		w.mergeShort(r)
	} else {
		w.mergeLong(r)
	}
}

// score sets the rank of joining i with its right neighbour.
func (w *word) score(r ranker, i int32) {
	if w.next[i] == int32(len(w.id)) {
		w.rank[i] = unmerged
		return
	}
	w.rank[i], w.join[i] = r.rankPair(w, i, w.next[i])
}

// joinAt joins i with its right neighbour and ranks the new pairs.
func (w *word) joinAt(r ranker, i int32) {
	gone := w.next[i]
	w.id[i] = w.join[i]
	w.next[i] = w.next[gone]
	w.rank[gone] = unmerged
	if w.next[i] < int32(len(w.id)) {
		w.prev[w.next[i]] = i
	}
	w.score(r, i)
	if w.prev[i] >= 0 {
		w.score(r, w.prev[i])
	}
}

func (w *word) mergeShort(r ranker) {
	for {
		best, at := uint32(unmerged), int32(0)
		for i, end := int32(0), int32(len(w.id)); i < end; i = w.next[i] {
			if w.rank[i] < best {
				best, at = w.rank[i], i
			}
		}
		if best == unmerged {
			return
		}
		w.joinAt(r, at)
	}
}

func (w *word) mergeLong(r ranker) {
	w.heap = resize(w.heap, len(w.id))[:0]
	for i, rank := range w.rank {
		if rank != unmerged {
			w.heap = append(w.heap, uint64(rank)<<32|uint64(i))
		}
	}
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		w.down(i)
	}
	for len(w.heap) > 0 {
		top := w.heap[0]
		last := len(w.heap) - 1
		w.heap[0] = w.heap[last]
		w.heap = w.heap[:last]
		w.down(0)
		// A pair that has changed since it was pushed was pushed again with its new rank.
		at := int32(uint32(top))
		if w.rank[at] != uint32(top>>32) {
			continue
		}
		w.joinAt(r, at)
		w.push(at)
		if p := w.prev[at]; p >= 0 {
			w.push(p)
		}
	}
}

func (w *word) push(i int32) {
	if w.rank[i] == unmerged {
		return
	}
	w.heap = append(w.heap, uint64(w.rank[i])<<32|uint64(i))
	for c := len(w.heap) - 1; c > 0; {
		p := (c - 1) / 2
		if w.heap[p] <= w.heap[c] {
			return
		}
		w.heap[p], w.heap[c] = w.heap[c], w.heap[p]
		c = p
	}
}

func (w *word) down(p int) {
	for {
		c := 2*p + 1
		if c >= len(w.heap) {
			return
		}
		if c+1 < len(w.heap) && w.heap[c+1] < w.heap[c] {
			c++
		}
		if w.heap[p] <= w.heap[c] {
			return
		}
		w.heap[p], w.heap[c] = w.heap[c], w.heap[p]
		p = c
	}
}

// resize returns s with length n and any content.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+min(n/4, 1024))
	}
	return s[:n]
}
