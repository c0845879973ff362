package statefile_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"baton/internal/demo"
	"baton/internal/gguf"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/model"
	"baton/internal/statefile"
)

// rig runs a model over sequences of a pool of its own.
type rig struct {
	m           *model.Model
	runner      *model.Runner
	blocks      *kv.Pool
	fingerprint string
}

func newRig(t testing.TB, f *gguf.File) *rig {
	t.Helper()
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim})
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := kv.NewPool(layout, kv.Options{MaxBlocks: 32})
	if err != nil {
		t.Fatal(err)
	}
	fingerprint, err := m.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	threads := kernel.NewPool(2)
	t.Cleanup(func() {
		threads.Close()
		if err := blocks.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{m: m, runner: model.NewRunner(m, threads, 512), blocks: blocks, fingerprint: fingerprint}
}

func demoRig(t testing.TB) *rig {
	t.Helper()
	f, err := gguf.Parse(demo.GGUF(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, f)
}

func (r *rig) sequence(t testing.TB) *kv.Sequence {
	s := r.blocks.NewSequence()
	t.Cleanup(s.Free)
	return s
}

// feed processes tokens and returns the logits behind the last one.
func (r *rig) feed(t testing.TB, s *kv.Sequence, tokens ...int32) []float32 {
	t.Helper()
	var logits []float32
	for len(tokens) > 0 {
		piece := tokens[:min(len(tokens), r.runner.Max())]
		tokens = tokens[len(piece):]
		pos := s.Len()
		if err := s.Append(piece...); err != nil {
			t.Fatal(err)
		}
		var err error
		logits, err = r.runner.Forward([]model.Chunk{{Tokens: piece, Pos0: pos, Runs: s.Runs(0, s.Len(), nil), Logits: len(tokens) == 0}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.Clone(logits)
}

// greedy goes on for n tokens.
func (r *rig) greedy(t testing.TB, s *kv.Sequence, logits []float32, n int) (out []int32) {
	t.Helper()
	for range n {
		next := argmax(logits)
		out = append(out, next)
		logits = r.feed(t, s, next)
	}
	return out
}

func (r *rig) save(t testing.TB, st *statefile.Store, name string, s *kv.Sequence) {
	t.Helper()
	_, err := st.Save(t.Context(), name, r.fingerprint, statefile.State{Layout: r.blocks.Layout(), Tokens: s.Tokens(), Runs: s.Runs(0, s.Len(), nil)})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) restore(t testing.TB, st *statefile.Store, name string) (*kv.Sequence, statefile.Info, error) {
	t.Helper()
	s := r.sequence(t)
	fit := statefile.Fit{Layout: r.blocks.Layout(), Vocab: r.m.Vocab, MaxTokens: r.m.CtxTrain, Model: r.fingerprint}
	info, err := st.Restore(t.Context(), name, fit, func(tokens []int32) ([]kv.Run, error) {
		if err := s.Append(tokens...); err != nil {
			return nil, err
		}
		return s.Runs(0, s.Len(), nil), nil
	})
	return s, info, err
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

func open(t testing.TB, dir string) *statefile.Store {
	t.Helper()
	st, err := statefile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// prompt is the golden prompt nearest to 250 tokens.
func prompt(t testing.TB) []int32 {
	t.Helper()
	g, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	best := slices.MinFunc(g, func(a, b demo.Prompt) int { return abs(len(a.Tokens)-250) - abs(len(b.Tokens)-250) })
	return best.Tokens
}

func abs(n int) int { return max(n, -n) }

// What follows a restored prompt is, to the last bit, what follows the prompt itself,
// and a file that is refused changes nothing for others.
func TestRestoredPromptGoesOn(t *testing.T) {
	r := demoRig(t)
	tokens := prompt(t)
	head, suffix := tokens[:len(tokens)-5], tokens[len(tokens)-5:]
	cold := r.sequence(t)
	want := r.feed(t, cold, tokens...)
	wantText := r.greedy(t, cold, want, 16)

	dir := t.TempDir()
	st := open(t, dir)
	first := r.sequence(t)
	r.feed(t, first, head...)
	r.save(t, st, "prompt", first)
	first.Free()

	restored, info, err := r.restore(t, st, "prompt")
	if err != nil {
		t.Fatal(err)
	}
	if !info.Verified || restored.Len() != len(head) {
		t.Fatalf("info %+v, %d tokens", info, restored.Len())
	}
	got := r.feed(t, restored, suffix...)
	if !slices.Equal(got, want) {
		t.Fatal("the logits differ")
	}

	data, err := os.ReadFile(filepath.Join(dir, "prompt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string][]byte{
		"cut": data[:len(data)/2], "empty": nil, "flipped": slices.Concat(data[:len(data)-100], []byte{^data[len(data)-100]}, data[len(data)-99:]),
	} {
		if err := os.WriteFile(filepath.Join(dir, "prompt"), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.restore(t, st, "prompt"); err == nil {
			t.Errorf("%s: restored", name)
		}
	}
	if text := r.greedy(t, restored, got, 16); !slices.Equal(text, wantText) {
		t.Errorf("the text differs: %d, want %d", text, wantText)
	}
}

// peer runs llama.cpp where BATON_PEER names the cache of `make peer`.
type peer struct{ cache string }

func newPeer(t *testing.T) peer {
	t.Helper()
	cache := os.Getenv("BATON_PEER")
	if cache == "" {
		t.Skip("BATON_PEER is not set: run `make peer`")
	}
	return peer{cache}
}

func (p peer) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(p.cache, "llama", "llamapeer"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("llamapeer %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

var probeLine = regexp.MustCompile(`: next-token argmax (\d+) logit (-?[\d.]+)`)

// probed is what llamapeer found as the likeliest token after the state and once more
// the prompt's first token, and its logit.
func probed(t *testing.T, out string) (int32, float64) {
	t.Helper()
	m := probeLine.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no probe in %q", out)
	}
	id, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	logit, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int32(id), logit
}

// A state goes from llama.cpp to Baton and back, and either goes on from the other's as
// from its own, but for the rounding in which their kernels differ.
func TestPeerState(t *testing.T) {
	p := newPeer(t)
	t.Run("demo", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "demo.gguf")
		if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
			t.Fatal(err)
		}
		p.exchange(t, demoRig(t), path, prompt(t))
	})
	for _, name := range []string{"q06-Q8_0", "q06-Q4_K_M"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(p.cache, "models", name+".gguf")
			text, err := os.ReadFile(filepath.Join(p.cache, "models", "t251.txt"))
			if err != nil {
				t.Skipf("no model of the 0.6B shape: run `make peer` (%v)", err)
			}
			var tokens []int32
			for _, word := range bytes.Fields(text) {
				id, err := strconv.Atoi(string(word))
				if err != nil {
					t.Fatal(err)
				}
				tokens = append(tokens, int32(id))
			}
			f, err := gguf.Open(path)
			if err != nil {
				t.Skipf("no model of the 0.6B shape: run `make peer` (%v)", err)
			}
			t.Cleanup(func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
			p.exchange(t, newRig(t, f), path, tokens)
		})
	}
}

// maxNMSE bounds the squared difference of logits, relative to their size.
const maxNMSE = 5e-3

func (p peer) exchange(t *testing.T, r *rig, path string, tokens []int32) {
	dir := t.TempDir()
	st := open(t, dir)
	list := filepath.Join(dir, "~tokens")
	if err := os.WriteFile(list, []byte(strings.Trim(fmt.Sprint(tokens), "[]")), 0o600); err != nil {
		t.Fatal(err)
	}
	own := r.sequence(t)
	r.feed(t, own, tokens...)
	r.save(t, st, "baton", own)
	local := r.feed(t, own, tokens[0]) // as the peer's probe does
	margin := gap(local)
	// How far off an answer is that has not seen the cells: the bound must tell.
	alone := r.sequence(t)
	if e := nmse(r.feed(t, alone, tokens[0]), local); e < 10*maxNMSE {
		t.Fatalf("without the prompt the NMSE is %.3g: the bound of %g shows nothing", e, maxNMSE)
	}

	for _, fa := range []string{"1", "0"} { // with flash attention, and with V transposed
		name := "llama-fa" + fa
		out := p.run(t, "state-save", path, list, filepath.Join(dir, name), "--reps", "1", "--fa", fa)
		wantID, wantLogit := probed(t, out)
		s, info, err := r.restore(t, st, name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Verified || info.Warning == "" || !slices.Equal(s.Tokens(), tokens) {
			t.Errorf("%s: info %+v, %d tokens", name, info, s.Len())
		}
		logits := r.feed(t, s, tokens[0])
		s.Free()
		if e := nmse(logits, local); e > maxNMSE {
			t.Errorf("%s: logits after llama.cpp's state have an NMSE of %.3g against our own, want at most %g", name, e, maxNMSE)
		} else {
			t.Logf("%s: NMSE %.3g, argmax %d with %.5f, llama.cpp %d with %.5f", name, e, argmax(logits), logits[argmax(logits)], wantID, wantLogit)
		}
		if id := argmax(logits); id != wantID && margin > 0.05 {
			t.Errorf("%s: token %d follows, with llama.cpp %d; the margin is %.3g", name, id, wantID, margin)
		}
	}

	ours, loaded := probed(t, p.run(t, "state-load", path, list, filepath.Join(dir, "baton"), "--reps", "1", "--fa", "1"))
	best := argmax(local)
	if ours != best && margin > 0.05 {
		t.Errorf("after our state llama.cpp goes on with %d, we with %d; the margin is %.3g", ours, best, margin)
	}
	if d := math.Abs(loaded - float64(local[ours])); d > 0.05*spread(local) {
		t.Errorf("after our state llama.cpp gives token %d a logit of %.5f, we %.5f", ours, loaded, local[ours])
	}
	t.Logf("llama.cpp after our state: token %d with %.5f, ours %.5f", ours, loaded, local[ours])
}

// gap is how far the best logit is above the second, in standard deviations.
func gap(x []float32) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	return float64(s[len(s)-1]-s[len(s)-2]) / spread(x)
}

// spread is the standard deviation.
func spread(x []float32) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(x))
	return math.Sqrt(squares/n - sum/n*sum/n)
}

func nmse(got, want []float32) float64 {
	var difference, norm float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		difference += d * d
		norm += float64(want[i]) * float64(want[i])
	}
	return difference / norm
}
