// Package vocab turns text into token ids and back, with the tokenizers that GGUF files
// carry in their metadata: byte-level BPE (tokenizer.ggml.model "gpt2") and
// SentencePiece-style BPE ("llama").
//
// The ids are those of the model's own tokenizer, on which test/peer/tokenizer compares them
// with its reference implementation and with llama.cpp; where the two disagree the reference
// is followed, and the place in the code says so (Qwen's normalization, tokens that only look
// special, overlapping special tokens).
//
// The package knows nothing of files (it sees metadata through an interface), of chat
// templates, or of the model behind the ids.
package vocab

import "sync/atomic"

// Vocab is a vocabulary with its tokenizer. It is immutable and safe for concurrent use.
type Vocab struct {
	model string // tokenizer.ggml.model
	pre   string // tokenizer.ggml.pre; empty for SentencePiece

	texts []string // the raw entries of the file
	attrs []attr
	// pieces[offsets[i]:offsets[i+1]] are the bytes that token i stands for in a text.
	pieces  string
	offsets []uint32

	special  trie
	bos      int32 // every special id is none where there is none
	eos      int32
	eot      int32
	eom      int32
	unk      int32
	pad      int32
	eog      []int32 // ascending
	addBOS   bool
	addEOS   bool
	addSpace bool // SentencePiece: a text starts as if a space stood before it

	tok tokenizer

	// whole caches, a token each, whether its own text is encoded as that one token.
	whole []atomic.Uint32
}

// none is the id of a special token that the vocabulary lacks.
const none int32 = -1

// attr is a set of token attributes; files give one, detection by text may add control.
type attr uint8

const (
	attrNormal attr = 1 << iota
	attrUnknown
	attrControl
	attrUserDefined
	attrUnused
	attrByte
)

// tokenizer encodes text that holds no special tokens.
type tokenizer interface {
	// encode appends the ids of text, which is not empty. first says that text begins
	// the input or follows a special token, and does not continue the text before it.
	encode(dst []int32, text string, first bool) []int32
}

// Size is the number of tokens; ids run from 0 to Size-1.
func (v *Vocab) Size() int { return len(v.texts) }

// Model is the tokenizer model as the file names it: "gpt2" or "llama".
func (v *Vocab) Model() string { return v.model }

// Pre is the pre-tokenizer as the file names it, empty for a SentencePiece vocabulary.
func (v *Vocab) Pre() string { return v.pre }

// Valid reports whether id names a token of the vocabulary.
func (v *Vocab) Valid(id int32) bool { return id >= 0 && int(id) < len(v.texts) }

// Text is the entry of the vocabulary as the file spells it (byte-level BPE: a character a
// byte; SentencePiece: U+2581 for a space), empty for an id out of range.
func (v *Vocab) Text(id int32) string {
	if !v.Valid(id) {
		return ""
	}
	return v.texts[id]
}

// BOS is the token that begins a sequence.
func (v *Vocab) BOS() (int32, bool) { return v.bos, v.bos != none }

// EOS is the token that ends a sequence.
func (v *Vocab) EOS() (int32, bool) { return v.eos, v.eos != none }

// EOT is the token that ends a turn of a conversation.
func (v *Vocab) EOT() (int32, bool) { return v.eot, v.eot != none }

// EOM is the token that ends a message to a tool.
func (v *Vocab) EOM() (int32, bool) { return v.eom, v.eom != none }

// Unknown is the token for text that the vocabulary cannot express.
func (v *Vocab) Unknown() (int32, bool) { return v.unk, v.unk != none }

// Padding is the token that fills batches in training.
func (v *Vocab) Padding() (int32, bool) { return v.pad, v.pad != none }

// AddBOS reports whether AddSpecial puts BOS before a text.
func (v *Vocab) AddBOS() bool { return v.addBOS }

// AddEOS reports whether AddSpecial puts EOS after a text.
func (v *Vocab) AddEOS() bool { return v.addEOS }

// EOG lists the tokens that end a generation, ascending. The caller must not change it.
func (v *Vocab) EOG() []int32 { return v.eog }

// IsEOG reports whether id ends a generation.
func (v *Vocab) IsEOG(id int32) bool {
	for _, e := range v.eog {
		if e == id {
			return true
		}
	}
	return false
}

// IsControl reports whether id is a control token: one that a model reads and writes but
// that no text contains.
func (v *Vocab) IsControl(id int32) bool { return v.Valid(id) && v.attrs[id]&attrControl != 0 }

// Special returns the control, user-defined or unknown token whose text is exactly text.
func (v *Vocab) Special(text string) (int32, bool) {
	id, n := v.special.longest(text, true)
	return id, id != none && n == len(text)
}
