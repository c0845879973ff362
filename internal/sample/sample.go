// Package sample chooses the next token from a row of logits: the sampler chain of
// llama.cpp, in its usual order and with its defaults (common/sampling.cpp):
//
//	logit bias, penalties, top-n-sigma, top-k, typical-p, top-p, min-p, XTC, temperature
//
// and then one draw. At temperature 0 the draw is the most likely token that is left.
// The same parameters, seed, logits and history give the same token.
//
// It knows nothing of models, slots or text.
package sample

import (
	"math"
	"math/rand/v2"
	"slices"

	"baton/internal/engine"
)

// candidate is a token that may still be chosen. p is its probability among the
// candidates, valid only after softmax.
type candidate struct {
	id    int32
	logit float32
	p     float32
}

// Sampler holds the parameters, the random state and the token history of one
// request. It is not safe for concurrent use.
type Sampler struct {
	par    engine.Sampling
	seed   uint64
	rng    *rand.Rand
	banned []int32 // never chosen: end-of-generation tokens under ignore_eos

	counts map[int32]int // of the last RepeatLastN tokens
	recent []int32       // ring buffer of these
	head   int

	cand []candidate // reused from draw to draw
}

// New returns a sampler. contextSize resolves a RepeatLastN of -1. banned tokens are
// never chosen.
func New(par engine.Sampling, contextSize int, banned []int32) *Sampler {
	s := &Sampler{par: par, seed: uint64(par.Seed), banned: banned}
	if par.Seed < 0 {
		s.seed = uint64(rand.Uint32())
	}
	s.rng = rand.New(rand.NewPCG(s.seed, 0x9e3779b97f4a7c15))
	n := par.RepeatLastN
	if n < 0 {
		n = contextSize
	}
	if par.RepeatPenalty == 1 && par.PresencePenalty == 0 && par.FrequencyPenalty == 0 {
		n = 0
	}
	if n > 0 {
		s.recent = make([]int32, 0, n)
		s.counts = make(map[int32]int)
	}
	return s
}

// Seed is the seed in use, also when a random one was asked for.
func (s *Sampler) Seed() uint64 { return s.seed }

// Accept enters a token of the prompt or of the answer into the history.
func (s *Sampler) Accept(id int32) {
	n := cap(s.recent)
	if n == 0 {
		return
	}
	if len(s.recent) < n {
		s.recent = append(s.recent, id)
	} else {
		old := s.recent[s.head]
		if s.counts[old]--; s.counts[old] == 0 {
			delete(s.counts, old)
		}
		s.recent[s.head] = id
		s.head = (s.head + 1) % n
	}
	s.counts[id]++
}

// AcceptAll enters the tokens of a prompt; only the last ones can matter.
func (s *Sampler) AcceptAll(ids []int32) {
	if n := cap(s.recent); len(ids) > n {
		ids = ids[len(ids)-n:]
	}
	for _, id := range ids {
		s.Accept(id)
	}
}

// Next chooses a token. It changes logits in place and does not Accept the token.
// ok is false when no logit is a number above -Inf.
func (s *Sampler) Next(logits []float32) (id int32, ok bool) {
	for _, b := range s.par.LogitBias {
		if int(b.Token) < len(logits) && b.Token >= 0 {
			logits[b.Token] += b.Bias
		}
	}
	for _, t := range s.banned {
		if t >= 0 && int(t) < len(logits) {
			logits[t] = float32(math.Inf(-1))
		}
	}
	s.penalize(logits)
	if s.par.Temperature <= 0 && s.par.XTCProbability <= 0 {
		return argmax(logits) // no truncation removes the most likely token
	}
	k := s.par.TopK
	if k <= 0 || k > len(logits) {
		k = len(logits)
	}
	s.cand = topK(s.cand[:0], logits, max(k, s.par.MinKeep), s.sigmaFloor(logits))
	if len(s.cand) == 0 {
		return 0, false
	}
	s.typical()
	s.topP()
	s.minP()
	s.xtc()
	s.temperature()
	return s.draw(), true
}

// penalize follows llama_sampler_penalties: the repetition penalty divides positive
// logits and multiplies the others, presence and frequency are subtracted.
func (s *Sampler) penalize(logits []float32) {
	for id, n := range s.counts {
		if id < 0 || int(id) >= len(logits) {
			continue
		}
		l := logits[id]
		if l <= 0 {
			l *= s.par.RepeatPenalty
		} else {
			l /= s.par.RepeatPenalty
		}
		logits[id] = l - float32(n)*s.par.FrequencyPenalty - s.par.PresencePenalty
	}
}

// sigmaFloor is the logit below which top-n-sigma drops a token: n standard
// deviations under the best ("Top-nσ: Not All Logits Are You Need", 2411.07641).
func (s *Sampler) sigmaFloor(logits []float32) float32 {
	floor := float32(math.Inf(-1))
	if s.par.TopNSigma <= 0 {
		return floor
	}
	best, sum, n := math.Inf(-1), 0.0, 0
	for _, l := range logits {
		if v := float64(l); !math.IsInf(v, -1) && v == v {
			best, sum, n = max(best, v), sum+v, n+1
		}
	}
	if n == 0 {
		return floor
	}
	mean, dev := sum/float64(n), 0.0
	for _, l := range logits {
		if v := float64(l); !math.IsInf(v, -1) && v == v {
			dev += (v - mean) * (v - mean)
		}
	}
	return float32(best - float64(s.par.TopNSigma)*math.Sqrt(dev/float64(n)))
}

// softmax fills in the probabilities of the candidates; cand[0] is the most likely.
func (s *Sampler) softmax() {
	sum := float32(0)
	for i := range s.cand {
		p := float32(math.Exp(float64(s.cand[i].logit - s.cand[0].logit)))
		s.cand[i].p = p
		sum += p
	}
	for i := range s.cand {
		s.cand[i].p /= sum
	}
}

// typical keeps the tokens whose surprise is nearest to the expected one ("Locally
// Typical Sampling", 2202.00666).
func (s *Sampler) typical() {
	if s.par.TypicalP >= 1 {
		return
	}
	s.softmax()
	entropy := 0.0
	for _, c := range s.cand {
		if c.p > 0 {
			entropy -= float64(c.p) * math.Log(float64(c.p))
		}
	}
	distance := func(c candidate) float64 { return math.Abs(-math.Log(float64(c.p)) - entropy) }
	slices.SortStableFunc(s.cand, func(a, b candidate) int {
		switch da, db := distance(a), distance(b); {
		case da < db:
			return -1
		case da > db:
			return 1
		}
		return 0
	})
	sum, keep := float32(0), len(s.cand)
	for i, c := range s.cand {
		sum += c.p
		if sum > s.par.TypicalP && i+1 >= s.par.MinKeep {
			keep = i + 1
			break
		}
	}
	s.cand = s.cand[:keep]
	slices.SortFunc(s.cand, byLogit)
}

// topP keeps the fewest most likely tokens whose probabilities sum to at least TopP.
func (s *Sampler) topP() {
	if s.par.TopP >= 1 {
		return
	}
	s.softmax()
	sum := float32(0)
	for i, c := range s.cand {
		sum += c.p
		if sum >= s.par.TopP && i+1 >= s.par.MinKeep {
			s.cand = s.cand[:i+1]
			return
		}
	}
}

// minP drops the tokens less likely than MinP times the most likely one.
func (s *Sampler) minP() {
	if s.par.MinP <= 0 {
		return
	}
	floor := s.cand[0].logit + float32(math.Log(float64(s.par.MinP)))
	n := 1
	for n < len(s.cand) && (s.cand[n].logit >= floor || n < s.par.MinKeep) {
		n++
	}
	s.cand = s.cand[:n]
}

// xtc drops, with the given probability, all but the least likely of the tokens above
// the threshold, so that a likely but not the obvious one is chosen.
func (s *Sampler) xtc() {
	if s.par.XTCProbability <= 0 || s.par.XTCThreshold > 0.5 || len(s.cand) < 2 {
		return
	}
	if s.rng.Float32() > s.par.XTCProbability {
		return
	}
	s.softmax()
	last := 0
	for i, c := range s.cand {
		if c.p < s.par.XTCThreshold {
			break
		}
		last = i
	}
	if len(s.cand)-last >= max(s.par.MinKeep, 1) && last > 0 {
		s.cand = s.cand[last:]
	}
}

// temperature divides the logits; with a dynamic range, by a temperature that grows
// with the entropy of the candidates.
func (s *Sampler) temperature() {
	t := s.par.Temperature
	if s.par.DynatempRange > 0 && len(s.cand) > 1 {
		s.softmax()
		entropy := 0.0
		for _, c := range s.cand {
			if c.p > 0 {
				entropy -= float64(c.p) * math.Log(float64(c.p))
			}
		}
		lo, hi := max(0, t-s.par.DynatempRange), t+s.par.DynatempRange
		x := math.Pow(entropy/math.Log(float64(len(s.cand))), float64(s.par.DynatempExponent))
		t = lo + (hi-lo)*float32(x)
	}
	if t <= 0 {
		s.cand = s.cand[:1]
		return
	}
	for i := range s.cand {
		s.cand[i].logit /= t
	}
}

func (s *Sampler) draw() int32 {
	if len(s.cand) == 1 {
		return s.cand[0].id
	}
	s.softmax()
	r, sum := s.rng.Float32(), float32(0)
	for _, c := range s.cand {
		if sum += c.p; r < sum {
			return c.id
		}
	}
	return s.cand[len(s.cand)-1].id // the probabilities summed to a little under 1
}
