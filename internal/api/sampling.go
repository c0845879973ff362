package api

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"baton/internal/engine"
)

// sampler is a step of the sampler chain. without turns it off.
type sampler struct {
	name    string
	aliases []string
	without func(*engine.Sampling)
}

// samplerOrder is the one order in which the engine applies its samplers: llama.cpp's
// default (common/common.h). dry is refused by its multiplier, so it is always off.
var samplerOrder = []sampler{
	{"penalties", nil, func(s *engine.Sampling) { s.RepeatLastN = 0 }},
	{"dry", nil, func(*engine.Sampling) {}},
	{"top_n_sigma", nil, func(s *engine.Sampling) { s.TopNSigma = -1 }},
	{"top_k", nil, func(s *engine.Sampling) { s.TopK = 0 }},
	{"typ_p", []string{"typical_p", "typical"}, func(s *engine.Sampling) { s.TypicalP = 1 }},
	{"top_p", nil, func(s *engine.Sampling) { s.TopP = 1 }},
	{"min_p", nil, func(s *engine.Sampling) { s.MinP = 0 }},
	{"xtc", nil, func(s *engine.Sampling) { s.XTCProbability = 0 }},
	{"temperature", nil, func(s *engine.Sampling) { s.Temperature, s.DynatempRange = 1, 0 }},
}

func samplerNames() []string {
	names := make([]string, len(samplerOrder))
	for i, s := range samplerOrder {
		names[i] = s.name
	}
	return names
}

func (s *sampler) is(name string) bool {
	if s.name == name {
		return true
	}
	for _, a := range s.aliases {
		if a == name {
			return true
		}
	}
	return false
}

// samplers reads llama-server's list of samplers to apply. The order is fixed; those left
// out are turned off, as llama-server does.
func (o *object) samplers(s *engine.Sampling) {
	if _, ok := o.get("samplers"); !ok {
		return
	}
	names := o.stringList("samplers", 2*len(samplerOrder))
	if o.err != nil {
		return
	}
	next := 0
	for i := range samplerOrder {
		if next < len(names) && samplerOrder[i].is(names[next]) {
			next++
		} else {
			samplerOrder[i].without(s)
		}
	}
	if next < len(names) {
		path := fmt.Sprintf("%s[%d]", join(o.path, "samplers"), next)
		o.fail(badRequest(path, CodeUnsupported, "%s: found %q, which is not supported there, expected some of %s, each at most once and in this order",
			path, shorten(names[next]), strings.Join(samplerNames(), ", ")))
	}
}

// maxBias bounds a single bias. OpenAI's range is -100 to 100; more is only more certain.
const maxBias = 10000

// logitBias reads OpenAI's object {"id or text": bias} and llama-server's array of pairs
// [id or text, bias or false]. false bans a token. A text stands for each of its tokens.
func (o *object) logitBias(l Limits) []engine.TokenBias {
	m, ok := o.get("logit_bias")
	if !ok {
		return nil
	}
	path := join(o.path, "logit_bias")
	var out []engine.TokenBias
	add := func(name string, ids []int32, value member) bool {
		bias, err := biasOf(value, name)
		if err != nil {
			o.fail(err)
			return false
		}
		for _, id := range ids {
			out = append(out, engine.TokenBias{Token: id, Bias: bias})
		}
		if len(out) > MaxBias {
			o.fail(badRequest(path, CodeInvalidValue, "%s: found more than %d tokens, expected at most that many", path, MaxBias))
			return false
		}
		return true
	}
	switch kindOf(m.raw) {
	case kindObject:
		list, err := members(m.raw, m.at, path)
		if err != nil {
			o.fail(err)
			return nil
		}
		for _, f := range list {
			name := join(path, shorten(f.key))
			ids, err := l.biasKey(f.key, name)
			if err != nil {
				o.fail(err)
				return nil
			}
			if !add(name, ids, f) {
				return nil
			}
		}
	case kindArray:
		for i, e := range elements(m.raw, m.at) {
			name := fmt.Sprintf("%s[%d]", path, i)
			ids, value, err := l.biasPair(e, name)
			if err != nil {
				o.fail(err)
				return nil
			}
			if !add(name, ids, value) {
				return nil
			}
		}
	default:
		o.fail(badType(path, m, "an object or an array of pairs"))
	}
	return out
}

// biasKey is the ids that a key of the object form names: a number is an id, anything else
// a text.
func (l Limits) biasKey(key, name string) ([]int32, *Error) {
	id, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return l.textIDs(key, name)
	}
	if id < 0 || id >= int64(l.Vocab) {
		return nil, badRequest(name, CodeInvalidValue, "%s: found the token id %d, expected one from 0 to %d", name, id, l.Vocab-1)
	}
	return []int32{int32(id)}, nil
}

func (l Limits) biasPair(e member, name string) ([]int32, member, *Error) {
	if kindOf(e.raw) != kindArray {
		return nil, member{}, badType(name, e, "a pair [token, bias]")
	}
	var pair []member
	for _, v := range elements(e.raw, e.at) {
		if pair = append(pair, v); len(pair) > 2 {
			break
		}
	}
	if len(pair) != 2 {
		return nil, member{}, badRequest(name, CodeInvalidValue, "%s: found an array of another length, expected a pair [token, bias]", name)
	}
	if kindOf(pair[0].raw) == kindString {
		text, err := asString(pair[0], name)
		if err != nil {
			return nil, member{}, err
		}
		ids, err := l.textIDs(text, name)
		return ids, pair[1], err
	}
	id, err := asNumber(pair[0], name, 0, float64(l.Vocab-1), true)
	if err != nil {
		return nil, member{}, err
	}
	return []int32{int32(id)}, pair[1], nil
}

// textIDs tokenizes a text of logit_bias.
func (l Limits) textIDs(text, name string) ([]int32, *Error) {
	if l.Tokenizer == nil || text == "" || len(text) > MaxStopBytes {
		return nil, badRequest(name, CodeInvalidValue, "%s: found %q, expected a token id or a text of 1 to %d bytes", name, shorten(text), MaxStopBytes)
	}
	return l.Tokenizer.Encode(text, false, false), nil
}

func biasOf(m member, name string) (float32, *Error) {
	if string(m.raw) == "false" {
		return float32(math.Inf(-1)), nil
	}
	v, err := asNumber(m, name, -maxBias, maxBias, false)
	return float32(v), err
}
