package sample

import (
	"math"
	"slices"
	"testing"

	"baton/internal/engine"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// off is a chain in which nothing but the draw happens.
func off() engine.Sampling {
	return engine.Sampling{Seed: 1, Temperature: 1, TopP: 1, TypicalP: 1, RepeatPenalty: 1, DynatempExponent: 1}
}

// logits of the probabilities .4 .3 .2 .1
func fourProbs() []float32 {
	var out []float32
	for _, p := range []float64{.1, .4, .2, .3} {
		out = append(out, float32(math.Log(p)))
	}
	return out
}

// support draws often and returns the tokens that came up.
func support(t *testing.T, par engine.Sampling, logits []float32, history ...int32) []int32 {
	t.Helper()
	s := New(par, 1024, nil)
	s.AcceptAll(history)
	seen := map[int32]bool{}
	for range 2000 {
		id, ok := s.Next(slices.Clone(logits))
		if !ok {
			t.Fatal("no token")
		}
		seen[id] = true
	}
	var ids []int32
	for id := range seen {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// The expected sets are worked out by hand from the probabilities .1 .4 .2 .3.
func TestChainTruncates(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*engine.Sampling)
		want []int32
	}{
		{"nothing", func(*engine.Sampling) {}, []int32{0, 1, 2, 3}},
		{"top-k 2", func(p *engine.Sampling) { p.TopK = 2 }, []int32{1, 3}},
		{"top-p .65 needs two", func(p *engine.Sampling) { p.TopP = .65 }, []int32{1, 3}},
		{"top-p .75 needs three", func(p *engine.Sampling) { p.TopP = .75 }, []int32{1, 2, 3}},
		{"top-p 0 keeps one", func(p *engine.Sampling) { p.TopP = 0 }, []int32{1}},
		{"min-p .45 drops under .18", func(p *engine.Sampling) { p.MinP = .45 }, []int32{1, 2, 3}},
		{"min-p .6 drops under .24", func(p *engine.Sampling) { p.MinP = .6 }, []int32{1, 3}},
		{"min-keep", func(p *engine.Sampling) { p.TopP = 0; p.MinKeep = 3 }, []int32{1, 2, 3}},
		{"temperature 0", func(p *engine.Sampling) { p.Temperature = 0 }, []int32{1}},
		// entropy 1.2799 nats; surprises 2.303 .916 1.609 1.204: nearest is token 3
		{"typical .2", func(p *engine.Sampling) { p.TypicalP = .2 }, []int32{3}},
		{"typical .45 takes 3 then 2", func(p *engine.Sampling) { p.TypicalP = .45 }, []int32{2, 3}},
		// three tokens are at least .2; the first two of them go
		{"xtc", func(p *engine.Sampling) { p.XTCProbability = 1; p.XTCThreshold = .19 }, []int32{0, 2}},
		// logits -2.303 -.916 -1.609 -1.204: mean -1.508 deviation .5187; floor -.916-.5187
		{"top-n-sigma 1", func(p *engine.Sampling) { p.TopNSigma = 1 }, []int32{1, 3}},
		{"bias", func(p *engine.Sampling) {
			p.TopK = 1
			p.LogitBias = []engine.TokenBias{{Token: 0, Bias: 5}}
		}, []int32{0}},
		{"bias -inf", func(p *engine.Sampling) {
			p.LogitBias = []engine.TokenBias{{Token: 1, Bias: float32(math.Inf(-1))}}
		}, []int32{0, 2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			par := off()
			c.set(&par)
			if d := cmp.Diff(c.want, support(t, par, fourProbs())); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestPenalties(t *testing.T) {
	par := off()
	par.RepeatLastN, par.RepeatPenalty, par.FrequencyPenalty, par.PresencePenalty = 3, 2, .5, .25
	s := New(par, 0, nil)
	s.AcceptAll([]int32{3, 0, 0, 1}) // 3 has left the window of three
	logits := []float32{4, -4, 1, 1}
	s.penalize(logits)
	// 0: 4/2 - 2*.5 - .25; 1: -4*2 - .5 - .25
	if d := cmp.Diff([]float32{.75, -8.75, 1, 1}, logits); d != "" {
		t.Error(d)
	}
}

func TestBannedAndEmpty(t *testing.T) {
	s := New(off(), 0, []int32{1})
	for range 200 {
		if id, ok := s.Next(fourProbs()); !ok || id == 1 {
			t.Fatalf("got %d %v", id, ok)
		}
	}
	inf := float32(math.Inf(-1))
	nan := float32(math.NaN())
	for _, temp := range []float32{0, 1} {
		par := off()
		par.Temperature = temp
		if id, ok := New(par, 0, nil).Next([]float32{inf, inf}); ok {
			t.Errorf("temperature %g: token %d of an empty row", temp, id)
		}
		if id, ok := New(par, 0, nil).Next([]float32{nan, inf, 2}); !ok || id != 2 {
			t.Errorf("temperature %g: got %d %v, want 2", temp, id, ok)
		}
	}
}

// A seed gives a sequence; the frequencies of the draws follow the probabilities.
func TestSeedAndDistribution(t *testing.T) {
	draw := func(seed int64) (out []int32) {
		par := off()
		par.Seed = seed
		s := New(par, 0, nil)
		for range 20000 {
			id, _ := s.Next(fourProbs())
			out = append(out, id)
		}
		return out
	}
	a, b := draw(7), draw(7)
	if !slices.Equal(a, b) {
		t.Error("the same seed gave two sequences")
	}
	if slices.Equal(a, draw(8)) {
		t.Error("two seeds gave one sequence")
	}
	var n [4]float64
	for _, id := range a {
		n[id]++
	}
	for i, p := range []float64{.1, .4, .2, .3} {
		// five standard deviations of a binomial count
		if dev := math.Abs(n[i] - 20000*p); dev > 5*math.Sqrt(20000*p*(1-p)) {
			t.Errorf("token %d came %g times of 20000, want about %g", i, n[i], 20000*p)
		}
	}
}

func TestTemperatureSharpens(t *testing.T) {
	par := off()
	par.Temperature = .5 // probabilities squared and normalised: .16/.30 for token 1
	s := New(par, 0, nil)
	n := 0.0
	for range 20000 {
		if id, _ := s.Next(fourProbs()); id == 1 {
			n++
		}
	}
	if p := .16 / .30; math.Abs(n-20000*p) > 5*math.Sqrt(20000*p*(1-p)) {
		t.Errorf("token 1 came %g times of 20000, want about %g", n, 20000*p)
	}
}

func TestLogprobs(t *testing.T) {
	chosen, top := Logprobs(fourProbs(), 2, 2)
	near := func(got float32, p float64) bool { return math.Abs(float64(got)-math.Log(p)) < 1e-6 }
	if chosen.Token != 2 || !near(chosen.Logprob, .2) {
		t.Errorf("chosen: %+v", chosen)
	}
	if len(top) != 2 || top[0].Token != 1 || top[1].Token != 3 || !near(top[0].Logprob, .4) || !near(top[1].Logprob, .3) {
		t.Errorf("top: %+v", top)
	}
	if _, top := Logprobs(fourProbs(), 2, 0); len(top) != 0 {
		t.Errorf("none asked for, got %v", top)
	}
}

// topK finds what sorting everything finds, ties by the smaller id.
func TestTopKAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.SampledFrom([]float32{-2, -1, 0, .5, 1, 3}), 1, 60).Draw(t, "logits")
		logits = slices.Repeat(logits, rapid.IntRange(1, 12).Draw(t, "repeats")) // more than a stretch
		k := rapid.IntRange(1, 70).Draw(t, "k")
		var all []candidate
		for i, l := range logits {
			all = append(all, candidate{id: int32(i), logit: l})
		}
		slices.SortStableFunc(all, func(a, b candidate) int {
			if a.logit > b.logit {
				return -1
			} else if a.logit < b.logit {
				return 1
			}
			return 0
		})
		want := all[:min(k, len(all))]
		got := topK(nil, logits, k, float32(math.Inf(-1)))
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if id, ok := argmax(logits); !ok || id != all[0].id {
			t.Fatalf("argmax %d %t, want %d", id, ok, all[0].id)
		}
	})
}

func TestArgmaxOfNothing(t *testing.T) {
	inf, nan := float32(math.Inf(-1)), float32(math.NaN())
	for _, logits := range [][]float32{nil, {inf}, {nan, nan}, slices.Repeat([]float32{inf, nan}, 20)} {
		if id, ok := argmax(logits); ok {
			t.Errorf("argmax(%v) = %d", logits, id)
		}
	}
	if id, ok := argmax([]float32{nan, inf, -3, nan}); !ok || id != 2 {
		t.Errorf("argmax %d %t, want 2", id, ok)
	}
}

func BenchmarkNext(b *testing.B) {
	logits := make([]float32, 151936)
	for i := range logits {
		logits[i] = float32(math.Sin(float64(i)) * 5)
	}
	row := make([]float32, len(logits))
	for _, c := range []struct {
		name string
		par  engine.Sampling
	}{{"default", engine.DefaultSampling()}, {"greedy", engine.Sampling{RepeatPenalty: 1}}} {
		b.Run(c.name, func(b *testing.B) {
			s := New(c.par, 0, nil)
			b.ReportAllocs()
			for b.Loop() {
				copy(row, logits)
				s.Next(row)
			}
		})
	}
}
