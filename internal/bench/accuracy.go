package bench

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"baton/internal/demo"
	"baton/internal/kernel"
	"baton/internal/load"
	"baton/internal/model"
	"baton/internal/modelfile"
)

// Tale is the text that accuracy is measured on unless another is given: a tale of our
// own, in the manner of those that the built-in model knows.
//
//go:embed text/tale.txt
var Tale string

// AccuracyOptions say what MeasureAccuracy measures.
type AccuracyOptions struct {
	Model   string // GGUF file; empty: the built-in model
	Text    string // empty: Tale
	Tokens  int    // at most so many of the text's; 0: all
	Threads int
	// Peer is the command line that writes the logits of the tokens in one file to
	// another, as float32, row by row; nil: there is none.
	Peer     func(model, tokens, logits string) Program
	PeerName string
}

// AccuracyResult compares logits, and how well they predict the text, with those of the
// float path: weights decoded to float32, and no rounding anywhere (model.Reference).
type AccuracyResult struct {
	Model    string `json:"model"`
	Type     string `json:"type"`
	Kernels  string `json:"kernels"`
	PeerName string `json:"peer_name,omitempty"`
	Tokens   int    `json:"tokens"`
	// Normalized mean square error of all logits: sum (x - float)² / sum float².
	NMSE      float64 `json:"nmse"`
	PeerNMSE  float64 `json:"peer_nmse,omitempty"`
	NMSERatio float64 `json:"nmse_ratio,omitempty"` // NMSE / PeerNMSE
	// Perplexity of the text: exp of the mean of -ln p(token | those before).
	FloatPerplexity float64 `json:"float_perplexity"`
	Perplexity      float64 `json:"perplexity"`
	PeerPerplexity  float64 `json:"peer_perplexity,omitempty"`
}

// MeasureAccuracy runs a text through the engine, through the float path, which takes
// about a second for each 10^9 multiplications, and through the peer.
func MeasureAccuracy(ctx context.Context, o AccuracyOptions) (r AccuracyResult, err error) {
	w, err := NewWorker(WorkerOptions{Path: o.Model, Threads: o.Threads, Ctx: 1 << 16, Seqs: 1})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	m := w.bundle.Model
	tokens := load.Tokenizer{Vocab: w.bundle.Vocab}.Encode(orText(o.Text), true, false)
	if o.Tokens > 0 {
		tokens = tokens[:min(o.Tokens, len(tokens))]
	}
	if len(tokens) < 2 {
		return r, fmt.Errorf("bench: accuracy needs a text of two tokens at least, found %d", len(tokens))
	}
	r = AccuracyResult{Model: w.bundle.Name, Type: modelfile.Quantization(w.bundle.File), Kernels: kernel.Active(), PeerName: o.PeerName, Tokens: len(tokens)}
	if o.Model != "" {
		r.Model = filepath.Base(o.Model)
	}
	exact, err := m.ReferenceAll(tokens)
	if err != nil {
		return r, err
	}
	ours, err := w.logits(tokens)
	if err != nil {
		return r, err
	}
	r.FloatPerplexity = perplexity(exact, m.Vocab, tokens)
	r.NMSE, r.Perplexity = nmse(ours, exact), perplexity(ours, m.Vocab, tokens)
	if o.Peer == nil {
		return r, nil
	}
	theirs, err := peerLogits(ctx, o, tokens)
	if err != nil {
		return r, err
	}
	if len(theirs) != len(exact) {
		return r, fmt.Errorf("bench: %s gave %d logits, expected %d tokens x %d", o.PeerName, len(theirs), len(tokens), m.Vocab)
	}
	r.PeerNMSE, r.PeerPerplexity = nmse(theirs, exact), perplexity(theirs, m.Vocab, tokens)
	r.NMSERatio = r.NMSE / r.PeerNMSE
	return r, nil
}

func orText(text string) string {
	if text == "" {
		return Tale
	}
	return text
}

// logits runs tokens through the engine as one prompt: a row of logits each.
func (w *Worker) logits(tokens []int32) (rows []float32, err error) {
	s := w.blocks.NewSequence()
	defer s.Free()
	// Small steps: the engine keeps the rows of a step until the next.
	const step = 64
	for len(tokens) > 0 {
		piece := tokens[:min(step, len(tokens))]
		tokens = tokens[len(piece):]
		pos := s.Len()
		if err := s.Append(piece...); err != nil {
			return nil, err
		}
		out, err := w.runner.Forward([]model.Chunk{{Tokens: piece, Pos0: pos, Runs: s.Runs(0, s.Len(), nil), All: true}})
		if err != nil {
			return nil, err
		}
		rows = append(rows, out...)
	}
	return rows, nil
}

// peerLogits lets the peer's program write its logits to a file.
func peerLogits(ctx context.Context, o AccuracyOptions, tokens []int32) (logits []float32, err error) {
	dir, err := os.MkdirTemp("", "baton-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ids, out, path := filepath.Join(dir, "tokens.txt"), filepath.Join(dir, "logits.f32"), o.Model
	if path == "" {
		path = filepath.Join(dir, "model.gguf")
		if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
			return nil, err
		}
	}
	var list strings.Builder
	for _, t := range tokens {
		list.WriteString(strconv.Itoa(int(t)) + "\n")
	}
	if err := os.WriteFile(ids, []byte(list.String()), 0o600); err != nil {
		return nil, err
	}
	p := o.Peer(path, ids, out)
	if said, err := exec.CommandContext(ctx, p.Path, p.Args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("bench: %s: %w: %s", o.PeerName, err, strings.TrimSpace(string(said)))
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	logits = make([]float32, len(raw)/4)
	for i := range logits {
		logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return logits, nil
}

func nmse(got, want []float32) float64 {
	var diff, norm float64
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		diff += d * d
		norm += float64(w) * float64(w)
	}
	return diff / norm
}

// perplexity of tokens 1 to n-1, each under the row of logits of the one before it.
func perplexity(logits []float32, vocab int, tokens []int32) float64 {
	sum := 0.0
	for i, next := range tokens[1:] {
		row := logits[i*vocab : (i+1)*vocab]
		top := float64(row[0])
		for _, v := range row {
			top = max(top, float64(v))
		}
		z := 0.0
		for _, v := range row {
			z += math.Exp(float64(v) - top)
		}
		sum += math.Log(z) + top - float64(row[next])
	}
	return math.Exp(sum / float64(len(tokens)-1))
}
