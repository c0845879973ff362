package vocab

import (
	"fmt"
	"strings"
)

// bpe is the byte-level BPE tokenizer. Text is cut into pieces by the pre-tokenizer, and in
// each piece the bytes are joined by the merges, lowest rank first.
type bpe struct {
	v            *Vocab
	split        func(s string, yield func(string))
	nfc          bool             // text is put into normalization form C first
	ignoreMerges bool             // a piece that is a token is that token, merges or not
	ids          map[string]int32 // the bytes of each normal token
	byteID       [256]int32       // the token of each byte, or none
	merges       pairTable
}

// initBPE reads the pre-tokenizer and the merges.
func (v *Vocab) initBPE(md Metadata) error {
	pre, err := md.StringOr(keyPre, "default")
	if err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	v.pre = pre
	p, ok := preTokenizers[pre]
	if !ok {
		return fmt.Errorf("vocab: pre-tokenizer %q is not supported: expected one of %s", pre, strings.Join(preNames(), ", "))
	}
	if err := v.readAdds(md, p.addBOS); err != nil {
		return err
	}
	b := &bpe{v: v, split: p.split, nfc: p.nfc, ignoreMerges: p.ignoreMerges}
	v.tok = b

	if err := v.spell(appendBytes); err != nil {
		return err
	}
	b.ids = make(map[string]int32, len(v.texts))
	for id := range int32(len(v.texts)) {
		if v.attrs[id] != attrNormal {
			continue
		}
		p := v.piece(id)
		if other, ok := b.ids[p]; ok {
			return fmt.Errorf("vocab: tokens %d and %d are both %q", other, id, v.texts[id])
		}
		b.ids[p] = id
	}
	for i := range b.byteID {
		b.byteID[i] = none
		if id, ok := b.ids[string([]byte{byte(i)})]; ok {
			b.byteID[i] = id
		}
	}

	merges, ok, err := md.Strings(keyMerges)
	if err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	if !ok {
		return fmt.Errorf("vocab: %s is missing: byte-level BPE cannot encode without it", keyMerges)
	}
	if uint64(len(merges)) >= unmerged {
		return fmt.Errorf("vocab: %s has %d entries: too many to rank", keyMerges, len(merges))
	}
	b.merges.init(len(merges))
	made := make([]bool, len(v.texts))
	var buf []byte
	for rank, m := range merges {
		sp := strings.IndexByte(m, ' ')
		if sp <= 0 || sp == len(m)-1 {
			return fmt.Errorf("vocab: merge %d is %q: expected two tokens with a space between them", rank, m)
		}
		buf = appendBytes(buf[:0], m[:sp])
		n := len(buf)
		buf = appendBytes(buf, m[sp+1:])
		left, ok1 := b.ids[string(buf[:n])]
		right, ok2 := b.ids[string(buf[n:])]
		id, ok3 := b.ids[string(buf)]
		if ok1 && ok2 && ok3 {
			b.merges.add(left, right, uint32(rank), id)
			made[id] = true
		}
	}
	v.detectSpecial(func(id int32) bool { return made[id] })
	for id := range int32(len(v.texts)) {
		if v.attrs[id]&attrControl != 0 && b.ids[v.piece(id)] == id {
			delete(b.ids, v.piece(id)) // it was normal until detected
		}
	}
	return nil
}

// encode implements tokenizer.
func (b *bpe) encode(dst []int32, text string, _ bool) []int32 {
	if b.nfc {
		text = nfc(text)
	}
	w := getWord()
	b.split(text, func(piece string) {
		dst = b.appendPiece(dst, w, piece)
	})
	putWord(w)
	return dst
}

// appendPiece encodes one piece of the pre-tokenizer.
func (b *bpe) appendPiece(dst []int32, w *word, piece string) []int32 {
	if len(piece) == 1 && b.byteID[piece[0]] != none {
		return append(dst, b.byteID[piece[0]])
	}
	id, whole := b.ids[piece]
	if whole && b.ignoreMerges {
		return append(dst, id)
	}
	if whole {
		switch b.v.isWhole(id) {
		case wholeYes:
			return append(dst, id)
		case wholeUnknown:
			n := len(dst)
			dst = b.mergePiece(dst, w, piece)
			b.v.setWhole(id, len(dst) == n+1 && dst[n] == id)
			return dst
		}
	}
	return b.mergePiece(dst, w, piece)
}

func (b *bpe) mergePiece(dst []int32, w *word, piece string) []int32 {
	w.reset(piece)
	for i := range len(piece) {
		id := b.byteID[piece[i]]
		if id == none {
			// The reference drops a byte that its vocabulary lacks, and joins what it
			// left apart.
			if id = b.v.unk; id == none {
				continue
			}
		}
		w.add(i, id)
	}
	w.merge(b)
	for i, n := int32(0), int32(len(w.id)); i < n; i = w.next[i] {
		dst = append(dst, w.id[i])
	}
	return dst
}

// rankPair implements ranker.
func (b *bpe) rankPair(w *word, l, r int32) (uint32, int32) {
	return b.merges.find(w.id[l], w.id[r])
}

// pairTable maps pairs of tokens to the rank and result of their merge: an open-addressing
// hash table, which is built and read several times faster than a Go map of its size.
type pairTable struct {
	slots []pairSlot // a power of two, at most half full
	shift uint
}

type pairSlot struct {
	key  uint64 // left+1 in the upper half, so that 0 is an empty slot
	rank uint32
	id   int32
}

func (t *pairTable) init(n int) {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	t.slots = make([]pairSlot, 1<<bits)
	t.shift = 64 - bits
}

func pairKey(left, right int32) uint64 { return uint64(left+1)<<32 | uint64(uint32(right)) }

// slot is where the search for key begins (Fibonacci hashing).
func (t *pairTable) slot(key uint64) int { return int(key * 0x9e3779b97f4a7c15 >> t.shift) }

// add enters a merge; the first rank of a pair stays.
func (t *pairTable) add(left, right int32, rank uint32, id int32) {
	key := pairKey(left, right)
	i := t.slot(key)
	for t.slots[i].key != 0 {
		if t.slots[i].key == key {
			return
		}
		i = (i + 1) & (len(t.slots) - 1)
	}
	t.slots[i] = pairSlot{key, rank, id}
}

func (t *pairTable) find(left, right int32) (uint32, int32) {
	key := pairKey(left, right)
	for i := t.slot(key); t.slots[i].key != 0; i = (i + 1) & (len(t.slots) - 1) {
		if t.slots[i].key == key {
			return t.slots[i].rank, t.slots[i].id
		}
	}
	return unmerged, none
}
