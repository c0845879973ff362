// Package demo carries the built-in demo model, so that the binary answers with no
// file at hand, and the golden answers that its tests compare with.
//
// How the model was made, what it can do and where its training text comes from is
// told beside it, in model/README.md and model/SOURCES.md. The package knows nothing
// of the GGUF format or of running a model.
package demo

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// Name is what the model is called where no other name is given.
const Name = "baton-demo"

//go:embed model/demo-q8_0.gguf
var gguf []byte

//go:embed model/golden.json
var goldenJSON []byte

// GGUF returns the model as a GGUF file (14,089,312 bytes: qwen3, 13.1 M parameters,
// Q8_0, context 2,560). Every call returns the same memory, which is mapped from the
// binary and must not be written to. Its start is not page-aligned: a reader that needs
// that copies it.
func GGUF() []byte { return gguf[:len(gguf):len(gguf)] }

// Prompt is one prompt with what an independent reference makes of it: PyTorch in
// float32 on the dequantized weights, greedy (model/golden.py).
type Prompt struct {
	Name   string  `json:"name"`
	Text   string  `json:"prompt"` // special tokens in it are parsed, no BOS is added
	Tokens []int32 `json:"tokens"`

	// Greedy holds 32 tokens after the prompt, also past an end token.
	Greedy     []int32 `json:"greedy_tokens"`
	GreedyText string  `json:"greedy_text"`
	// Margin[i] is the gap between the best two logits where Greedy[i] was chosen: a
	// small one excuses a different choice.
	Margin []float64 `json:"greedy_margin"`
	// End is the index of the first end token in Greedy; nil: there is none.
	End *int `json:"first_end_token_at"`
	// Answer is the text up to End.
	Answer string `json:"answer_text"`

	// Logits of ids 0 to 63 at the prompt's last position, then what the whole row of
	// 4,096 has as its best id, largest value and log of the sum of exponentials.
	Logits    []float64 `json:"logits_first_64"`
	Argmax    int32     `json:"argmax"`
	Max       float64   `json:"max"`
	LogSumExp float64   `json:"logsumexp"`
}

// Golden returns the golden answers, for tests: a program that does not call it does
// not carry them.
func Golden() ([]Prompt, error) {
	var g struct {
		Prompts []Prompt `json:"prompts"`
	}
	if err := json.Unmarshal(goldenJSON, &g); err != nil {
		return nil, fmt.Errorf("demo: golden.json: %w", err)
	}
	return g.Prompts, nil
}
