package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"baton/internal/bench"
)

// The text after a prompt is the same to the byte whatever way its cells took: processed by
// the decoder itself, handed over in each trust mode, or through a file.
func TestSameTextByEveryRoute(t *testing.T) {
	checkRoutes(t, "", demoPrompts(t))
}

// demoPrompts are prompts of about 250, 900 and 1,900 tokens.
func demoPrompts(t *testing.T) [][]int32 {
	short, long := goldenPrompts(t)[2].Tokens, goldenPrompts(t)[3].Tokens
	if len(short) < 250 || len(long) < 1500 {
		t.Fatalf("prompts of %d and %d tokens", len(short), len(long))
	}
	return [][]int32{short[:250], long[:900], slices.Concat(long[:len(long)-100], short, long)[:1900]}
}

// The same of a model of the 0.6B shape.
func TestSameTextOfLargerModel(t *testing.T) {
	if os.Getenv("BATON_SLOW") == "" {
		t.Skip("takes minutes: set BATON_SLOW=1")
	}
	path := rigModel(t, "q06-Q4_K_M.gguf")
	var prompts [][]int32
	for _, n := range []int{251, 3189} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "t"+strconv.Itoa(n)+".txt"))
		if err != nil {
			t.Skipf("needs the prompts that peers/llama/bench.sh makes: %v", err)
		}
		var prompt []int32
		for _, f := range strings.Fields(string(text)) {
			id, err := strconv.ParseInt(f, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			prompt = append(prompt, int32(id))
		}
		if len(prompt) != n {
			t.Fatalf("%d tokens in the prompt of %d", len(prompt), n)
		}
		prompts = append(prompts, prompt)
	}
	checkRoutes(t, path, prompts)
}

func checkRoutes(t *testing.T, model string, prompts [][]int32) {
	args := []string{"-np", "1", "-c", strconv.Itoa(len(prompts[len(prompts)-1]) + 64)}
	var providerArgs []string
	if model != "" {
		providerArgs = []string{"-m", model}
		args = append(args, providerArgs...)
	}
	const tokens = 24
	same := func(t *testing.T, route string, o, want object) {
		t.Helper()
		// The tokens too: those of random weights may be no text at all.
		if got, want := ids(o["tokens"]), ids(want["tokens"]); len(got) != tokens || !slices.Equal(got, want) {
			t.Errorf("%s: tokens %v, want %v", route, got, want)
		}
		if got := o.str("content"); got != want.str("content") {
			t.Errorf("%s: text %q, want %q", route, got, want.str("content"))
		}
		if o.num("timings", "prompt_n") != 1 {
			t.Errorf("%s: the decoder processed the prompt: %v", route, o["timings"])
		}
	}
	local := startLoneDecoder(t, "leased", append(args, "--slot-save-path", t.TempDir())...)
	want := make([]object, len(prompts))
	for i, prompt := range prompts {
		if want[i] = local.answer(t, prompt, tokens); want[i].num("timings", "prompt_n") < 200 {
			t.Fatalf("it is not processed: %v", want[i]["timings"])
		}
		local.answer(t, prompt, 1) // so that the slot ends where the prompt does
		name := map[string]any{"filename": "prompt.bin"}
		local.mustPost(t, "/slots/0?action=save", name)
		local.mustPost(t, "/slots/0?action=erase", nil)
		restored := local.mustPost(t, "/slots/0?action=restore", name)
		if restored.num("n_restored") < len(prompt)-1 {
			t.Errorf("restored: %v", restored)
		}
		same(t, "file", local.answer(t, prompt, tokens), want[i])
		local.mustPost(t, "/slots/0?action=erase", nil)
	}
	local.stop(t)
	for _, trust := range []string{"leased", "sealed", "attached"} {
		p := startLoneDecoder(t, trust, args...)
		p.startProvider(t, providerArgs...)
		for i, prompt := range prompts {
			p.handOver(t, prompt)
			same(t, trust, p.answer(t, prompt, tokens), want[i])
		}
		p.provider.stop(t)
		p.stop(t)
	}
}

// "baton bench handoff" measures every step of every repetition.
func TestBenchHandoff(t *testing.T) {
	for _, mode := range []string{"leased", "sealed", "attached"} {
		r := runBaton(t, time.Minute, "bench", "handoff", "--sizes", "70,300", "--reps", "2", "--handoff", mode, "-t", "1", "--json", "--made-up="+strconv.FormatBool(mode == "sealed"))
		if r.code != 0 {
			t.Fatalf("%s: exit code %d: %s", mode, r.code, r.out)
		}
		var results []bench.HandoffResult
		if err := json.Unmarshal([]byte(r.out[strings.Index(r.out, "[\n"):]), &results); err != nil {
			t.Fatalf("%v in %s", err, r.out)
		}
		if len(results) != 2 || results[1].Cells != 299 || results[1].Trust.String() != mode {
			t.Fatalf("%s: %+v", mode, results)
		}
		steps := map[string]int{}
		for _, s := range results[1].Steps {
			steps[s.Name] = len(s.Runs)
			if s.Median <= 0 || s.Low > s.Median || s.High < s.Median {
				t.Errorf("%s: %+v", mode, s)
			}
		}
		for _, name := range []string{"share", "map", "memcpy", "let go", "confirm", "verify", "attach", "adopt", "first token", "first, local", "row to token", "CPU", "save", "restore"} {
			if steps[name] != 2 {
				t.Errorf("%s: %d measurements of %q, want 2", mode, steps[name], name)
			}
		}
	}
}

// "baton bench handoff --pace" finds gaps in every case.
func TestBenchPace(t *testing.T) {
	r := runBaton(t, time.Minute, "bench", "handoff", "--pace", "--sizes", "600", "--reps", "1", "-t", "1", "--json")
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.out)
	}
	var results []bench.PaceResult
	if err := json.Unmarshal([]byte(r.out[strings.Index(r.out, "[\n"):]), &results); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
	var cases []string
	for _, c := range results {
		cases = append(cases, c.Case)
		if c.Gaps == 0 || c.P99 <= 0 || c.DecoderCPU <= 0 || (c.ProviderCPU > 0.01) != (c.Case == "provider") {
			t.Errorf("%+v", c)
		}
	}
	if !slices.Equal(cases, []string{"idle", "local", "provider"}) {
		t.Errorf("cases %q", cases)
	}
}
