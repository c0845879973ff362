package kv

import "math/rand/v2"

// prefixHash identifies a sequence of tokens, probably: it is used only to say that
// something was evicted, never to find cells.
type prefixHash uint64

// add is the hash of the sequence with one more token (a multiply-xorshift mix with
// MurmurHash3's 64-bit constant).
func (h prefixHash) add(token int32) prefixHash {
	h ^= prefixHash(uint32(token)) + 0x9e3779b97f4a7c15
	h *= 0xff51afd7ed558ccd
	return h ^ h>>32
}

func (h prefixHash) addAll(tokens []int32) prefixHash {
	for _, t := range tokens {
		h = h.add(t)
	}
	return h
}

const (
	// evictedStride: prefixes are remembered at multiples of that many tokens, so fewer
	// evicted tokens may go unnoticed.
	evictedStride = 16
	// evictedMost bounds the memory (about 0.5 MiB): the last 131,072 evicted tokens.
	evictedMost = 8192
)

// evictedSet remembers which prefixes were evicted last.
type evictedSet struct {
	seed prefixHash // so that nobody can choose tokens whose hashes collide
	set  map[prefixHash]struct{}
	ring []prefixHash // the set in order of age; next is the oldest once it is full
	next int
}

func newEvictedSet() *evictedSet {
	return &evictedSet{seed: prefixHash(rand.Uint64()), set: map[prefixHash]struct{}{}}
}

// record remembers that the tokens from position start on were evicted; before is the
// hash of those in front of them.
func (e *evictedSet) record(before prefixHash, start int, tokens []int32) {
	h := before
	for i, t := range tokens {
		h = h.add(t)
		if (start+i+1)%evictedStride == 0 {
			e.put(h)
		}
	}
}

func (e *evictedSet) put(h prefixHash) {
	if _, ok := e.set[h]; ok {
		return
	}
	e.set[h] = struct{}{}
	if len(e.ring) < evictedMost {
		e.ring = append(e.ring, h)
		return
	}
	delete(e.set, e.ring[e.next])
	e.ring[e.next] = h
	e.next = (e.next + 1) % evictedMost
}

// until is how many of tokens, of which the first cached are cached, were cached once;
// cached if no more.
func (e *evictedSet) until(tokens []int32, cached int) int {
	if len(e.set) == 0 {
		return cached
	}
	most, h := cached, e.seed
	for i, t := range tokens {
		h = h.add(t)
		if i >= cached && (i+1)%evictedStride == 0 {
			if _, ok := e.set[h]; ok {
				most = i + 1
			}
		}
	}
	return most
}
