package api

import (
	"strings"
	"unicode/utf8"
)

// TokenizeRequest is the body of POST /tokenize.
type TokenizeRequest struct {
	Content      string
	AddSpecial   bool
	ParseSpecial bool
	WithPieces   bool
}

// ParseTokenize reads the body of POST /tokenize.
func ParseTokenize(body []byte) (*TokenizeRequest, *Error) {
	o, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	r := &TokenizeRequest{ParseSpecial: true}
	if !o.string("content", &r.Content) && o.err == nil {
		o.fail(badRequest("content", CodeMissing, "content: found nothing, expected a string"))
	}
	o.bool("add_special", &r.AddSpecial)
	o.bool("parse_special", &r.ParseSpecial)
	o.bool("with_pieces", &r.WithPieces)
	if o.err != nil {
		return nil, o.err
	}
	return r, nil
}

// TokenizeResponse answers POST /tokenize: ids, or TokenPieces when pieces were asked for.
type TokenizeResponse struct {
	Tokens any `json:"tokens"`
}

// TokenPiece is a token and the text it stands for: a string, or an array of bytes where
// these are no valid UTF-8 on their own.
type TokenPiece struct {
	ID    int32 `json:"id"`
	Piece any   `json:"piece"`
}

// Response tokenizes and answers.
func (r *TokenizeRequest) Response(t Tokenizer) TokenizeResponse {
	ids := t.Encode(r.Content, r.AddSpecial, r.ParseSpecial)
	if !r.WithPieces {
		if ids == nil {
			ids = []int32{}
		}
		return TokenizeResponse{ids}
	}
	out := make([]TokenPiece, len(ids))
	for i, id := range ids {
		out[i] = TokenPiece{ID: id, Piece: pieceValue(t.Piece(id))}
	}
	return TokenizeResponse{out}
}

func pieceValue(b []byte) any {
	if utf8.Valid(b) {
		return string(b)
	}
	return byteValues(b)
}

// byteValues makes encoding/json write b as numbers, not as base64.
func byteValues(b []byte) []int {
	out := make([]int, len(b))
	for i, c := range b {
		out[i] = int(c)
	}
	return out
}

// ParseDetokenize reads the body of POST /detokenize: token ids, each in the vocabulary.
func ParseDetokenize(body []byte, vocab int) ([]int32, *Error) {
	o, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	m, ok := o.get("tokens")
	if !ok {
		return nil, badRequest("tokens", CodeMissing, "tokens: found nothing, expected an array of token ids")
	}
	if kindOf(m.raw) != kindArray {
		return nil, badType("tokens", m, "an array of token ids")
	}
	ids := []int32{}
	for i, it := range elements(m.raw, m.at) {
		v, err := asID(it, "tokens", i, vocab)
		if err != nil {
			return nil, err
		}
		ids = append(ids, v)
	}
	return ids, nil
}

// DetokenizeResponse answers POST /detokenize. Bytes that are no UTF-8 become U+FFFD.
type DetokenizeResponse struct {
	Content string `json:"content"`
}

// Detokenize answers POST /detokenize.
func Detokenize(ids []int32, t Tokenizer) DetokenizeResponse {
	return DetokenizeResponse{strings.ToValidUTF8(string(t.Decode(ids)), "\uFFFD")}
}

// TemplateResponse answers POST /apply-template.
type TemplateResponse struct {
	Prompt string `json:"prompt"`
}
