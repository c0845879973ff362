package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"baton/internal/demo"
	"baton/internal/kernel"
)

// The test binary is an engine too: with "engine" and a model as arguments it serves
// the built-in model, with "broken" it fails at the first command.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "engine" {
		w, err := NewWorker(WorkerOptions{Path: os.Args[2], Threads: 1, Ctx: 64, Seqs: 2})
		if err == nil {
			err = w.Serve(os.Stdin, os.Stdout)
		}
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "broken" {
		os.Stdout.WriteString("ready name=broken weights=1 cell=1\n")
		os.Stderr.WriteString("out of luck")
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func demoFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "demo.gguf")
	if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func testProgram(t *testing.T, mode, path string) func(ctx, seqs int) Program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(int, int) Program { return Program{Path: self, Args: []string{mode, path}} }
}

// Baton beside itself: every test of the plan gives figures of both, and JSON and table
// show them.
func TestCompareEngines(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := demoFile(t)
	engine := testProgram(t, "engine", path)
	results, err := CompareEngines(ctx, EngineOptions{Model: path, Threads: 1, Prompts: []int{8}, Gen: 2,
		Depths: []int{0, 16}, Seqs: 2, Reps: 2, Baton: engine, Peer: engine, PeerName: "itself"})
	if err != nil {
		t.Fatal(err)
	}
	type key struct {
		test  string
		depth int
		seqs  int
	}
	seen := map[key]Result{}
	for _, r := range results {
		seen[key{r.Test, r.Depth, r.Sequences}] = r
		if r.Baton <= 0 || r.Peer <= 0 || r.Ratio != r.Baton/r.Peer || r.Low > r.High || r.Type != "Q8_0" {
			t.Errorf("%+v", r)
		}
	}
	for _, k := range []key{{"load", 0, 1}, {"first", 0, 1}, {"pp8", 0, 1}, {"tg2", 0, 1}, {"pp8", 16, 1}, {"tg2", 16, 1}, {"rss", 0, 1}, {"tg2", 0, 2}} {
		if _, ok := seen[k]; !ok {
			t.Errorf("no result of %+v", k)
		}
	}
	if len(seen) != 8 || len(results) != 8 {
		t.Errorf("%d results, want 8", len(results))
	}
	if one := seen[key{"tg2", 0, 1}]; one.ReadGBs <= 0 || one.Bandwidth <= 0 || one.Bandwidth != one.GBs/one.ReadGBs {
		t.Errorf("no share of the bandwidth: %+v", one)
	}
	if several := seen[key{"tg2", 0, 2}]; several.Scaling <= 0 {
		t.Errorf("no scaling: %+v", several)
	}

	var asJSON, asText bytes.Buffer
	if err := WriteJSON(&asJSON, results); err != nil {
		t.Fatal(err)
	}
	var objects []map[string]any
	if err := json.Unmarshal(asJSON.Bytes(), &objects); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"test", "depth", "threads", "type", "baton", "peer", "ratio", "spread"} {
		if _, ok := objects[0][k]; !ok {
			t.Errorf("no %q in the JSON of a result", k)
		}
	}
	if err := WriteResults(&asText, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"demo.gguf (Q8_0), 1 threads", "itself", "pp8", "tg2 x2", "x one sequence"} {
		if !strings.Contains(asText.String(), want) {
			t.Errorf("no %q in\n%s", want, asText.String())
		}
	}
}

func TestCompareEnginesBrokenPeer(t *testing.T) {
	path := demoFile(t)
	_, err := CompareEngines(context.Background(), EngineOptions{Model: path, Threads: 1, Gen: 1, Depths: []int{0}, Seqs: 1, Reps: 1,
		Baton: testProgram(t, "engine", path), Peer: testProgram(t, "broken", path), PeerName: "broken"})
	if err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("error %v, want one with what the engine said last", err)
	}
}

func TestWorkerRefusals(t *testing.T) {
	w, err := NewWorker(WorkerOptions{Threads: 1, Ctx: 64, Seqs: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var out strings.Builder
	if err := w.Serve(strings.NewReader("jump 1\npp 0 0\nread x\npp 4 0\n"), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d lines, want 5:\n%s", len(lines), out.String())
	}
	for i, want := range []string{"ready name=baton kernels=" + kernel.Active(), "error ", "error ", "error ", "ok seconds="} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q...", i, lines[i], want)
		}
	}
}

// The steps of generation allocate nothing.
func TestGenerateDoesNotAllocate(t *testing.T) {
	w, err := NewWorker(WorkerOptions{Threads: 2, Ctx: 64, Seqs: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.fill(16, 2); err != nil {
		t.Fatal(err)
	}
	if err := w.generate(w.held, 2); err != nil { // grows the buffers
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(8, func() {
		if err := w.generate(w.held, 1); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%g allocations a step, want none", n)
	}
}

// BenchmarkStep is one step of generation, of one sequence and of four.
func BenchmarkStep(b *testing.B) {
	for _, seqs := range []int{1, 4} {
		b.Run(map[int]string{1: "1seq", 4: "4seqs"}[seqs], func(b *testing.B) {
			w, err := NewWorker(WorkerOptions{Path: os.Getenv("BATON_MODEL"), Threads: 2, Ctx: 1024, Seqs: seqs})
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			if err := w.fill(64, seqs); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if w.held[0].Len() == 1024 {
					for _, s := range w.held {
						s.Truncate(64)
					}
				}
				if err := w.generate(w.held, 1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(seqs)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
