package api

import "fmt"

// Prompt is one prompt of a completion: texts and token ids in the order given.
type Prompt struct {
	Segments []Segment
	// Special says whether the vocabulary's BOS belongs before it: yes unless the
	// prompt starts with a token id.
	Special bool
}

// Segment is a text or, when Text is empty, token ids.
type Segment struct {
	Text string
	IDs  []int32
}

// Encode returns the prompt's token ids. Texts of special tokens stand for these tokens,
// as in llama-server.
func (p *Prompt) Encode(t Tokenizer) []int32 {
	var ids []int32
	for i, s := range p.Segments {
		if len(s.IDs) > 0 {
			ids = append(ids, s.IDs...)
			continue
		}
		ids = append(ids, t.Encode(s.Text, p.Special && i == 0, true)...)
	}
	return ids
}

// prompts reads prompt in all forms that llama-server documents: a string, token ids, a
// mixture of both, {"prompt_string": ...}, or an array of these.
func (o *object) prompts(vocab int) []Prompt {
	if o.err != nil {
		return nil
	}
	path := join(o.path, "prompt")
	m, ok := o.get("prompt")
	if !ok {
		o.fail(badRequest(path, CodeMissing, "%s: found nothing, expected a string or an array", path))
		return nil
	}
	many := []member{m}
	if kindOf(m.raw) == kindArray {
		if count(m.raw, 1) == 0 {
			o.fail(badRequest(path, CodeInvalidValue, "%s: found an empty array, expected at least one prompt or token id", path))
			return nil
		}
		if isBatch(m) {
			if n := count(m.raw, MaxGenerations+1); n > MaxGenerations {
				o.fail(badRequest(path, CodeInvalidValue, "%s: found more than %d prompts, expected at most that many", path, MaxGenerations))
				return nil
			}
			many = many[:0]
			for _, it := range elements(m.raw, m.at) {
				many = append(many, it)
			}
		}
	}
	out := make([]Prompt, len(many))
	for i, one := range many {
		name := path
		if len(many) > 1 {
			name = fmt.Sprintf("%s[%d]", path, i)
		}
		p, err := parsePrompt(one, name, vocab)
		if err != nil {
			o.fail(err)
			return nil
		}
		out[i] = p
	}
	return out
}

// isBatch tells an array of prompts from one prompt that is an array: a prompt holds
// numbers, alone or among strings; everything else is several prompts.
func isBatch(m member) bool {
	for _, it := range elements(m.raw, m.at) {
		switch kindOf(it.raw) {
		case kindArray, kindObject:
			return true
		case kindNumber:
			return false
		}
	}
	return true
}

func parsePrompt(m member, path string, vocab int) (Prompt, *Error) {
	switch kindOf(m.raw) {
	case kindString:
		s, err := asString(m, path)
		return Prompt{Segments: []Segment{{Text: s}}, Special: true}, err
	case kindObject:
		o, err := openObject(m, path)
		if err != nil {
			return Prompt{}, err
		}
		var s string
		if !o.string("prompt_string", &s) && o.err == nil {
			o.fail(badRequest(path, CodeMissing, "%s: found no prompt_string, expected a string", path))
		}
		if media, ok := o.get("multimodal_data"); ok && !emptyArray(media.raw) {
			o.fail(notSupported(join(path, "multimodal_data"), media, "no media"))
		}
		return Prompt{Segments: []Segment{{Text: s}}, Special: true}, o.err
	case kindArray:
		return parseMixed(m, path, vocab)
	}
	return Prompt{}, badType(path, m, "a string, an array of token ids and strings, or an array of prompts")
}

// parseMixed reads one prompt of token ids and strings.
func parseMixed(m member, path string, vocab int) (Prompt, *Error) {
	if count(m.raw, 1) == 0 {
		return Prompt{}, badRequest(path, CodeInvalidValue, "%s: found an empty array, expected at least one token id or string", path)
	}
	var p Prompt
	for i, it := range elements(m.raw, m.at) {
		switch kindOf(it.raw) {
		case kindString:
			p.Special = p.Special || i == 0
			s, err := asString(it, fmt.Sprintf("%s[%d]", path, i))
			if err != nil {
				return Prompt{}, err
			}
			p.Segments = append(p.Segments, Segment{Text: s})
		case kindNumber:
			id, err := asID(it, path, i, vocab)
			if err != nil {
				return Prompt{}, err
			}
			if n := len(p.Segments); n > 0 && len(p.Segments[n-1].IDs) > 0 {
				p.Segments[n-1].IDs = append(p.Segments[n-1].IDs, id)
			} else {
				p.Segments = append(p.Segments, Segment{IDs: []int32{id}})
			}
		default:
			return Prompt{}, badType(fmt.Sprintf("%s[%d]", path, i), it, "a token id or a string")
		}
	}
	return p, nil
}
