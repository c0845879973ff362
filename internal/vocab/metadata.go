package vocab

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
)

// Metadata is what New reads from; a GGUF file's key-value section has these methods. A
// method returns an error for a value of another type than asked for.
type Metadata interface {
	NeedString(key string) (string, error) // an absent key is an error
	StringOr(key, def string) (string, error)
	UintOr(key string, def uint64) (uint64, error)
	BoolOr(key string, def bool) (bool, error)
	Strings(key string) ([]string, bool, error) // false: the key is absent
	Floats(key string) ([]float32, bool, error)
	Ints(key string) ([]int32, bool, error)
}

// The metadata keys, from the GGUF specification.
const (
	keyModel    = "tokenizer.ggml.model"
	keyPre      = "tokenizer.ggml.pre"
	keyTokens   = "tokenizer.ggml.tokens"
	keyTypes    = "tokenizer.ggml.token_type"
	keyScores   = "tokenizer.ggml.scores"
	keyMerges   = "tokenizer.ggml.merges"
	keyBOS      = "tokenizer.ggml.bos_token_id"
	keyEOS      = "tokenizer.ggml.eos_token_id"
	keyEOT      = "tokenizer.ggml.eot_token_id"
	keyEOM      = "tokenizer.ggml.eom_token_id"
	keyUnknown  = "tokenizer.ggml.unknown_token_id"
	keyPadding  = "tokenizer.ggml.padding_token_id"
	keyAddBOS   = "tokenizer.ggml.add_bos_token"
	keyAddEOS   = "tokenizer.ggml.add_eos_token"
	keyAddSpace = "tokenizer.ggml.add_space_prefix"
)

// New builds the tokenizer that md describes.
//
// It refuses a vocabulary that it could only guess at: an unknown tokenizer model or
// pre-tokenizer, arrays of different lengths, a token twice, a token type that the format
// does not know, a merge that is not two tokens. It ignores, as llama.cpp does, a special id
// out of range (files write -1 for none) and a merge whose parts or result the vocabulary
// lacks, because no encoding can reach it.
func New(md Metadata) (*Vocab, error) {
	model, err := md.NeedString(keyModel)
	if err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	v := &Vocab{model: model}
	if model != "gpt2" && model != "llama" {
		return nil, fmt.Errorf("vocab: tokenizer model %q is not supported: expected gpt2 (byte-level BPE) or llama (SentencePiece)", model)
	}
	if err := v.readTokens(md); err != nil {
		return nil, err
	}
	if err := v.readSpecial(md); err != nil {
		return nil, err
	}
	if model == "gpt2" {
		err = v.initBPE(md)
	} else {
		err = v.initSPM(md)
	}
	if err != nil {
		return nil, err
	}
	v.special = buildTrie(v.texts, v.attrs)
	v.whole = make([]atomic.Uint32, (len(v.texts)+15)/16)
	return v, nil
}

// readTokens reads the entries and their types.
func (v *Vocab) readTokens(md Metadata) error {
	tokens, ok, err := md.Strings(keyTokens)
	if err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	if !ok || len(tokens) == 0 {
		return fmt.Errorf("vocab: %s is missing or empty: the file has no vocabulary", keyTokens)
	}
	if len(tokens) > math.MaxInt32 {
		return fmt.Errorf("vocab: %d tokens: at most %d can be numbered", len(tokens), math.MaxInt32)
	}
	v.texts = slices.Clone(tokens)
	for i, t := range v.texts {
		if t == "" { // llama.cpp gives such an entry this name, so that it has one
			v.texts[i] = fmt.Sprintf("[EMPTY_%d]", i)
		}
	}
	v.attrs = make([]attr, len(tokens))
	types, ok, err := md.Ints(keyTypes)
	if err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	if !ok {
		for i := range v.attrs {
			v.attrs[i] = attrNormal
		}
		return nil
	}
	if len(types) != len(tokens) {
		return fmt.Errorf("vocab: %s has %d entries, %s has %d", keyTypes, len(types), keyTokens, len(tokens))
	}
	for i, t := range types {
		// The file's numbers 1 to 6 are the attributes in order.
		if t < 1 || t > 6 {
			return fmt.Errorf("vocab: token %d (%q) has type %d: expected 1 to 6", i, v.texts[i], t)
		}
		v.attrs[i] = 1 << (t - 1)
	}
	return nil
}

// readSpecial reads the special ids and what is added to a text.
func (v *Vocab) readSpecial(md Metadata) error {
	v.bos, v.eos, v.unk = none, none, none
	v.eot, v.eom, v.pad = none, none, none
	if v.model == "llama" { // llama.cpp's defaults
		v.bos, v.eos, v.unk = v.inRange(1), v.inRange(2), v.inRange(0)
	}
	for _, s := range []struct {
		key string
		id  *int32
	}{
		{keyBOS, &v.bos}, {keyEOS, &v.eos}, {keyEOT, &v.eot},
		{keyEOM, &v.eom}, {keyUnknown, &v.unk}, {keyPadding, &v.pad},
	} {
		n, err := md.UintOr(s.key, math.MaxUint64)
		if err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
		if id := v.inRange(n); id != none {
			*s.id = id
		}
	}
	return nil
}

// inRange is n as an id, or none.
func (v *Vocab) inRange(n uint64) int32 {
	if n >= uint64(len(v.texts)) {
		return none
	}
	return int32(n)
}

// readAdds reads which special tokens surround a text. A default that needs a token which
// the vocabulary lacks is off; a file that asks for one is refused.
func (v *Vocab) readAdds(md Metadata, bos bool) error {
	for _, a := range []struct {
		key   string
		idKey string
		id    int32
		def   bool
		on    *bool
	}{
		{keyAddBOS, keyBOS, v.bos, bos && v.bos != none, &v.addBOS},
		{keyAddEOS, keyEOS, v.eos, false, &v.addEOS},
	} {
		on, err := md.BoolOr(a.key, a.def)
		if err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
		if on && a.id == none {
			return fmt.Errorf("vocab: %s is true, but %s names no token", a.key, a.idKey)
		}
		*a.on = on
	}
	return nil
}
