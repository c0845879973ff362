package vocab_test

import (
	"slices"
	"strings"
	"testing"

	"baton/internal/vocab"
)

// A small SentencePiece vocabulary; a higher score is joined first.
var spmMetadata = func() metadata {
	entries := []struct {
		text  string
		kind  int32
		score float32
	}{
		{"<unk>", 2, 0}, {"<s>", 3, 0}, {"</s>", 3, 0}, // 0 to 2
		{"▁", 1, -20}, {"h", 1, -21}, {"e", 1, -22}, {"l", 1, -23}, {"o", 1, -24}, // 3 to 7
		{"he", 1, -2}, {"ll", 1, -1}, {"hell", 1, -4}, {"▁hell", 1, -5}, {"▁hello", 1, -6}, // 8 to 12
		{"▁▁", 1, -3}, {"lo", 1, -7}, {"<h>", 4, 0}, {"é", 1, -25}, // 13 to 16
		{"<0xC3>", 6, 0}, {"<0xA8>", 6, 0}, {"<0x0A>", 6, 0}, {"<0xFF>", 6, 0}, // 17 to 20
	}
	md := metadata{"tokenizer.ggml.model": "llama"}
	var tokens []string
	var types []int32
	var scores []float32
	for _, e := range entries {
		tokens, types, scores = append(tokens, e.text), append(types, e.kind), append(scores, e.score)
	}
	md["tokenizer.ggml.tokens"], md["tokenizer.ggml.token_type"], md["tokenizer.ggml.scores"] = tokens, types, scores
	return md
}()

func TestSentencePiece(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   metadata
		text  string
		o     vocab.EncodeOptions
		want  []int32
		plain string // decoded without special tokens; empty: as the text
	}{
		{name: "empty", text: "", want: nil},
		{name: "word", text: "hello", want: []int32{12}},
		{name: "bos", text: "hello", o: vocab.EncodeOptions{AddSpecial: true}, want: []int32{1, 12}},
		{name: "bos of nothing", text: "", o: vocab.EncodeOptions{AddSpecial: true}, want: []int32{1}},
		// ll (-1) before he and lo, then hell (-4), and with the space (-5).
		{name: "parts", text: "hell lo", want: []int32{11, 3, 14}},
		{name: "spaces", text: " hello  hello", want: []int32{13, 10, 7, 13, 10, 7}},
		{name: "byte fallback", text: "è\n", want: []int32{3, 17, 18, 19}},
		{name: "a byte that is no character", text: "h\xffé", want: []int32{3, 4, 20, 16}},
		{name: "no byte token", text: "hz", want: []int32{3, 4, 0}, plain: "h"},
		{name: "byte token spelled out", text: "<0x0A>", want: []int32{3, 0, 0, 0, 0, 0, 0}, plain: ""},
		{name: "special parsed", text: "</s>hello", o: vocab.EncodeOptions{ParseSpecial: true}, want: []int32{2, 12}, plain: "hello"},
		{name: "special between", text: "hello</s>hello", o: vocab.EncodeOptions{ParseSpecial: true}, want: []int32{12, 2, 12}, plain: "hello hello"},
		{name: "user-defined", text: "he<h>ll", want: []int32{3, 8, 15, 3, 9}, plain: "he<h> ll"},
		{name: "no space prefix", set: metadata{"tokenizer.ggml.add_space_prefix": false}, text: "hello hello", want: []int32{10, 7, 12}},
		{name: "no space prefix, a space", set: metadata{"tokenizer.ggml.add_space_prefix": false}, text: " hello", want: []int32{12}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := vocab.New(spmMetadata.with(c.set))
			if err != nil {
				t.Fatal(err)
			}
			got := v.Encode(nil, c.text, c.o)
			if !slices.Equal(got, c.want) {
				t.Errorf("%q: %v, want %v", c.text, got, c.want)
			}
			plain := c.plain
			if plain == "" && !slices.Contains(c.want, 0) {
				plain = c.text
			}
			if text := string(v.Decode(c.want, false)); text != plain {
				t.Errorf("%q decoded to %q, want %q", c.text, text, plain)
			}
		})
	}
}

// The space before a text is taken off only at its start, and never from a continuation.
func TestSentencePieceSpace(t *testing.T) {
	v, err := vocab.New(spmMetadata)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ids     []int32
		special bool
		want    string
	}{
		{[]int32{12, 12}, false, "hello hello"},
		{[]int32{1, 12}, false, "hello"}, // what nobody sees is not the start
		{[]int32{1, 12}, true, "<s> hello"},
		{[]int32{13, 4}, false, " h"}, // one space is the prefix, the other the text's
		{[]int32{3}, false, ""},
	} {
		if got := string(v.Decode(c.ids, c.special)); got != c.want {
			t.Errorf("%v, special %t: %q, want %q", c.ids, c.special, got, c.want)
		}
	}
	d := vocab.NewDetokenizer(v, false)
	if got := d.Push(12) + d.Push(12); got != " hello hello" {
		t.Errorf("streamed %q, want %q", got, " hello hello")
	}
}

// Cutting at words, possible where no token has a space within, changes nothing.
func TestSentencePieceWords(t *testing.T) {
	whole := spmMetadata.with(nil)
	whole["tokenizer.ggml.tokens"] = append(slices.Clone(whole["tokenizer.ggml.tokens"].([]string)), "▁o", "o▁o")
	whole["tokenizer.ggml.token_type"] = append(slices.Clone(whole["tokenizer.ggml.token_type"].([]int32)), 1, 1)
	whole["tokenizer.ggml.scores"] = append(slices.Clone(whole["tokenizer.ggml.scores"].([]float32)), -8, -9)
	byWord, err := vocab.New(spmMetadata)
	if err != nil {
		t.Fatal(err)
	}
	atOnce, err := vocab.New(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"hello hello  hell lo he", strings.Repeat("hello lo ", 50), "  h  ", "\xff \xff", "é è"} {
		a, b := byWord.Encode(nil, s, vocab.EncodeOptions{}), atOnce.Encode(nil, s, vocab.EncodeOptions{})
		if !slices.Equal(a, b) {
			t.Errorf("%q: by word %v, at once %v", s, a, b)
		}
	}
	for text, want := range map[string][]int32{
		"ho o": {3, 4, 22},    // ▁o (-8), then o▁o (-9)
		"lo o": {3, 14, 21},   // lo (-7) before both
		"h oo": {3, 4, 21, 7}, // the second o has no space before it
	} {
		if got := atOnce.Encode(nil, text, vocab.EncodeOptions{}); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
