package peer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rig is the llama.cpp rig that peers/llama/setup.sh made.
type rig struct{ llamapeer, mkgguf string }

// needRig finds the rig in the cache folder that BATON_PEER names, or skips the test.
func needRig(t *testing.T) rig {
	t.Helper()
	cache := os.Getenv("BATON_PEER")
	if cache == "" {
		t.Skip("BATON_PEER is not set: run `make peer`")
	}
	r := rig{filepath.Join(cache, "llama", "llamapeer"), filepath.Join(cache, "llama", "mkgguf")}
	for _, p := range []string{r.llamapeer, r.mkgguf} {
		if _, err := os.Stat(p); err != nil {
			t.Skipf("the llama.cpp rig is not set up: %v", err)
		}
	}
	return r
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

// synth writes a model of random weights and returns its path.
func (r rig) synth(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(dir, name+".gguf")
	command(t, r.mkgguf, append(args, "-o", path)...)
	return path
}

// quantize writes path's model with its matrices in another type: all of them if pure,
// else in the mix of types that llama.cpp gives the name to.
func (r rig) quantize(t *testing.T, path, typ string, pure bool) string {
	t.Helper()
	out := strings.TrimSuffix(path, ".gguf") + "-" + typ + ".gguf"
	args := []string{"quantize", path, out, typ, "--threads", "1"}
	if pure {
		out = strings.TrimSuffix(out, ".gguf") + "-pure.gguf"
		args[2] = out
		args = append(args, "--pure")
	}
	command(t, r.llamapeer, args...)
	return out
}

// One thread: llama.cpp's threads spin while they wait for each other, which costs more
// than it brings where other tests use the cores.
var oneThread = []string{"--threads", "1"}

// logits runs tokens through llama.cpp as one prompt: one row of logits a token.
func (r rig) logits(t *testing.T, model string, tokens []int32, options ...string) [][]float32 {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "logits.f32")
	command(t, r.llamapeer, slices.Concat([]string{"logits", model, tokenFile(t, dir, tokens), out}, oneThread, options)...)
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) == 0 || len(raw)%(4*len(tokens)) != 0 {
		t.Fatalf("llamapeer wrote %d bytes of logits for %d tokens", len(raw), len(tokens))
	}
	cols := len(raw) / 4 / len(tokens)
	rows := make([][]float32, len(tokens))
	for i := range rows {
		rows[i] = make([]float32, cols)
		for j := range rows[i] {
			rows[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*(i*cols+j):]))
		}
	}
	return rows
}

// greedy lets llama.cpp continue tokens by n, past end tokens too.
func (r rig) greedy(t *testing.T, model string, tokens []int32, n int) []int32 {
	t.Helper()
	out := command(t, r.llamapeer, append([]string{"greedy", model, tokenFile(t, t.TempDir(), tokens), strconv.Itoa(n)}, oneThread...)...)
	line, _, _ := strings.Cut(out, "\n")
	var ids []int32
	for _, f := range strings.Fields(line) {
		id, err := strconv.ParseInt(f, 10, 32)
		if err != nil {
			t.Fatalf("llamapeer greedy printed %q", line)
		}
		ids = append(ids, int32(id))
	}
	if len(ids) != n {
		t.Fatalf("llamapeer greedy made %d tokens, want %d", len(ids), n)
	}
	return ids
}

func tokenFile(t *testing.T, dir string, tokens []int32) string {
	t.Helper()
	path := filepath.Join(dir, "tokens.txt")
	if err := os.WriteFile(path, []byte(strings.Trim(fmt.Sprint(tokens), "[]")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
