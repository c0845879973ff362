package demo

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// The file's digest, as the program that exported the model printed it.
const digest = "a589ad6dfed919b9f60e62877f832f15b9fb085e5455ff9f5b7df3b395752220"

func TestGGUF(t *testing.T) {
	b := GGUF()
	if len(b) < 24 || string(b[:4]) != "GGUF" || binary.LittleEndian.Uint32(b[4:]) != 3 {
		t.Fatalf("the embedded file of %d bytes is no GGUF version 3", len(b))
	}
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != digest {
		t.Errorf("the embedded model has digest %s, want %s", got, digest)
	}
	if cap(b) != len(b) {
		t.Errorf("append to the result would write behind it: cap %d, len %d", cap(b), len(b))
	}
}

func TestGolden(t *testing.T) {
	ps, err := Golden()
	if err != nil {
		t.Fatal(err)
	}
	// Token counts as llama.cpp has them (model/llama-check-q8_0.json).
	want := map[string]int{
		"story-1": 18, "story-2": 22, "recall-300": 285,
		"recall-1500": 1502, "chat-story": 20, "chat-hello": 31,
	}
	if len(ps) != len(want) {
		t.Fatalf("%d prompts, want %d", len(ps), len(want))
	}
	for _, p := range ps {
		if len(p.Tokens) != want[p.Name] {
			t.Errorf("%s: %d tokens, want %d", p.Name, len(p.Tokens), want[p.Name])
		}
		if len(p.Greedy) != 32 || len(p.Margin) != 32 || len(p.Logits) != 64 {
			t.Errorf("%s: %d greedy tokens, %d margins, %d logits; want 32, 32, 64", p.Name, len(p.Greedy), len(p.Margin), len(p.Logits))
			continue
		}
		if p.Greedy[0] != p.Argmax {
			t.Errorf("%s: first greedy token %d is not the argmax %d", p.Name, p.Greedy[0], p.Argmax)
		}
		if p.End != nil && (*p.End < 0 || *p.End >= 32 || p.Greedy[*p.End] < 4093) {
			t.Errorf("%s: no end token at %d", p.Name, *p.End)
		}
		if p.LogSumExp < p.Max {
			t.Errorf("%s: log-sum-exp %g below the maximum %g", p.Name, p.LogSumExp, p.Max)
		}
	}
}
