package vocab_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"baton/internal/gguf"
	"baton/internal/vocab"
)

// TestPeerLlamaCpp compares ids with llama.cpp's on the same vocabularies and strings. It
// runs where BATON_PEER names the cache of `make peer`.
func TestPeerLlamaCpp(t *testing.T) {
	cache := os.Getenv("BATON_PEER")
	if cache == "" {
		t.Skip("BATON_PEER is not set: run `make peer`")
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed: it makes the strings")
	}
	llamapeer := filepath.Join(cache, "llama", "llamapeer")
	if _, err := os.Stat(llamapeer); err != nil {
		t.Skip("the llama.cpp rig is not set up")
	}
	models := peerModels
	// The other pre-tokenizers over a vocabulary that is not theirs: it shows where they cut
	// all the same.
	for _, pre := range []string{"gpt-2", "smollm", "deepseek-llm", "deepseek-r1-qwen", "default"} {
		models = append(models, peerModel{"qwen3", pre, false, "<|video_pad|>"})
	}
	for _, m := range models {
		t.Run(m.name+"/"+m.pre, func(t *testing.T) {
			md := m.metadata(t, cache)
			v, err := vocab.New(md)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "vocab.gguf")
			writeGGUF(t, md, path)

			// One run for all strings: a control token stands between them, which cuts
			// text for both.
			sep, ok := v.Special(m.separator)
			if !ok {
				t.Fatalf("the vocabulary has no %s", m.separator)
			}
			var texts, sent []string
			for _, l := range runReference(t, filepath.Join(cache, "npm"), m.name) {
				if strings.Contains(l.Text, m.separator) {
					continue
				}
				texts = append(texts, l.Text)
				if v.Pre() == "qwen2" && l.NFC != "" {
					sent = append(sent, l.NFC) // llama.cpp does not normalize
				} else {
					sent = append(sent, l.Text)
				}
			}
			cmd := exec.Command(llamapeer, "tokenize", path, "--no-add-special")
			cmd.Stdin = strings.NewReader(strings.Join(sent, m.separator))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("llamapeer: %v\n%s", err, stderr.String())
			}
			var want [][]int32
			var ids []int32
			for _, f := range strings.Fields(string(out)) {
				id, err := strconv.ParseInt(f, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				if int32(id) == sep {
					want, ids = append(want, ids), nil
					continue
				}
				ids = append(ids, int32(id))
			}
			if want = append(want, ids); len(want) != len(texts) {
				t.Fatalf("llama.cpp gave %d strings, expected %d", len(want), len(texts))
			}

			equal, bad := 0, 0
			explained := map[string]int{}
			for i, text := range texts {
				got := v.Encode(nil, text, vocab.EncodeOptions{ParseSpecial: true})
				if slices.Equal(got, want[i]) {
					equal++
					continue
				}
				if why := llamaCppDiffers(v, text); why != "" {
					explained[why]++
					continue
				}
				if bad++; bad <= 10 {
					t.Errorf("%s\n got %v %s\nwant %v %s", short(text), got, spell(v, got), want[i], spell(v, want[i]))
				}
			}
			t.Logf("%d strings: %d equal, %d differ without a reason", len(texts), equal, bad)
			for why, n := range explained {
				t.Logf("%d differ because %s", n, why)
			}
		})
	}
}

// llamaCppDiffers names why llama.cpp's ids of text may differ from the reference
// tokenizer's, which Baton follows.
func llamaCppDiffers(v *vocab.Vocab, text string) string {
	if v.Model() == "gpt2" && strings.Contains(text, "</s>") {
		return `llama.cpp takes the ordinary token "</s>" for a special one`
	}
	if v.Pre() == "deepseek-llm" && strings.ContainsFunc(text, func(r rune) bool { return r > 0x7f && unicode.IsSpace(r) }) {
		return "llama.cpp replaces white space beyond ASCII before it matches character ranges that contain it"
	}
	return ""
}

// writeGGUF writes a file with md and no tensors.
func writeGGUF(t *testing.T, md metadata, path string) {
	t.Helper()
	b := gguf.NewBuilder()
	b.SetString("general.architecture", "llama")
	for k, v := range md {
		switch v := v.(type) {
		case string:
			b.SetString(k, v)
		case bool:
			b.SetBool(k, v)
		case uint64:
			b.SetUint32(k, uint32(v))
		case []string:
			b.SetStrings(k, v)
		case []int32:
			b.SetInts(k, v)
		case []float32:
			b.SetFloats(k, v)
		default:
			t.Fatalf("metadata %s has type %T", k, v)
		}
	}
	if err := b.WriteFile(path); err != nil {
		t.Fatal(err)
	}
}
