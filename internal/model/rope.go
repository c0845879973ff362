package model

import (
	"fmt"
	"math"
)

// RopeConfig describes the rotary position embedding (RoFormer, 2104.09864).
type RopeConfig struct {
	Dims    int     // elements of a head that are rotated; the rest pass unchanged
	Base    float64 // frequency base
	Scaling string  // none, linear or yarn
	Factor  float64 // context extension of linear and yarn
	CtxOrig int     // yarn: context length before the extension
	// Yarn (2309.00071): beta bounds of the ramp, share of extrapolation, and a
	// factor on the rotated vectors.
	BetaFast, BetaSlow, ExtFactor, AttnFactor float64
}

func (r *reader) rope(c Config) RopeConfig {
	rc := RopeConfig{
		Dims:       r.countOr("rope.dimension_count", c.HeadDim, 1024),
		Base:       r.float("rope.freq_base", 10000),
		Scaling:    r.str(r.arch+".rope.scaling.type", "none"),
		Factor:     r.float("rope.scaling.factor", 0),
		CtxOrig:    r.countOr("rope.scaling.original_context_length", c.CtxTrain, maxCtx),
		BetaFast:   r.float("rope.scaling.yarn_beta_fast", 32),
		BetaSlow:   r.float("rope.scaling.yarn_beta_slow", 1),
		ExtFactor:  r.float("rope.scaling.yarn_ext_factor", 1),
		AttnFactor: r.float("rope.scaling.attn_factor", 1),
	}
	if rc.Factor == 0 {
		rc.Factor = r.float("rope.scale_linear", 0) // the key of old files
		if rc.Factor > 0 && rc.Scaling == "none" {
			rc.Scaling = "linear"
		}
	}
	if rc.Factor == 0 {
		rc.Factor = 1
	}
	finite := func(name string, v float64) {
		if !(v > 0 && v < 1e12) {
			r.fail(fmt.Errorf("%s.%s is %g, expected a positive number", r.arch, name, v))
		}
	}
	finite("rope.freq_base", rc.Base)
	finite("rope.scaling.factor", rc.Factor)
	finite("rope.scaling.attn_factor", rc.AttnFactor)
	finite("rope.scaling.yarn_beta_fast", rc.BetaFast)
	finite("rope.scaling.yarn_beta_slow", rc.BetaSlow)
	if rc.Dims != c.HeadDim {
		r.fail(fmt.Errorf("%d of %d elements of a head are rotated: partial rotation is not supported", rc.Dims, c.HeadDim))
	}
	switch rc.Scaling {
	case "none", "linear", "yarn":
	default:
		r.fail(fmt.Errorf("rope scaling %q: supported are none, linear, yarn and the rope_freqs tensor of Llama 3", rc.Scaling))
	}
	return rc
}

// angles holds the angle per position of each pair of elements, and the factor on
// the rotated vectors.
type angles struct {
	freq  []float64 // Dims/2
	scale float64
}

// newAngles computes the frequencies: base^(-2i/dims), divided by the file's own
// factors (Llama 3's frequency scaling comes as the tensor rope_freqs), then
// stretched linearly or after YaRN. The formulas are those of the YaRN paper, with
// the correction of the attention temperature, 0.1 ln(factor) + 1.
func newAngles(rc RopeConfig, factors []float32) angles {
	half := rc.Dims / 2
	a := angles{freq: make([]float64, half), scale: 1}
	for i := range a.freq {
		a.freq[i] = math.Pow(rc.Base, -2*float64(i)/float64(rc.Dims))
		if factors != nil {
			a.freq[i] /= float64(factors[i])
		}
	}
	switch rc.Scaling {
	case "linear":
		for i := range a.freq {
			a.freq[i] /= rc.Factor
		}
	case "yarn":
		// The pair at which a head makes beta turns over the original context.
		turnsAt := func(beta float64) float64 {
			return float64(rc.Dims) * math.Log(float64(rc.CtxOrig)/(beta*2*math.Pi)) / (2 * math.Log(rc.Base))
		}
		low := max(0, math.Floor(turnsAt(rc.BetaFast)))
		high := min(float64(rc.Dims-1), math.Ceil(turnsAt(rc.BetaSlow)))
		for i := range a.freq {
			ramp := (float64(i) - low) / max(0.001, high-low)
			keep := (1 - min(1, max(0, ramp))) * rc.ExtFactor // share that is not stretched
			a.freq[i] = a.freq[i]/rc.Factor*(1-keep) + a.freq[i]*keep
		}
		a.scale = rc.AttnFactor
		if rc.ExtFactor != 0 && rc.Factor > 1 {
			a.scale *= 1 + 0.1*math.Log(rc.Factor)
		}
	}
	return a
}

// fill writes the cosines and sines of position pos, each Dims/2 long.
func (a *angles) fill(cos, sin []float32, pos int) {
	for i, f := range a.freq {
		s, c := math.Sincos(float64(pos) * f)
		cos[i], sin[i] = float32(c*a.scale), float32(s*a.scale)
	}
}

// attentionScale is the factor on q·k, 1/sqrt(headDim).
func attentionScale(headDim int) float32 { return float32(1 / math.Sqrt(float64(headDim))) }
