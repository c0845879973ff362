package vocab_test

import (
	"strings"
	"testing"

	"baton/internal/vocab"
)

// byteVocab has the 256 bytes as tokens 0 to 255, in the SentencePiece spelling, and "é€" as
// token 256.
func byteVocab(t testing.TB) *vocab.Vocab {
	t.Helper()
	const hex = "0123456789ABCDEF"
	var tokens []string
	var types []int32
	for b := range 256 {
		tokens = append(tokens, "<0x"+string(hex[b>>4])+string(hex[b&15])+">")
		types = append(types, 6)
	}
	tokens, types = append(tokens, "é€"), append(types, 1)
	v, err := vocab.New(metadata{
		"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
		"tokenizer.ggml.scores": make([]float32, len(tokens)), "tokenizer.ggml.add_space_prefix": false, "tokenizer.ggml.add_bos_token": false,
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The cases are those of the Unicode Standard, chapter 3.9, tables 3-8 to 3-11.
func TestDetokenizerSubstitutes(t *testing.T) {
	const r = "\ufffd"
	v := byteVocab(t)
	for _, c := range []struct{ in, want string }{
		{"\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", "a" + r + r + r + "b" + r + "c" + r + r + "d"},
		{"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", strings.Repeat(r, 8) + "A"},
		{"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", strings.Repeat(r, 8) + "A"},
		{"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", strings.Repeat(r, 5) + "A" + r + r + "B"},
		{"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", strings.Repeat(r, 4) + "A"},
		{"\xf0\x9f\x98\x80\xe2\x82\xac", "😀€"},
		{"\xf0\x9f\x98", r}, // the stream ends
		{"\xe2", r},
		{"", ""},
	} {
		d := vocab.NewDetokenizer(v, false)
		var got strings.Builder
		for i := range len(c.in) {
			got.WriteString(d.Push(int32(c.in[i])))
		}
		got.WriteString(d.Flush())
		if got.String() != c.want {
			t.Errorf("% x: %+q, want %+q", c.in, got.String(), c.want)
		}
		if again := d.Flush(); again != "" {
			t.Errorf("% x: a second Flush gave %q", c.in, again)
		}
	}
}

func TestDetokenizerHoldsBack(t *testing.T) {
	v := byteVocab(t)
	d := vocab.NewDetokenizer(v, false)
	for _, step := range []struct {
		id   int32
		want string
	}{
		{'a', "a"}, {0xf0, ""}, {0x9f, ""}, {0x98, ""}, {0x80, "😀"},
		{0xe2, ""}, {'b', "\ufffdb"},
		{0xc3, ""}, {256, "\ufffdé€"}, {0xc3, ""}, {0xa9, "é"},
		{-1, ""}, {1 << 30, ""},
	} {
		if got := d.Push(step.id); got != step.want {
			t.Errorf("token %d: %+q, want %+q", step.id, got, step.want)
		}
	}
}

func TestPieceIsACopy(t *testing.T) {
	v := newDemo(t)
	v.Piece(100, false)[0] = '!'
	if got := string(v.Piece(100, false)); got != string(v.Decode([]int32{100}, false)) || got[0] == '!' {
		t.Errorf("writing to a piece changed the vocabulary: %q", got)
	}
	if got := string(v.Piece(4095, false)); got != "" {
		t.Errorf("the control token %s is visible without special: %q", v.Text(4095), got)
	}
	if got := string(v.Piece(4095, true)); got != "<|im_end|>" {
		t.Errorf("the control token is %q, want <|im_end|>", got)
	}
}
