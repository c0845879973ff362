package vocab

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// spaceMark (U+2581) stands for a space in the entries of a SentencePiece vocabulary.
const spaceMark = "▁"

// spm is the SentencePiece BPE tokenizer: characters are joined while the joined text is a
// token, the token of the highest score first; characters that are no token become bytes.
type spm struct {
	v      *Vocab
	ids    map[string]int32 // entries that merges may make
	rank   []uint32         // of each token, by descending score; equal scores, equal ranks
	byteID [256]int32       // the token of each byte, or none
	byWord bool             // no token has a spaceMark after something else
}

// initSPM reads the scores.
func (v *Vocab) initSPM(md Metadata) error {
	if err := v.readAdds(md, true); err != nil {
		return err
	}
	var err error
	if v.addSpace, err = md.BoolOr(keyAddSpace, true); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	scores, ok, err := md.Floats(keyScores)
	if err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	if !ok {
		return fmt.Errorf("vocab: %s is missing: a SentencePiece vocabulary cannot encode without it", keyScores)
	}
	if len(scores) != len(v.texts) {
		return fmt.Errorf("vocab: %s has %d entries, %s has %d", keyScores, len(scores), keyTokens, len(v.texts))
	}
	v.detectSpecial(func(int32) bool { return false })
	unescape := func(dst []byte, text string) []byte {
		return append(dst, strings.ReplaceAll(text, spaceMark, " ")...)
	}
	if err := v.spell(unescape); err != nil {
		return err
	}

	p := &spm{v: v, byWord: true}
	v.tok = p
	for i := range p.byteID {
		p.byteID[i] = none
	}
	p.ids = make(map[string]int32, len(v.texts))
	order := make([]int32, 0, len(v.texts))
	for id := range int32(len(v.texts)) {
		text := v.texts[id]
		if s := scores[id]; s != s {
			return fmt.Errorf("vocab: token %d (%q) has a score that is not a number", id, text)
		}
		switch v.attrs[id] {
		case attrByte:
			b, _ := parseByteToken(text) // spell has checked it
			p.byteID[b] = id
		case attrNormal, attrUserDefined:
			if other, ok := p.ids[text]; ok {
				return fmt.Errorf("vocab: tokens %d and %d are both %q", other, id, text)
			}
			p.ids[text] = id
			order = append(order, id)
			if i := strings.LastIndex(text, spaceMark); i > 0 && strings.TrimLeft(text[:i], spaceMark) != "" {
				p.byWord = false
			}
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	p.rank = make([]uint32, len(v.texts))
	last, rank := float32(math.Inf(1)), uint32(0)
	for _, id := range order {
		if scores[id] != last {
			last = scores[id]
			rank++
		}
		p.rank[id] = rank
	}
	return nil
}

// encode implements tokenizer.
func (p *spm) encode(dst []int32, text string, first bool) []int32 {
	escaped := strings.ReplaceAll(text, " ", spaceMark)
	if first && p.v.addSpace {
		escaped = spaceMark + escaped
	}
	w := getWord()
	defer putWord(w)
	if !p.byWord {
		return p.mergeWord(dst, w, escaped)
	}
	// No token reaches over the border before a space mark that follows something else:
	// each word, with the marks before it, is encoded for itself.
	for len(escaped) > 0 {
		i := 0
		for strings.HasPrefix(escaped[i:], spaceMark) {
			i += len(spaceMark)
		}
		end := strings.Index(escaped[i:], spaceMark)
		if end < 0 {
			end = len(escaped) - i
		}
		dst = p.appendWord(dst, w, escaped[:i+end])
		escaped = escaped[i+end:]
	}
	return dst
}

func (p *spm) appendWord(dst []int32, w *word, text string) []int32 {
	id, ok := p.ids[text]
	if !ok {
		return p.mergeWord(dst, w, text)
	}
	switch p.v.isWhole(id) {
	case wholeYes:
		return append(dst, id)
	case wholeUnknown:
		n := len(dst)
		dst = p.mergeWord(dst, w, text)
		p.v.setWhole(id, len(dst) == n+1 && dst[n] == id)
		return dst
	}
	return p.mergeWord(dst, w, text)
}

func (p *spm) mergeWord(dst []int32, w *word, text string) []int32 {
	w.reset(text)
	for i := 0; i < len(text); {
		_, n := utf8.DecodeRuneInString(text[i:]) // 1 for a byte that is no character
		id, ok := p.ids[text[i:i+n]]
		if !ok {
			id = none
		}
		w.add(i, id)
		i += n
	}
	w.merge(p)
	for i, n := int32(0), int32(len(w.id)); i < n; i = w.next[i] {
		if w.id[i] != none {
			dst = append(dst, w.id[i])
			continue
		}
		dst = p.appendFallback(dst, text[w.start[i]:w.end(i)])
	}
	return dst
}

// appendFallback encodes a character that is no token: as byte tokens, where a byte has
// none as the unknown token.
func (p *spm) appendFallback(dst []int32, char string) []int32 {
	for i := range len(char) {
		id := p.byteID[char[i]]
		if id == none {
			id = p.v.unk
		}
		if id != none {
			dst = append(dst, id)
		}
	}
	return dst
}

// rankPair implements ranker.
func (p *spm) rankPair(w *word, l, r int32) (uint32, int32) {
	id, ok := p.ids[w.text[w.start[l]:w.end(r)]]
	if !ok {
		return unmerged, none
	}
	return p.rank[id], id
}
