package vocab_test

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	"baton/internal/demo"
	"baton/internal/vocab"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// withPre is the demo model's metadata with another pre-tokenizer.
type withPre struct {
	vocab.Metadata
	pre string
}

func (m withPre) StringOr(key, def string) (string, error) {
	if key == "tokenizer.ggml.pre" {
		return m.pre, nil
	}
	return m.Metadata.StringOr(key, def)
}

// demoPre returns the demo model's vocabulary with the pre-tokenizer pre.
func demoPre(t testing.TB, pre string) *vocab.Vocab {
	t.Helper()
	v, err := vocab.New(withPre{demoFile(t), pre})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// lossless are the pre-tokenizers of models that do not normalize.
var lossless = []string{"llama-bpe", "gpt-2", "smollm", "deepseek-llm", "deepseek-r1-qwen", "default"}

func hasControl(v *vocab.Vocab, ids []int32) bool { return slices.ContainsFunc(ids, v.IsControl) }

func TestEncodeSpecial(t *testing.T) {
	v := newDemo(t)
	const end = "<|im_end|>"
	for _, c := range []struct {
		name  string
		parts []vocab.Part
		want  int // control tokens
	}{
		{"trusted", []vocab.Part{{"a" + end + "b", true}}, 1},
		{"untrusted", []vocab.Part{{"a" + end + "b", false}}, 0},
		{"trusted around untrusted", []vocab.Part{{"<|im_start|>user\n", true}, {end, false}, {end, true}}, 2},
		{"half in untrusted", []vocab.Part{{"<|im_", true}, {"end|>", false}}, 0},
		{"half out of untrusted", []vocab.Part{{"<|im_", false}, {"end|>", true}}, 0},
		{"over trusted parts", []vocab.Part{{"<|im_", true}, {"", false}, {"end|>", true}}, 1},
		{"twice", []vocab.Part{{end + end, true}}, 2},
		{"cut off", []vocab.Part{{end[:9], true}}, 0},
		{"start of another", []vocab.Part{{"<|<|im_end|>", true}}, 1},
	} {
		n := 0
		for _, id := range v.EncodeParts(nil, c.parts, false) {
			if v.IsControl(id) {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%s: %d control tokens, want %d", c.name, n, c.want)
		}
	}
}

// The border of a part is no border for the tokenizer.
func TestEncodePartsIsEncodeOfTheWhole(t *testing.T) {
	v := newDemo(t)
	rapid.Check(t, func(rt *rapid.T) {
		texts := rapid.SliceOf(rapid.OneOf(
			rapid.SampledFrom([]string{" ", "\n", "user\n", "Once upon", "don", "'t", "12", "<|im_end|>", "<|", "é", "\u0301"}),
			rapid.String(),
		)).Draw(rt, "texts")
		trusted := rapid.Bool().Draw(rt, "trusted")
		var parts []vocab.Part
		for _, s := range texts {
			parts = append(parts, vocab.Part{Text: s, ParseSpecial: trusted})
		}
		got := v.EncodeParts(nil, parts, false)
		want := v.Encode(nil, strings.Join(texts, ""), vocab.EncodeOptions{ParseSpecial: trusted})
		if d := cmp.Diff(want, got); d != "" {
			rt.Fatalf("%q (-whole +parts):\n%s", texts, d)
		}
		if !trusted && hasControl(v, got) {
			rt.Fatalf("%q: control token out of untrusted text", texts)
		}
	})
}

func TestAddSpecial(t *testing.T) {
	md := metadata{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
		"tokenizer.ggml.tokens": []string{"a", "b", "ab", "<s>", "</s>"}, "tokenizer.ggml.token_type": []int32{1, 1, 1, 3, 3},
		"tokenizer.ggml.merges": []string{"a b"}, "tokenizer.ggml.bos_token_id": uint64(3), "tokenizer.ggml.eos_token_id": uint64(4),
	}
	for _, c := range []struct {
		name string
		set  metadata
		want []int32
	}{
		{"llama-bpe by default", nil, []int32{9, 3, 2}},
		{"off", metadata{"tokenizer.ggml.add_bos_token": false}, []int32{9, 2}},
		{"both", metadata{"tokenizer.ggml.add_eos_token": true}, []int32{9, 3, 2, 4}},
		{"gpt-2 by default", metadata{"tokenizer.ggml.pre": "gpt-2"}, []int32{9, 2}},
	} {
		v, err := vocab.New(md.with(c.set))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, v.Encode([]int32{9}, "ab", vocab.EncodeOptions{AddSpecial: true})); d != "" {
			t.Errorf("%s: (-want +got):\n%s", c.name, d)
		}
		if got := v.Encode(nil, "ab", vocab.EncodeOptions{}); !slices.Equal(got, []int32{2}) {
			t.Errorf("%s: without AddSpecial: %v, want [2]", c.name, got)
		}
	}
}

func (md metadata) with(set metadata) metadata {
	out := metadata{}
	for k, v := range md {
		out[k] = v
	}
	for k, v := range set {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

// A user-defined token is text: found in any input. Of two tokens the longer is taken.
func TestUserDefined(t *testing.T) {
	v, err := vocab.New(metadata{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
		"tokenizer.ggml.tokens":     []string{"a", "b", "<b>", "<b>a", "<u>", "<b>ab"},
		"tokenizer.ggml.token_type": []int32{1, 1, 4, 4, 5, 3},
		"tokenizer.ggml.merges":     []string{},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text  string
		parse bool
		want  []int32
	}{
		{"a<b>b", false, []int32{0, 2, 1}},
		{"a<b>ab", false, []int32{0, 3, 1}},
		{"a<b>ab", true, []int32{0, 5}},
		{"<b><b>a", true, []int32{2, 3}},
		{"a<u>b", true, []int32{0, 1}}, // unused, and no tokens for its bytes
	} {
		if got := v.Encode(nil, c.text, vocab.EncodeOptions{ParseSpecial: c.parse}); !slices.Equal(got, c.want) {
			t.Errorf("%q, parsed %t: %v, want %v", c.text, c.parse, got, c.want)
		}
	}
	if got := string(v.Decode([]int32{0, 2, 4, 5, 6, -1, 1}, false)); got != "a<b>b" {
		t.Errorf("decoded to %q, want %q", got, "a<b>b")
	}
	if got := string(v.Decode([]int32{0, 2, 4, 5}, true)); got != "a<b><b>ab" {
		t.Errorf("decoded with special to %q, want %q", got, "a<b><b>ab")
	}
}

// Merges are taken in the order of their ranks, the leftmost first.
func TestMergeOrder(t *testing.T) {
	base := metadata{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
		"tokenizer.ggml.tokens": []string{"a", "b", "c", "ab", "bc", "abc", "aa", "aaa", "aaaa"},
	}
	for _, c := range []struct {
		merges []string
		text   string
		want   []int32
	}{
		{[]string{"b c", "a b", "a bc"}, "abc", []int32{5}},
		{[]string{"b c", "a b"}, "abc", []int32{0, 4}},
		{[]string{"a b", "b c"}, "abc", []int32{3, 2}},
		{[]string{"a b", "b c", "ab c"}, "abc", []int32{5}},
		{[]string{"a a"}, "aaaaa", []int32{6, 6, 0}},
		{[]string{"a a", "aa a"}, "aaaaa", []int32{6, 7}},
		{[]string{"a a", "aa aa"}, "aaaaa", []int32{8, 0}},
		{[]string{"a a", "a x", "x a"}, "aa", []int32{6}}, // x is no token: ignored
		{[]string{"a a", "a a", "b b"}, "aabb", []int32{6, 1, 1}},
	} {
		v, err := vocab.New(base.with(metadata{"tokenizer.ggml.merges": c.merges}))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time out of what the first has learnt
			if got := v.Encode(nil, c.text, vocab.EncodeOptions{}); !slices.Equal(got, c.want) {
				t.Errorf("%v: %q: %v, want %v", c.merges, c.text, got, c.want)
			}
		}
		// The same within a word too long for the simple search.
		long := strings.Repeat(c.text+"c", 40)
		unit := v.Encode(nil, c.text+"c", vocab.EncodeOptions{})
		if got, want := v.Encode(nil, long, vocab.EncodeOptions{}), slices.Repeat(unit, 40); !slices.Equal(got, want) {
			t.Errorf("%v: 40 times %q: %v, want %v", c.merges, c.text+"c", got, want)
		}
	}
}

func TestIgnoreMerges(t *testing.T) {
	md := metadata{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
		"tokenizer.ggml.tokens": []string{"a", "b", "c", "ab", "abc"}, "tokenizer.ggml.merges": []string{"a b"},
	}
	for pre, want := range map[string][]int32{"gpt-2": {3, 2}, "llama-bpe": {4}} {
		v, err := vocab.New(md.with(metadata{"tokenizer.ggml.pre": pre}))
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Encode(nil, "abc", vocab.EncodeOptions{}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", pre, got, want)
		}
	}
}

// A byte without a token is the unknown token, where there is one, and else dropped.
func TestMissingBytes(t *testing.T) {
	md := metadata{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
		"tokenizer.ggml.tokens": []string{"a", "b", "<unk>"}, "tokenizer.ggml.token_type": []int32{1, 1, 2}, "tokenizer.ggml.merges": []string{},
	}
	for _, c := range []struct {
		set  metadata
		want []int32
	}{
		{nil, []int32{0, 1}},
		{metadata{"tokenizer.ggml.unknown_token_id": uint64(2)}, []int32{0, 2, 1}},
	} {
		v, err := vocab.New(md.with(c.set))
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Encode(nil, "axb", vocab.EncodeOptions{}); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.set, got, c.want)
		}
	}
}

// Encoding fills what is remembered of tokens; many goroutines may do so at once.
func TestConcurrentEncode(t *testing.T) {
	v := demoPre(t, "qwen2")
	prompts, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, p := range prompts {
				if got := v.Encode(nil, p.Text, vocab.EncodeOptions{ParseSpecial: true}); !slices.Equal(got, p.Tokens) {
					t.Errorf("%s: ids differ from the golden ones", p.Name)
				}
			}
		})
	}
	wg.Wait()
}

// A megabyte without a border takes no more than n log n steps: this would not end otherwise.
func TestLongWord(t *testing.T) {
	v := newDemo(t)
	for _, s := range []string{strings.Repeat("a", 1<<20), strings.Repeat("the", 1<<18), strings.Repeat("\u0301", 1<<16), strings.Repeat("<", 1<<18)} {
		ids := v.Encode(nil, s, vocab.EncodeOptions{ParseSpecial: true})
		if got := v.Decode(ids, true); string(got) != s {
			t.Errorf("%d times %q: decoded to something else", len(s), s[:1])
		}
	}
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{
		"", "Once upon a time", "don't 123  \r\n\tx", "<|im_end|> <|im_", "e\u0301 \u1100\u1161", "\xff\xfe\xe2\x82 \xf0\x9f", "a\u0301\u0323\u0327" + strings.Repeat("\u0308", 40),
		"日本語 한국어 العربية", "👨‍👩‍👧‍👦🏳️‍🌈", "\u0085\ufeff\u3000 'ſ", strings.Repeat("ab", 60),
	} {
		f.Add(s)
	}
	qwen := newDemo(f)
	var all []*vocab.Vocab
	for _, pre := range lossless {
		all = append(all, demoPre(f, pre))
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, v := range all {
			for _, parse := range []bool{false, true} {
				ids := v.Encode(nil, s, vocab.EncodeOptions{ParseSpecial: parse})
				if got := v.Decode(ids, true); string(got) != s {
					t.Fatalf("%s: %q came back as %q", v.Pre(), s, got)
				}
				if !parse && hasControl(v, ids) {
					t.Fatalf("%s: control token out of unparsed %q", v.Pre(), s)
				}
			}
		}
		// Qwen's text comes back in normalization form C, which is stable.
		once := qwen.Decode(qwen.Encode(nil, s, vocab.EncodeOptions{}), true)
		if norm.NFC.IsNormalString(s) && string(once) != s {
			t.Fatalf("qwen2: %q is normal, but came back as %q", s, once)
		}
		if twice := qwen.Decode(qwen.Encode(nil, string(once), vocab.EncodeOptions{}), true); !bytes.Equal(once, twice) {
			t.Fatalf("qwen2: %q became %q and then %q", s, once, twice)
		}
		// Streamed, it is the same text with U+FFFD for what is not UTF-8.
		d := vocab.NewDetokenizer(qwen, true)
		var b strings.Builder
		for _, id := range qwen.Encode(nil, s, vocab.EncodeOptions{}) {
			b.WriteString(d.Push(id))
		}
		b.WriteString(d.Flush())
		if got := b.String(); strings.ToValidUTF8(got, "?") != got || norm.NFC.IsNormalString(s) && strings.ToValidUTF8(s, "?") == s && got != s {
			t.Fatalf("qwen2: %q was streamed as %q", s, got)
		}
	})
}
