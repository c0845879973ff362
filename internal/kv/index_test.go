package kv

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// serve does what a decoder does with a request: reuse, compute the rest, generate,
// remember. It returns what was reused.
func serve(t testing.TB, x *Index, prompt, answer []int32) Match {
	t.Helper()
	s, m := x.Attach(prompt, len(prompt)-1)
	mustAppend(t, s, prompt[s.Len():]...)
	for _, a := range answer {
		mustAppend(t, s, a)
	}
	if tt, ok := t.(*testing.T); ok {
		checkRows(tt, s)
	}
	x.Insert(s)
	s.Free()
	return m
}

func TestMatchReasons(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 16})
	x := NewIndex(p)
	serve(t, x, tokens(0, 20), tokens(20, 4)) // 0 to 23
	for _, c := range []struct {
		name   string
		prompt []int32
		most   int
		want   Match
		why    string
	}{
		{"the same again", tokens(0, 20), 19, Match{Tokens: 19, Reason: Full}, ""},
		{"one token", tokens(0, 1), 0, Match{Reason: Full}, ""},
		{"no tokens", nil, 5, Match{Reason: Full}, ""},
		{"negative", tokens(0, 3), -1, Match{Reason: Full}, ""},
		{"longer", tokens(0, 30), 29, Match{Tokens: 24, Reason: Extended}, ""},
		{"another answer", append(tokens(0, 20), 7, 7), 21, Match{Tokens: 20, Reason: Diverged, Cached: 20, Wanted: 7},
			"token 20 of the prompt is 7, the cached sequence has 20 there"},
		{"other early", append(tokens(0, 3), 9, 9), 4, Match{Tokens: 3, Reason: Diverged, Cached: 3, Wanted: 9},
			"token 3 of the prompt is 9, the cached sequence has 3 there"},
		{"never seen", tokens(500, 9), 8, Match{Reason: None}, ""},
	} {
		got := x.Lookup(c.prompt, c.most)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if why := got.Why(); why != c.why {
			t.Errorf("%s: %q, want %q", c.name, why, c.why)
		}
	}
	if st := x.Stats(); st.Nodes != 1 || st.Tokens != 24 || st.Hits != 0 || st.Misses != 1 {
		t.Errorf("looking changed the index: %+v", st)
	}
	// At a fork, the branch used last is what the prompt is compared with.
	serve(t, x, append(tokens(0, 10), 100), nil)
	serve(t, x, append(tokens(0, 10), 200), nil)
	if m := x.Lookup(append(tokens(0, 10), 300), 11); m.Cached != 200 || m.Tokens != 10 || m.Reason != Diverged {
		t.Errorf("%+v, want to differ from 200", m)
	}
	names := []string{"none", "full", "extended", "diverged", "evicted", "scattered", "crowded", "reason(7)"}
	for i, want := range names {
		if got := Reason(i).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Each turn of a chat goes on in the block where the last one ended: nothing is
// computed twice, and no block is left partly filled.
func TestChat(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 20})
	x := NewIndex(p)
	history := tokens(0, 11)
	for turn := range 8 {
		answer := tokens(int32(1000+100*turn), 5)
		m := serve(t, x, history, answer)
		if want := len(history) - 6; turn > 0 && (m.Tokens != want || m.Reason != Extended) {
			t.Errorf("turn %d: %+v, want %d tokens", turn, m, want)
		}
		history = append(append(history, answer...), tokens(int32(2000+100*turn), 6)...)
	}
	n := len(history) - 6 // the last question was not asked
	if st := p.Stats(); st.Cached != (n+7)/8 {
		t.Errorf("%d blocks for %d tokens", st.Cached, n)
	}
}

// A client that drops the reasoning of each answer makes the prompt differ in the middle
// of a block, turn after turn. The sequence must not end up with a block a turn, what is
// computed twice must stay bounded, and the reason must be told.
func TestChatThatDropsReasoning(t *testing.T) {
	checkLeaks(t)
	l := tiny(t)
	p := newPool(t, l, Options{MaxBlocks: 200})
	x := NewIndex(p)
	history := tokens(0, 11)
	computed, scattered := 0, 0
	const turns = 40
	for turn := range int32(turns) {
		s, m := x.Attach(history, len(history)-1)
		computed += len(history) - m.Tokens
		if m.Reason == Scattered {
			scattered++
			if !strings.Contains(m.Why(), "too many short blocks") || m.Until <= m.Tokens {
				t.Errorf("%+v: %s", m, m.Why())
			}
		}
		mustAppend(t, s, history[s.Len():]...)
		reasoning, answer := tokens(10000+100*turn, 7), tokens(20000+100*turn, 2)
		mustAppend(t, s, reasoning...)
		mustAppend(t, s, answer...)
		checkRows(t, s)
		if most := l.BlocksFor(s.Len()); s.Blocks() > most {
			t.Fatalf("turn %d: %d tokens in %d blocks, at most %d are promised", turn, s.Len(), s.Blocks(), most)
		}
		x.Insert(s)
		s.Free()
		// What was computed anew is in the index in its new place: going on from its end
		// finds everything, asking again from within a block at least all before it.
		whole := slices.Concat(history, reasoning, answer)
		if m := x.Lookup(whole, len(whole)); m.Reason != Full {
			t.Fatalf("turn %d: going on: %+v", turn, m)
		}
		if m := x.Lookup(history, len(history)-1); m.Tokens < len(history)-1-l.CellsPerBlock {
			t.Fatalf("turn %d: asked again: %+v of %d", turn, m, len(history)-1)
		}
		history = append(append(history, answer...), tokens(30000+100*turn, 3)...)
	}
	if scattered == 0 {
		t.Error("never scattered: this test tests nothing")
	}
	// 5 new tokens a turn cannot be saved. Up to two blocks may be computed again.
	if most := 11 + turns*(5+2*8); computed > most {
		t.Errorf("%d tokens computed, at most %d", computed, most)
	}
}

// Two slots that run one system prompt use the same cells.
func TestSharedPrompt(t *testing.T) {
	checkLeaks(t)
	p, at := newPool(t, tiny(t), Options{MaxBlocks: 8}), shaper{}
	x := NewIndex(p)
	serve(t, x, tokens(0, 18), nil)
	a, _ := x.Attach(append(tokens(0, 18), 100), 18)
	b, _ := x.Attach(append(tokens(0, 18), 200), 18)
	defer a.Free()
	defer b.Free()
	mustAppend(t, b, 200)
	mustAppend(t, a, 100)
	at.check(t, "a came first and has the rest of the block", a, shape{0, 0, 8}, shape{1, 0, 8}, shape{2, 0, 3})
	at.check(t, "b", b, shape{0, 0, 8}, shape{1, 0, 8}, shape{2, 0, 2}, shape{3, 0, 1})
	if st := p.Stats(); st.Used != 4 || st.Cached != 0 {
		t.Errorf("%+v", st)
	}
}

func TestEvictsLeastRecent(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 6})
	x := NewIndex(p)
	serve(t, x, tokens(0, 16), nil)   // a: 2 blocks
	serve(t, x, tokens(100, 16), nil) // b: 2 blocks
	serve(t, x, tokens(200, 16), nil) // c: 2 blocks
	if m := serve(t, x, tokens(0, 16), nil); m.Tokens != 15 {
		t.Fatalf("%+v", m)
	}
	// b is the oldest now, but asking for a token past a's middle took a block: a's last
	// token was computed again, in room that b had to give.
	check := func(what string, first int32, want Match) {
		t.Helper()
		if m := x.Lookup(tokens(first, 16), 16); m != want {
			t.Errorf("%s: %+v, want %+v", what, m, want)
		}
	}
	check("a", 0, Match{Tokens: 16, Reason: Full})
	check("b", 100, Match{Tokens: 8, Reason: Evicted, Until: 16})
	check("c", 200, Match{Tokens: 16, Reason: Full})
	serve(t, x, tokens(300, 16), nil) // d
	check("b", 100, Match{Reason: Evicted, Until: 16})
	check("c", 200, Match{Tokens: 16, Reason: Full})
	check("d", 300, Match{Tokens: 16, Reason: Full})
	if why := x.Lookup(tokens(100, 16), 16).Why(); why != "tokens 0 to 15 were cached, but had to make room for other requests" {
		t.Error(why)
	}
	if n := x.Stats().EvictedTokens; n != 16 {
		t.Errorf("%d tokens evicted", n)
	}
}

// A request that reused cells and came to nothing counts as use, but only of what it
// reused.
func TestAttachCountsAsUse(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 4})
	x := NewIndex(p)
	serve(t, x, tokens(0, 16), nil)
	serve(t, x, tokens(100, 16), nil)
	s, _ := x.Attach(tokens(0, 16), 8)
	s.Free()
	x.Evict(1)
	if m := x.Lookup(tokens(0, 16), 16); m.Tokens != 8 {
		t.Errorf("%+v, want the second block evicted: it was not used again", m)
	}
	x.Evict(2)
	if m := x.Lookup(tokens(0, 16), 16); m.Tokens != 8 {
		t.Errorf("%+v, want the first block, used last, to be left", m)
	}
	if m := x.Lookup(tokens(100, 16), 16); m.Tokens != 0 {
		t.Errorf("%+v, want the others evicted", m)
	}
}

// What running sequences use is not evicted, and what is above it can be.
func TestEvictSparesRunning(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 6})
	x := NewIndex(p)
	serve(t, x, tokens(0, 24), nil)
	s, _ := x.Attach(tokens(0, 24), 16)
	defer s.Free()
	if n := x.Evict(9); n != 1 {
		t.Errorf("evicted %d blocks, only 1 is not in use", n)
	}
	checkRows(t, s)

	// A sequence that computed a cached prompt once more holds cells only beyond it.
	twin := p.NewSequence()
	defer twin.Free()
	serve(t, x, tokens(500, 8), nil)
	mustAppend(t, twin, tokens(500, 16)...)
	x.Insert(twin)
	if st := p.Stats(); st.Cached != 1 {
		t.Fatalf("%+v, want the twin's first block cached beside its own", st)
	}
	if n := x.Evict(1); n != 1 {
		t.Errorf("evicted %d blocks, want the one above what is in use", n)
	}
	checkRows(t, twin)
}

// The memory of what was evicted is bounded.
func TestEvictedSetIsBounded(t *testing.T) {
	e := newEvictedSet()
	long := make([]int32, 3*evictedMost*evictedStride)
	for i := range long {
		long[i] = rand.Int32()
	}
	e.record(e.seed, 0, long)
	if len(e.set) != evictedMost || len(e.ring) != evictedMost {
		t.Errorf("%d and %d entries, want %d", len(e.set), len(e.ring), evictedMost)
	}
	if n := e.until(long, 0); n != len(long) {
		t.Errorf("the newest is forgotten: %d", n)
	}
	if n := e.until(long[:evictedMost*evictedStride], 0); n != 0 {
		t.Errorf("the oldest is remembered: %d", n)
	}
	e.record(e.seed, 0, long[len(long)-16:]) // starts elsewhere: another prefix
	e.record(e.seed, 0, long[len(long)-16:])
	if len(e.set) != evictedMost {
		t.Errorf("%d entries", len(e.set))
	}
}

// Long runs of requests with few common beginnings neither lose nor leak anything, and
// the hit rate does not sink.
func TestSoak(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 40})
	p.verify = false
	x := NewIndex(p)
	rng := rand.New(rand.NewPCG(1, 2))
	var early, late int
	const requests = 5000
	for i := range requests {
		prompt := slices.Concat(tokens(int32(rng.IntN(4))*1000, 20), tokens(int32(rng.IntN(1<<20)), 1+rng.IntN(30)))
		m := serve(t, x, prompt, tokens(5, rng.IntN(10)))
		if i < requests/5 {
			early += min(m.Tokens, 20)
		} else if i >= requests-requests/5 {
			late += min(m.Tokens, 20)
		}
	}
	if early < requests/5*17 || late < early*95/100 {
		t.Errorf("reused %d of the first %d tokens that could be, %d of the last", early, requests/5*20, late)
	}
	if err := p.Verify(); err != nil {
		t.Error(err)
	}
	if st := p.Stats(); st.Used != 0 || st.Blocks != 40 || st.Made != 40 {
		t.Errorf("%+v", st)
	}
}

// 20,000 sequences of up to 200 tokens, then their end.
func TestManySequences(t *testing.T) {
	checkLeaks(t)
	l := mustLayout(t, Config{Layers: 1, KVHeads: 1, HeadDim: 4})
	p := newPool(t, l, Options{MaxBlocks: 64})
	p.verify = false
	base := p.NewSequence()
	mustAppend(t, base, tokens(0, 200)...)
	forks := make([]*Sequence, 20000)
	for i := range forks {
		forks[i] = base.Fork(i % 201)
	}
	base.Free()
	if st := p.Stats(); st.Used != 1 {
		t.Errorf("%+v", st)
	}
	if err := p.Verify(); err != nil {
		t.Error(err)
	}
	for _, f := range forks {
		f.Free()
	}
	if st := p.Stats(); st.Used != 0 || st.Free != 1 {
		t.Errorf("%+v", st)
	}
}

// What may be reused is counted in cells that are lost for it: at most two blocks of 8.
func TestWorthwhile(t *testing.T) {
	l := tiny(t)
	block := func(used int) *Block { return &Block{layout: l, used: used} }
	full, short, frozen := block(8), block(5), &Block{layout: l, used: 5, frozen: true}
	mine := &Sequence{}
	owned := &Block{layout: l, used: 5, owner: mine}
	for _, c := range []struct {
		name string
		runs []Run
		s    *Sequence
		want int
	}{
		{"nothing", nil, nil, 0},
		{"full blocks", []Run{{full, 0, 8}, {full, 0, 8}}, nil, 16},
		{"7+8 lost", []Run{{full, 0, 1}, {full, 0, 0}}, nil, 1},
		{"8+8 lost", []Run{{full, 0, 0}, {full, 0, 0}, {full, 0, 8}}, nil, 8},
		{"7+7+3 lost", []Run{{full, 0, 1}, {full, 0, 1}, {full, 0, 5}}, nil, 2},
		{"7+7, the last goes on", []Run{{full, 0, 1}, {full, 0, 1}, {short, 0, 5}}, nil, 7},
		{"7+7, the last is frozen", []Run{{full, 0, 1}, {full, 0, 1}, {frozen, 0, 5}}, nil, 2},
		{"7+7, the last is another's", []Run{{full, 0, 1}, {full, 0, 1}, {owned, 0, 5}}, nil, 2},
		{"7+7, the last is our own", []Run{{full, 0, 1}, {full, 0, 1}, {owned, 0, 5}}, mine, 7},
		{"7+7, the last goes on behind 3 of others", []Run{{full, 0, 1}, {full, 0, 1}, {short, 3, 2}}, nil, 2},
		{"7+7, the last goes on behind 2 of others", []Run{{full, 0, 1}, {full, 0, 1}, {short, 2, 3}}, nil, 5},
		{"a short one in the middle does not go on", []Run{{full, 0, 1}, {short, 0, 5}, {full, 0, 1}}, nil, 6},
	} {
		runs, cells := worthwhile(c.runs, c.s)
		sum := 0
		for _, r := range runs {
			sum += r.Len
		}
		if cells != c.want || sum != c.want {
			t.Errorf("%s: %d cells in runs of %d, want %d", c.name, cells, sum, c.want)
		}
	}
}
