package vocab

import (
	"slices"
	"strings"
)

// Texts that mark special tokens whatever the file says of them, as llama.cpp finds them
// (llama-vocab.cpp): files rarely carry the ids of all the tokens that end a generation.
var (
	// eotTexts are tried in order where the file names no end-of-turn token.
	eotTexts = []string{
		"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
		"<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
	}
	eomTexts = []string{"<|eom_id|>"}
	eogTexts = []string{
		"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
		"<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
		"<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
		"<｜end▁of▁sentence｜>", "[e~[",
	}
	// fimTexts separate or pad fill-in-the-middle input (pad, repository, file): the first
	// of each list that the vocabulary has ends a generation too.
	fimTexts = [][]string{
		{"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"},
		{"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
		{"<|file_sep|>"},
	}
)

// detectSpecial completes the special ids by text, makes the tokens found that way control
// tokens, and collects those that end a generation. made says of a normal token that it comes
// out of ordinary text: it stays what it is. (llama.cpp makes it special all the same: with
// Qwen's vocabulary, which has learnt "</s>" from web pages, that would change the ids of
// text and end an answer at a piece of HTML.)
func (v *Vocab) detectSpecial(made func(id int32) bool) {
	wanted := map[string]int32{}
	for _, list := range slices.Concat(fimTexts, [][]string{eotTexts, eomTexts, eogTexts}) {
		for _, t := range list {
			wanted[t] = none
		}
	}
	for i, t := range v.texts {
		if id, ok := wanted[t]; ok && id == none {
			wanted[t] = int32(i)
		}
	}
	find := func(texts []string) int32 {
		for _, t := range texts {
			id := wanted[t]
			if id == none || v.attrs[id] == attrNormal && made(id) {
				continue
			}
			v.attrs[id] |= attrControl
			return id
		}
		return none
	}
	ends := map[int32]bool{}
	if v.eot == none {
		v.eot = find(eotTexts)
	}
	if v.eom == none {
		v.eom = find(eomTexts)
	}
	for _, texts := range fimTexts {
		ends[find(texts)] = true
	}
	for _, t := range eogTexts {
		ends[find([]string{t})] = true
	}
	for _, id := range []int32{v.eos, v.eot, v.eom} {
		ends[id] = true
	}
	delete(ends, none)

	// Two families use a text of the lists above for something else.
	has := func(t string) bool { return wanted[t] != none && ends[wanted[t]] }
	call := has("<|call|>") || has("<|calls|>")
	if has("<|end|>") && call && (has("<|return|>") || has("<|flush|>")) {
		id := wanted["<|end|>"] // ends a channel, not the turn
		delete(ends, id)
		v.attrs[id] = attrUserDefined
	}
	if has("<|tool_response>") && has("</s>") {
		id := wanted["</s>"] // a strike-through tag
		delete(ends, id)
		v.attrs[id] = attrNormal
	}
	for id := range ends {
		v.eog = append(v.eog, id)
	}
	slices.Sort(v.eog)
}

// trie finds special tokens in text. Where several match, the leftmost wins, and of those
// the longest: the rule of the reference tokenizers. (llama.cpp cuts out the longest token
// everywhere first. The two differ only where two special tokens overlap in the text.)
type trie struct {
	next  map[uint64]int32 // node<<8 | byte -> node; node 0 is the root
	id    []int32          // the token that ends at a node, or none
	plain []bool           // that token is matched in untrusted text too
	first [256]bool        // bytes that a special token can begin with
	only  int              // the one byte all begin with, or -1
	some  bool             // some token is matched in untrusted text too
}

// buildTrie holds the control, unknown and user-defined tokens.
func buildTrie(texts []string, attrs []attr) trie {
	t := trie{next: map[uint64]int32{}, id: []int32{none}, plain: []bool{false}, only: -1}
	firsts := 0
	for i, text := range texts {
		if attrs[i]&(attrControl|attrUnknown|attrUserDefined) == 0 {
			continue
		}
		plain := attrs[i]&(attrControl|attrUnknown) == 0
		if !t.first[text[0]] {
			t.first[text[0]] = true
			t.only = int(text[0])
			firsts++
		}
		t.some = t.some || plain
		node := int32(0)
		for j := range len(text) {
			k := uint64(node)<<8 | uint64(text[j])
			n, ok := t.next[k]
			if !ok {
				n = int32(len(t.id))
				t.next[k] = n
				t.id = append(t.id, none)
				t.plain = append(t.plain, false)
			}
			node = n
		}
		t.id[node], t.plain[node] = int32(i), plain
	}
	if firsts != 1 {
		t.only = -1
	}
	return t
}

// longest returns the longest token at the start of s and its length in bytes, or none.
// Without control only tokens that untrusted text may contain count.
func (t *trie) longest(s string, control bool) (id int32, n int) {
	id = none
	node := int32(0)
	for i := range len(s) {
		var ok bool
		if node, ok = t.next[uint64(node)<<8|uint64(s[i])]; !ok {
			break
		}
		if t.id[node] != none && (control || t.plain[node]) {
			id, n = t.id[node], i+1
		}
	}
	return id, n
}

// candidate returns the first position at or after i where a token may begin, or len(s).
// It says no more than that: longest decides.
func (t *trie) candidate(s string, i int) int {
	if t.only >= 0 {
		if j := strings.IndexByte(s[i:], byte(t.only)); j >= 0 {
			return i + j
		}
		return len(s)
	}
	for i < len(s) && !t.first[s[i]] {
		i++
	}
	return i
}
