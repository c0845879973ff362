package kv

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// machine drives pool, sequences and index through random histories and compares them
// with what a map of token lists says.
type machine struct {
	pool  *Pool
	index *Index
	seqs  []*tracked
	loose []*Block
	// inserted is every list of tokens that was inserted: without eviction, the index
	// finds the longest common beginning with any of them.
	inserted [][]int32
}

// tracked is a sequence and what it must hold.
type tracked struct {
	s      *Sequence
	tokens []int32
	plain  bool // BlocksFor bounds it: never forked, truncated or frozen
}

func TestModel(t *testing.T) {
	checkLeaks(t)
	rapid.Check(t, func(t *rapid.T) {
		l, err := NewLayout(Config{Layers: 2, KVHeads: 1, HeadDim: 4, CellsPerBlock: rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "cells")})
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewPool(l, Options{MaxBlocks: rapid.IntRange(1, 24).Draw(t, "blocks")})
		if err != nil {
			t.Fatal(err)
		}
		m := &machine{pool: p, index: NewIndex(p)}
		defer m.end(t)
		t.Repeat(map[string]func(*rapid.T){
			"attach": m.attach, "chat": m.chat, "append": m.append, "append2": m.append,
			"fork": m.fork, "truncate": m.truncate, "finish": m.finish, "insert": m.insert,
			"reserve": m.reserve, "share": m.share, "evict": m.evict, "freeze": m.freeze, "alloc": m.alloc, "release": m.release, "": m.check,
		})
	})
}

// draw draws few different tokens, so that beginnings meet.
func draw(t *rapid.T, most int) []int32 {
	return rapid.SliceOfN(rapid.Int32Range(0, 1), 0, most).Draw(t, "tokens")
}

func (m *machine) pick(t *rapid.T) *tracked {
	if len(m.seqs) == 0 {
		t.Skip("no sequence")
	}
	return m.seqs[rapid.IntRange(0, len(m.seqs)-1).Draw(t, "sequence")]
}

// prompt draws a prompt that often begins like a sequence inserted before.
func (m *machine) prompt(t *rapid.T) []int32 {
	var prompt []int32
	if n := len(m.inserted); n > 0 && rapid.Bool().Draw(t, "known") {
		old := m.inserted[rapid.IntRange(0, n-1).Draw(t, "from")]
		prompt = slices.Clone(old[:rapid.IntRange(len(old)/2, len(old)).Draw(t, "keep")])
	}
	return append(prompt, draw(t, 20)...)
}

// chat is a few requests of which each begins like the one before.
func (m *machine) chat(t *rapid.T) {
	prompt := m.prompt(t)
	for range rapid.IntRange(1, 8).Draw(t, "turns") {
		s := m.start(t, prompt, len(prompt)-1)
		rest := prompt[s.s.Len():]
		if err := s.s.Append(rest...); err != nil {
			m.checkNoRoom(t, err)
			return
		}
		fill(s.s, len(s.tokens))
		s.tokens = append(s.tokens, rest...)
		m.check(t)
		m.retire(t, s, true)
		back := rapid.IntRange(0, min(len(prompt), 4)).Draw(t, "back")
		prompt = append(slices.Clone(prompt[:len(prompt)-back]), draw(t, 8)...)
	}
}

func (m *machine) attach(t *rapid.T) {
	prompt := m.prompt(t)
	m.start(t, prompt, rapid.IntRange(-1, len(prompt)).Draw(t, "most"))
}

// start attaches a sequence and checks what was found.
func (m *machine) start(t *rapid.T, prompt []int32, most int) *tracked {
	want := 0
	for _, old := range m.inserted {
		want = max(want, min(common(old, prompt), most))
	}
	evicted := m.index.Stats().EvictedTokens
	looked := m.index.Lookup(prompt, most)
	s, match := m.index.Attach(prompt, most)
	st := &tracked{s, slices.Clone(prompt[:match.Tokens]), true}
	m.seqs = append(m.seqs, st)
	if looked != match {
		t.Fatalf("lookup says %+v, attach %+v", looked, match)
	}
	if !slices.Equal(s.Tokens(), prompt[:match.Tokens]) {
		t.Fatalf("attached to %v, want a beginning of %v", s.Tokens(), prompt)
	}
	switch {
	case match.Tokens > want:
		t.Fatalf("%d tokens found, at most %d were ever inserted", match.Tokens, want)
	case match.Reason == Scattered:
		if match.Until > want || match.Until <= match.Tokens {
			t.Fatalf("%+v, want up to %d", match, want)
		}
	case evicted == 0 && match.Tokens != want:
		t.Fatalf("%d tokens found, want %d", match.Tokens, want)
	case (match.Reason == Full) != (match.Tokens == max(min(most, len(prompt)), 0)):
		t.Fatalf("%+v for %d of %d tokens", match, most, len(prompt))
	case match.Reason == Diverged:
		if match.Wanted != prompt[match.Tokens] || match.Cached == match.Wanted {
			t.Fatalf("%+v for %v", match, prompt)
		}
	}
	return st
}

func (m *machine) append(t *rapid.T) {
	s := m.pick(t)
	more := draw(t, 20)
	if err := s.s.Append(more...); err != nil {
		m.checkNoRoom(t, err)
		return
	}
	fill(s.s, len(s.tokens))
	s.tokens = append(s.tokens, more...)
}

func (m *machine) reserve(t *rapid.T) {
	s := m.pick(t)
	n := rapid.IntRange(-1, 30).Draw(t, "n")
	if err := s.s.Reserve(n); err != nil {
		m.checkNoRoom(t, err)
		return
	}
	before := m.pool.Stats().Used
	for range rapid.IntRange(0, max(n, 0)).Draw(t, "used") { // none of these may need more room
		if err := s.s.Append(1); err != nil {
			t.Fatalf("append after reserve: %v", err)
		}
		fill(s.s, len(s.tokens))
		s.tokens = append(s.tokens, 1)
	}
	if used := m.pool.Stats().Used; used != before {
		t.Fatalf("appending what was reserved took %d blocks", used-before)
	}
}

// checkNoRoom checks that the error is true: even without the cache there was no room.
func (m *machine) checkNoRoom(t *rapid.T, err error) {
	var e *NoRoomError
	if !errors.Is(err, ErrNoRoom) || !errors.As(err, &e) {
		t.Fatal(err)
	}
	if st := m.pool.Stats(); e.Used != st.Used || e.Limit != st.Limit || e.Want <= e.Limit-e.Used {
		t.Fatalf("%v, but %+v", err, st)
	}
}

func (m *machine) fork(t *rapid.T) {
	s := m.pick(t)
	n := rapid.IntRange(0, len(s.tokens)).Draw(t, "n")
	m.seqs = append(m.seqs, &tracked{s.s.Fork(n), slices.Clone(s.tokens[:n]), false})
}

func (m *machine) truncate(t *rapid.T) {
	s := m.pick(t)
	n := rapid.IntRange(0, len(s.tokens)).Draw(t, "n")
	s.s.Truncate(n)
	s.tokens = s.tokens[:n]
	s.plain = false
}

func (m *machine) insert(t *rapid.T) {
	s := m.pick(t)
	m.index.Insert(s.s)
	m.inserted = append(m.inserted, slices.Clone(s.tokens))
}

func (m *machine) finish(t *rapid.T) {
	m.retire(t, m.pick(t), rapid.Bool().Draw(t, "insert"))
}

// retire ends one sequence, as a request does.
func (m *machine) retire(t *rapid.T, s *tracked, insert bool) {
	if insert {
		m.index.Insert(s.s)
		m.inserted = append(m.inserted, slices.Clone(s.tokens))
	}
	s.s.Free()
	s.s.Free() // twice is no error
	m.seqs = slices.DeleteFunc(m.seqs, func(o *tracked) bool { return o == s })
	// What one request leaves, the next one finds.
	if match := m.index.Lookup(s.tokens, len(s.tokens)); insert && s.plain && match.Reason != Full {
		t.Fatalf("%+v just after %d tokens were inserted", match, len(s.tokens))
	}
}

func (m *machine) evict(t *rapid.T) {
	n := rapid.IntRange(0, 4).Draw(t, "n")
	before := m.pool.Stats()
	freed := m.index.Evict(n)
	after := m.pool.Stats()
	if after.Free-before.Free != freed || freed > n || freed < min(n, before.Cached) {
		t.Fatalf("evicting %d freed %d: %+v before, %+v after", n, freed, before, after)
	}
}

func (m *machine) freeze(t *rapid.T) {
	s := m.pick(t)
	for _, r := range s.s.Runs(len(s.tokens)-1, len(s.tokens), nil) {
		r.Block.Freeze()
	}
	for _, s := range m.seqs { // any of them may end in it
		s.plain = false
	}
}

func (m *machine) alloc(t *rapid.T) {
	b, err := m.pool.Alloc()
	if err != nil {
		m.checkNoRoom(t, err)
		return
	}
	for l := range 2 {
		b.K(l)[0], b.V(l)[len(b.V(l))-1] = 0xdead, 0xdead
	}
	m.loose = append(m.loose, b)
}

func (m *machine) release(t *rapid.T) {
	if len(m.loose) == 0 {
		t.Skip("no block")
	}
	m.loose[0].Release()
	m.loose = m.loose[1:]
}

// check reads back the whole history of every sequence.
func (m *machine) check(t *rapid.T) {
	if err := m.pool.Verify(); err != nil {
		t.Fatal(err)
	}
	for _, s := range m.seqs {
		if !slices.Equal(s.s.Tokens(), s.tokens) || s.s.Len() != len(s.tokens) {
			t.Fatalf("tokens %v, want %v", s.s.Tokens(), s.tokens)
		}
		checkRows(t, s.s)
		room := len(s.tokens) + len(s.s.spare)*m.pool.layout.CellsPerBlock
		if most := m.pool.layout.BlocksFor(room); s.plain && s.s.Blocks() > most {
			t.Fatalf("%d tokens in %d blocks, at most %d are promised", len(s.tokens), s.s.Blocks(), most)
		}
	}
	if st := m.pool.Stats(); st.Used+st.Cached+st.Free != st.Blocks || st.Blocks > st.Limit {
		t.Fatalf("%+v", st)
	}
}

func (m *machine) end(t *rapid.T) {
	for _, s := range m.seqs {
		s.s.Free()
	}
	for _, b := range m.loose {
		b.Release()
	}
	m.index.Clear()
	if st := m.pool.Stats(); st.Used+st.Cached != 0 || st.Free != st.Blocks || m.index.Stats().Nodes != 0 {
		t.Errorf("at the end: %+v, %+v", st, m.index.Stats())
	}
	if err := m.pool.Close(); err != nil {
		t.Error(err)
	}
}
