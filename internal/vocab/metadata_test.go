package vocab_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"baton/internal/vocab"

	"github.com/google/go-cmp/cmp"
)

// small is byte-level BPE metadata that New accepts.
var small = metadata{
	"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
	"tokenizer.ggml.tokens":     []string{"a", "b", "ab", "<|im_end|>"},
	"tokenizer.ggml.token_type": []int32{1, 1, 1, 3},
	"tokenizer.ggml.merges":     []string{"a b"},
}

func TestNewRefuses(t *testing.T) {
	nan := float32(math.NaN())
	scores := []float32{0, 0, 0, 0}
	for _, c := range []struct {
		name string
		set  metadata
		want string // in the error
	}{
		{"no model", metadata{"tokenizer.ggml.model": nil}, "tokenizer.ggml.model is missing"},
		{"model of another type", metadata{"tokenizer.ggml.model": true}, "tokenizer.ggml.model is bool"},
		{"unknown model", metadata{"tokenizer.ggml.model": "bert"}, `"bert" is not supported: expected gpt2`},
		{"unknown pre-tokenizer", metadata{"tokenizer.ggml.pre": "tekken"}, `"tekken" is not supported: expected one of deepseek-llm, deepseek-r1-qwen, default, gpt-2,`},
		{"no tokens", metadata{"tokenizer.ggml.tokens": nil}, "tokenizer.ggml.tokens is missing or empty"},
		{"zero tokens", metadata{"tokenizer.ggml.tokens": []string{}}, "tokenizer.ggml.tokens is missing or empty"},
		{"tokens of another type", metadata{"tokenizer.ggml.tokens": []int32{1}}, "tokenizer.ggml.tokens is []int32"},
		{"types short", metadata{"tokenizer.ggml.token_type": []int32{1}}, "token_type has 1 entries, tokenizer.ggml.tokens has 4"},
		{"types long", metadata{"tokenizer.ggml.token_type": []int32{1, 1, 1, 1, 1}}, "token_type has 5 entries"},
		{"type 0", metadata{"tokenizer.ggml.token_type": []int32{1, 0, 1, 3}}, `token 1 ("b") has type 0: expected 1 to 6`},
		{"type -1", metadata{"tokenizer.ggml.token_type": []int32{-1, 1, 1, 3}}, `token 0 ("a") has type -1`},
		{"type 7", metadata{"tokenizer.ggml.token_type": []int32{1, 1, 7, 3}}, `token 2 ("ab") has type 7`},
		{"a byte token that is none", metadata{"tokenizer.ggml.token_type": []int32{1, 6, 1, 3}}, `token 1 ("b") has type byte`},
		{"a token twice", metadata{"tokenizer.ggml.tokens": []string{"a", "b", "a", "c"}}, `tokens 0 and 2 are both "a"`},
		{"two spellings of a token", metadata{"tokenizer.ggml.tokens": []string{"Ġ", " ", "a", "b"}}, `tokens 0 and 1 are both " "`},
		{"no merges", metadata{"tokenizer.ggml.merges": nil}, "tokenizer.ggml.merges is missing"},
		{"an empty merge", metadata{"tokenizer.ggml.merges": []string{"a b", ""}}, `merge 1 is ""`},
		{"half a merge", metadata{"tokenizer.ggml.merges": []string{"a "}}, `merge 0 is "a "`},
		{"the other half", metadata{"tokenizer.ggml.merges": []string{" b"}}, `merge 0 is " b"`},
		{"no space in a merge", metadata{"tokenizer.ggml.merges": []string{"ab"}}, `merge 0 is "ab": expected two tokens`},
		{"bos of another type", metadata{"tokenizer.ggml.bos_token_id": "a"}, "bos_token_id is string"},
		{"bos wanted, not there", metadata{"tokenizer.ggml.add_bos_token": true}, "add_bos_token is true, but tokenizer.ggml.bos_token_id names no token"},
		{"eos wanted, out of range", metadata{"tokenizer.ggml.add_eos_token": true, "tokenizer.ggml.eos_token_id": uint64(4)}, "eos_token_id names no token"},
		{"no scores", metadata{"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.scores is missing"},
		{"scores short", metadata{"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": scores[:3]}, "scores has 3 entries"},
		{"a score that is no number", metadata{"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": []float32{0, nan, 0, 0}}, `token 1 ("b") has a score that is not a number`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := vocab.New(small.with(c.set))
			if err == nil || !strings.HasPrefix(err.Error(), "vocab: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that begins with %q and has %q", err, "vocab: ", c.want)
			}
		})
	}
	if _, err := vocab.New(small); err != nil {
		t.Errorf("the metadata that the cases change is refused: %v", err)
	}
}

// What a file says that means nothing is ignored, as in llama.cpp.
func TestNewIgnores(t *testing.T) {
	v, err := vocab.New(small.with(metadata{
		"tokenizer.ggml.tokens":           []string{"a", "b", "ab", ""},
		"tokenizer.ggml.bos_token_id":     uint64(math.MaxUint32),
		"tokenizer.ggml.padding_token_id": uint64(4),
		"tokenizer.ggml.eos_token_id":     uint64(3),
		"tokenizer.ggml.merges":           []string{"a b", "ab q", "q q", "b a"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := v.BOS(); ok {
		t.Error("a BOS out of range is there")
	}
	if _, ok := v.Padding(); ok {
		t.Error("a padding token out of range is there")
	}
	if got := v.Text(3); got != "[EMPTY_3]" {
		t.Errorf("the empty token is %q, want [EMPTY_3]", got)
	}
	if got := v.Encode(nil, "abab", vocab.EncodeOptions{}); !slices.Equal(got, []int32{2, 2}) {
		t.Errorf("abab: %v, want [2 2]", got)
	}
	if v.Valid(4) || v.Valid(-1) || !v.Valid(3) || v.Text(4) != "" || v.IsControl(-1) || v.IsEOG(-1) {
		t.Error("ids out of range are taken for tokens")
	}
}

// The tokens that end a generation, by id and by text.
func TestEndOfGeneration(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens []string
		types  []int32
		set    metadata
		eog    []int32
		eot    int32 // -1: none
	}{
		{name: "none", tokens: []string{"a"}, types: []int32{1}, eot: -1},
		{name: "eos alone", tokens: []string{"a", "<end>"}, types: []int32{1, 3}, set: metadata{"tokenizer.ggml.eos_token_id": uint64(1)}, eog: []int32{1}, eot: -1},
		{
			name: "qwen", tokens: []string{"a", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<think>"},
			types: []int32{1, 3, 3, 3, 3, 3, 3, 4}, set: metadata{"tokenizer.ggml.eos_token_id": uint64(3)}, eog: []int32{1, 3, 4, 5, 6}, eot: 3,
		},
		{
			name: "llama 3", tokens: []string{"a", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>", "<|start_header_id|>"},
			types: []int32{1, 3, 3, 3, 3}, set: metadata{"tokenizer.ggml.eos_token_id": uint64(3)}, eog: []int32{1, 2, 3}, eot: 3,
		},
		{
			name: "the file names the end of a turn", tokens: []string{"a", "<|im_end|>", "<turn>"}, types: []int32{1, 3, 3},
			set: metadata{"tokenizer.ggml.eot_token_id": uint64(2)}, eog: []int32{1, 2}, eot: 2,
		},
		{name: "of a wrong type", tokens: []string{"a", "<|im_end|>", "<end_of_turn>"}, types: []int32{1, 1, 4}, eog: []int32{1, 2}, eot: 1},
		{name: "text that merges make", tokens: []string{"<", "/", "s", ">", "</", "</s", "</s>"}, types: []int32{1, 1, 1, 1, 1, 1, 1}, set: metadata{"tokenizer.ggml.merges": []string{"< /", "</ s", "</s >"}}, eot: -1},
		{name: "the end of a channel", tokens: []string{"a", "<|end|>", "<|return|>", "<|call|>"}, types: []int32{1, 3, 3, 3}, eog: []int32{2, 3}, eot: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := vocab.New(small.with(metadata{"tokenizer.ggml.tokens": c.tokens, "tokenizer.ggml.token_type": c.types}).with(c.set))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.eog, v.EOG()); d != "" {
				t.Errorf("end of generation (-want +got):\n%s", d)
			}
			eot, ok := v.EOT()
			if ok != (c.eot >= 0) || ok && eot != c.eot {
				t.Errorf("end of turn %d, %t, want %d", eot, ok, c.eot)
			}
			for id := range int32(v.Size()) {
				if v.IsEOG(id) != slices.Contains(c.eog, id) {
					t.Errorf("IsEOG(%d) is %t", id, v.IsEOG(id))
				}
				if v.IsEOG(id) && c.set["tokenizer.ggml.eos_token_id"] != uint64(id) && !v.IsControl(id) {
					t.Errorf("token %d (%s) ends a generation and is no control token", id, v.Text(id))
				}
			}
		})
	}
}

func FuzzNew(f *testing.F) {
	f.Add("gpt2", "gpt-2", "a\nb\nab\n<s>", []byte{1, 1, 1, 3}, "a b", "ab<s>", int64(3), 4)
	f.Add("llama", "", "▁\na\n<0x41>\n▁a\n<unk>", []byte{1, 1, 6, 1, 2}, "", "a A", int64(0), 5)
	f.Add("gpt2", "llama-bpe", "\n\xff\nĠ", []byte{4, 5, 2}, "x", "\xff", int64(-1), 0)
	f.Add("gpt2", "default", "<|end|>\n<|call|>\n<|return|>\n</s>\n<|tool_response>", []byte{1, 1, 1, 1, 1}, "< /", "<|end|>", int64(1)<<40, 2)
	f.Fuzz(func(t *testing.T, model, pre, tokens string, types []byte, merges, text string, id int64, scores int) {
		md := metadata{
			"tokenizer.ggml.model": model, "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": strings.Split(tokens, "\n"),
			"tokenizer.ggml.merges": strings.Split(merges, "\n"), "tokenizer.ggml.eos_token_id": uint64(id), "tokenizer.ggml.bos_token_id": uint64(id) / 2,
		}
		if len(types) > 0 {
			var list []int32
			for _, b := range types {
				list = append(list, int32(int8(b)))
			}
			md["tokenizer.ggml.token_type"] = list
		}
		if scores >= 0 && scores < 100 {
			var list []float32
			for i := range scores {
				list = append(list, float32(id%7)*float32(i))
			}
			md["tokenizer.ggml.scores"] = list
		}
		v, err := vocab.New(md)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "vocab: ") {
				t.Fatalf("error %q does not say where it comes from", err)
			}
			return
		}
		for _, o := range []vocab.EncodeOptions{{}, {AddSpecial: true, ParseSpecial: true}} {
			ids := v.Encode(nil, text, o)
			for _, id := range ids {
				if !v.Valid(id) {
					t.Fatalf("%q became %v: no such token", text, ids)
				}
			}
			d := vocab.NewDetokenizer(v, true)
			for _, id := range append(ids, -1, int32(v.Size())) {
				d.Push(id)
				v.Piece(id, true)
			}
			d.Flush()
			v.Decode(ids, false)
		}
	})
}
