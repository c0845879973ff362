package vocab

import "unicode/utf8"

// EncodeOptions say what Encode does about special tokens.
type EncodeOptions struct {
	// AddSpecial puts BOS before and EOS after the text where the model wants them.
	AddSpecial bool
	// ParseSpecial turns the texts of control tokens into these tokens. Without it
	// "<|im_end|>" is ten characters like any others: what text from outside must be.
	ParseSpecial bool
}

// Part is a piece of a text, all of it trusted or not.
type Part struct {
	Text string
	// ParseSpecial allows control tokens in this part, as a chat template writes them;
	// leave it off for what users, documents and tools say.
	ParseSpecial bool
}

// Encode appends the ids of text to dst and returns the extended slice.
//
// Any bytes are accepted. Byte-level BPE keeps those that are not valid UTF-8 as they are;
// a SentencePiece vocabulary with byte tokens too. Models whose tokenizer normalizes (Qwen)
// see the text in Unicode normalization form C, as in their training; for all other
// byte-level vocabularies that have a token for every byte Decode gives the same text back.
// User-defined tokens (<think>, runs of spaces) are part of ordinary text and always found.
//
// AddSpecial does not look at the text: where a chat template has written BOS already, the
// ids would begin with two.
func (v *Vocab) Encode(dst []int32, text string, o EncodeOptions) []int32 {
	return v.EncodeParts(dst, []Part{{text, o.ParseSpecial}}, o.AddSpecial)
}

// EncodeParts appends the ids of a text that is composed of trusted and untrusted parts.
//
// The ids are those of the parts' concatenation, so that a part's border is no border for
// the tokenizer; but a control token is found only where all of its text lies in parts with
// ParseSpecial.
func (v *Vocab) EncodeParts(dst []int32, parts []Part, addSpecial bool) []int32 {
	if addSpecial && v.addBOS {
		dst = append(dst, v.bos)
	}
	text, trusted := joinParts(parts)
	from := 0
	for i := 0; i < len(text); {
		i = v.special.candidate(text, i)
		if i == len(text) {
			break
		}
		for len(trusted) > 0 && trusted[0].to <= i {
			trusted = trusted[1:]
		}
		id, n := none, 0
		if v.special.some {
			id, n = v.special.longest(text[i:], false)
		}
		if len(trusted) > 0 && trusted[0].from <= i {
			if c, m := v.special.longest(text[i:trusted[0].to], true); m > n {
				id, n = c, m
			}
		}
		if id == none {
			i++
			continue
		}
		dst = v.encodePlain(dst, text[from:i], maxRun)
		dst = append(dst, id)
		i += n
		from = i
	}
	dst = v.encodePlain(dst, text[from:], maxRun)
	if addSpecial && v.addEOS {
		dst = append(dst, v.eos)
	}
	return dst
}

// maxRun bounds what is tokenized in one piece, so that positions fit in 32 bits even when
// normalization or marking spaces makes it three times as long.
const maxRun = 1 << 29

// encodePlain encodes text without special tokens, in runs of at most limit bytes.
func (v *Vocab) encodePlain(dst []int32, text string, limit int) []int32 {
	for first := true; text != ""; first = false {
		n := runLen(text, limit)
		dst = v.tok.encode(dst, text[:n], first)
		text = text[n:]
	}
	return dst
}

// runLen is how much of text makes a run: limit bytes, fewer where that would cut a character.
func runLen(text string, limit int) int {
	if len(text) <= limit {
		return len(text)
	}
	for n := limit; n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(text[n]) {
			return n
		}
	}
	return limit // not UTF-8
}

// region is a range of bytes.
type region struct{ from, to int }

// joinParts returns the whole text and the regions in which control tokens may lie.
func joinParts(parts []Part) (string, []region) {
	var trusted []region
	n := 0
	for _, p := range parts {
		if p.ParseSpecial && p.Text != "" {
			if k := len(trusted) - 1; k >= 0 && trusted[k].to == n {
				trusted[k].to += len(p.Text)
			} else {
				trusted = append(trusted, region{n, n + len(p.Text)})
			}
		}
		n += len(p.Text)
	}
	if len(parts) == 1 {
		return parts[0].Text, trusted
	}
	text := make([]byte, 0, n)
	for _, p := range parts {
		text = append(text, p.Text...)
	}
	return string(text), trusted
}
