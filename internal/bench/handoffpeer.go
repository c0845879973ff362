package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"baton/internal/demo"
)

// llamaState has peers/llama's llamapeer save and restore the state of a sequence.
type llamaState struct {
	path, model, dir string
	threads, reps    int
}

// restore returns the milliseconds that loading the file took, again and again.
func (l *llamaState) restore(ctx context.Context, tokens []int32, file string) ([]float64, error) {
	return l.run(ctx, "state-load", "load", tokens, file)
}

// save has llama.cpp process the tokens, and returns the milliseconds that saving took.
func (l *llamaState) save(ctx context.Context, tokens []int32) ([]float64, error) {
	return l.run(ctx, "state-save", "save", tokens, filepath.Join(l.dir, "llama.bin"))
}

func (l *llamaState) run(ctx context.Context, command, word string, tokens []int32, file string) ([]float64, error) {
	model := l.model
	if model == "" {
		model = filepath.Join(l.dir, "demo.gguf")
		if err := os.WriteFile(model, demo.GGUF(), 0o600); err != nil {
			return nil, err
		}
	}
	var list bytes.Buffer
	for _, t := range tokens {
		fmt.Fprintln(&list, t)
	}
	ids := filepath.Join(l.dir, "tokens.txt")
	if err := os.WriteFile(ids, list.Bytes(), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, l.path, command, model, ids, file, strconv.Itoa(l.threads), "--fa", "1", "--reps", strconv.Itoa(l.reps))
	var stderr tail
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("bench: %s %s: %w%s", l.path, command, err, stderr.text())
	}
	times := llamaTimes(string(out), word)
	if len(times) != l.reps {
		return nil, fmt.Errorf("bench: %s %s: %d figures, expected %d: %s", l.path, command, len(times), l.reps, strings.TrimSpace(string(out)))
	}
	return times, nil
}

var llamaTime = regexp.MustCompile(`(?m)^(\w+) \d+: .* in ([0-9.]+) ms`)

// llamaTimes is the milliseconds in the lines that begin with word, as in
// "load 0: 9830416 bytes, 3189 tokens in 7.40 ms (1.33 GB/s), last position 3188".
func llamaTimes(out, word string) (ms []float64) {
	for _, m := range llamaTime.FindAllStringSubmatch(out, -1) {
		if v, err := strconv.ParseFloat(m[2], 64); err == nil && m[1] == word {
			ms = append(ms, v)
		}
	}
	return ms
}
