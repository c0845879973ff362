package peer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"baton/internal/demo"
)

// maxNMSE bounds the normalized mean square error of Baton's logits against llama.cpp's.
// Both round: llama.cpp keeps K and V in f16 and, beside quantized weights, quantizes
// the activations too.
const maxNMSE = 2e-3

const promptTokens = 64

// Every row of a model's matrices has a multiple of 256 elements, so that each type can
// hold it.
var shape = []string{
	"-layers", "3", "-embd", "256", "-ff", "512", "-heads", "4", "-kv-heads", "2",
	"-vocab", "600", "-rope-base", "10000",
}

// tensorTypes are the types of a file's matrices: how mkgguf writes them, and what
// llama.cpp then makes of them.
var tensorTypes = []struct {
	name, write, quantize string
	pure                  bool
}{
	{name: "F32", write: "f32"},
	{name: "F16", write: "f16"},
	{name: "BF16", write: "bf16"},
	{name: "Q8_0", write: "f32", quantize: "Q8_0", pure: true},
	{name: "Q4_0", write: "f32", quantize: "Q4_0", pure: true},
	{name: "Q4_K", write: "f32", quantize: "Q4_K_M", pure: true},
	{name: "Q6_K", write: "f32", quantize: "Q6_K", pure: true},
	{name: "Q4_K_M mix", write: "f32", quantize: "Q4_K_M"},
}

// variants are the other things that a model file of these architectures can ask for.
var variants = []struct {
	arch, name string
	args       []string
}{
	{"llama", "rope linear x4", []string{"-rope", "linear", "-rope-factor", "4"}},
	{"llama", "rope yarn x4", []string{"-rope", "yarn", "-rope-factor", "4", "-rope-orig-ctx", "32"}},
	{"llama", "rope llama3 x8", []string{"-rope", "llama3", "-rope-factor", "8", "-rope-orig-ctx", "64"}},
	{"qwen2", "rope yarn x4", []string{"-rope", "yarn", "-rope-factor", "4", "-rope-orig-ctx", "32"}},
	{"qwen3", "rope yarn x2", []string{"-rope", "yarn", "-rope-factor", "2", "-rope-orig-ctx", "48"}},
	{"llama", "tied output", []string{"-tied"}},
	{"qwen2", "tied output", []string{"-tied"}},
	{"qwen3", "tied output", []string{"-tied"}},
	{"llama", "head size 128", []string{"-head-dim", "128"}},
	{"qwen3", "head size 128", []string{"-head-dim", "128"}},
	{"llama", "a KV head a head", []string{"-kv-heads", "4"}},
	{"qwen3", "one KV head", []string{"-kv-heads", "1"}},
}

// table collects one line a comparison and logs them together at the end.
type table struct {
	b strings.Builder
	w *tabwriter.Writer
}

func newTable(t *testing.T) *table {
	tb := &table{}
	tb.w = tabwriter.NewWriter(&tb.b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tb.w, "arch\ttype\tNMSE\tworst row\tsame best token\tBaton to float32\tllama.cpp to float32\t")
	t.Cleanup(func() {
		_ = tb.w.Flush() // into memory
		t.Logf("\n%s", tb.b.String())
	})
	return tb
}

// compare checks Baton's logits of a prompt against llama.cpp's. The last columns are the
// yardstick: how far either is from the same file computed in float32 throughout. That
// is left out for long prompts, where it takes long.
func (tb *table) compare(t *testing.T, r rig, arch, typ, path string, tokens []int32) {
	t.Helper()
	want := r.logits(t, path, tokens)
	s := openSequence(t, path)
	got := s.feed(t, tokens)
	if len(got) != len(want) || len(got[0]) != len(want[0]) {
		t.Fatalf("logits of %d x %d, llama.cpp has %d x %d", len(got), len(got[0]), len(want), len(want[0]))
	}
	worst, same := 0.0, 0
	for i := range want {
		worst = max(worst, nmse(got[i:i+1], want[i:i+1]))
		if argmax(got[i]) == argmax(want[i]) {
			same++
		}
	}
	ours, theirs := "-", "-"
	if len(tokens) <= promptTokens {
		exact := s.float32(t, tokens)
		ours, theirs = fmt.Sprintf("%.2e", nmse(got, exact)), fmt.Sprintf("%.2e", nmse(want, exact))
	}
	verdict := ""
	if e := nmse(got, want); !(e < maxNMSE) { // also when it is no number
		verdict = "ABOVE THE BOUND"
		t.Errorf("%s %s: NMSE %.3g against llama.cpp, want below %g", arch, typ, e, maxNMSE)
	}
	fmt.Fprintf(tb.w, "%s\t%s\t%.2e\t%.2e\t%d of %d\t%s\t%s\t%s\n", arch, typ, nmse(got, want), worst, same, len(want), ours, theirs, verdict)
}

// nmse is the normalized mean square error: the sum of squares of got-want over that of
// want.
func nmse(got, want [][]float32) float64 {
	var diff, ref float64
	for i := range want {
		for j, w := range want[i] {
			d := float64(got[i][j]) - float64(w)
			diff += d * d
			ref += float64(w) * float64(w)
		}
	}
	return diff / ref
}

func argmax(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}

// randomTokens are ids below vocab, the same for the same seed.
func randomTokens(n, vocab int, seed uint64) []int32 {
	rng := rand.New(rand.NewPCG(seed, 0))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(int32(vocab))
	}
	return ids
}

func TestPeerLogits(t *testing.T) {
	r := needRig(t)
	tb := newTable(t)
	dir := t.TempDir()
	for i, arch := range []string{"llama", "qwen2", "qwen3"} {
		base := map[string]string{}
		for _, typ := range tensorTypes {
			if base[typ.write] == "" {
				base[typ.write] = r.synth(t, dir, arch+"-"+typ.write, slices.Concat(shape, []string{"-arch", arch, "-type", typ.write})...)
			}
			path := base[typ.write]
			if typ.quantize != "" {
				path = r.quantize(t, path, typ.quantize, typ.pure)
			}
			tb.compare(t, r, arch, typ.name, path, randomTokens(promptTokens, 600, uint64(i)))
		}
	}
}

func TestPeerLogitsVariants(t *testing.T) {
	r := needRig(t)
	tb := newTable(t)
	dir := t.TempDir()
	for i, v := range variants {
		path := r.synth(t, dir, fmt.Sprint(i), slices.Concat(shape, []string{"-arch", v.arch, "-type", "f32"}, v.args)...)
		tb.compare(t, r, v.arch, v.name, path, randomTokens(promptTokens, 600, uint64(100+i)))
	}
}

// The variants have to matter: a comparison in which a scaling changes nothing could
// not notice that Baton ignores it.
func TestPeerVariantsDiffer(t *testing.T) {
	r := needRig(t)
	dir := t.TempDir()
	tokens := randomTokens(promptTokens, 600, 7)
	plain := map[string][][]float32{}
	for i, v := range variants {
		if !strings.HasPrefix(v.name, "rope") {
			continue
		}
		args := slices.Concat(shape, []string{"-arch", v.arch, "-type", "f32"})
		if plain[v.arch] == nil {
			plain[v.arch] = r.logits(t, r.synth(t, dir, v.arch, args...), tokens)
		}
		scaled := r.logits(t, r.synth(t, dir, fmt.Sprint(i), slices.Concat(args, v.args)...), tokens)
		if e := nmse(scaled, plain[v.arch]); e < 10*maxNMSE {
			t.Errorf("%s %s changes llama.cpp's logits by an NMSE of only %.2g", v.arch, v.name, e)
		}
	}
}

// The demo model: Baton, llama.cpp and the golden answers, each against the others.
func TestPeerDemoModel(t *testing.T) {
	r := needRig(t)
	prompts, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/demo.gguf"
	if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	tb := newTable(t)
	for _, p := range prompts {
		tb.compare(t, r, "qwen3", "demo "+p.Name, path, p.Tokens)
		ours, theirs := batonGreedy(t, path, p.Tokens, len(p.Greedy)), r.greedy(t, path, p.Tokens, len(p.Greedy))
		checkGreedy(t, p, "Baton", ours)
		checkGreedy(t, p, "llama.cpp", theirs)
	}
}

// checkGreedy compares with the reference up to a token that it chose with so small a
// margin that rounding may decide: behind it the texts go different ways.
func checkGreedy(t *testing.T, p demo.Prompt, who string, got []int32) {
	t.Helper()
	const narrow = 0.1
	for i, want := range p.Greedy {
		if got[i] == want {
			continue
		}
		if math.Abs(p.Margin[i]) >= narrow {
			t.Errorf("%s: %s's token %d is %d, want %d (margin %g)", p.Name, who, i, got[i], want, p.Margin[i])
		} else {
			t.Logf("%s: %s leaves the reference at token %d, where the margin is %g", p.Name, who, i, p.Margin[i])
		}
		return
	}
}
