package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"baton/internal/demo"
	"baton/internal/gguf/gguftest"
)

const (
	maxRSS = 200 << 20
	maxCPU = time.Second
)

// checkRefused wants a message and an error's exit code: no signal, no hang, no stack
// trace, little memory, and less than a second of processor time.
func checkRefused(t *testing.T, r result, says string) {
	t.Helper()
	switch {
	case r.timedOut:
		t.Errorf("still running after the time limit: %s", r.out)
	case r.signal != 0:
		t.Errorf("ended by signal %v: %s", r.signal, r.out)
	case r.code != 1:
		t.Errorf("exit code %d, want 1: %s", r.code, r.out)
	case strings.Contains(r.out, "goroutine ") || strings.Contains(r.out, "panic:"):
		t.Errorf("a stack trace is no message: %s", r.out)
	case !strings.Contains(r.out, says):
		t.Errorf("message %q does not contain %q", r.out, says)
	}
	if r.maxRSS > maxRSS {
		t.Errorf("%d MiB of memory, want at most %d", r.maxRSS>>20, maxRSS>>20)
	}
	if r.cpu > maxCPU {
		t.Errorf("%v of processor time, want at most %v", r.cpu, maxCPU)
	}
}

// T13: crafted files end every command that opens a model with a message.
func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	for _, c := range gguftest.Hostile() {
		t.Run(c.Name, func(t *testing.T) {
			path := filepath.Join(dir, c.Name+".gguf")
			if err := os.WriteFile(path, c.Bytes, 0o600); err != nil {
				t.Fatal(err)
			}
			checkRefused(t, runBaton(t, startLimit, "serve", "--port", "0", "-m", path), c.WantError)
			checkRefused(t, runBaton(t, startLimit, "model", "verify", path), c.WantError)
			checkRefused(t, runBaton(t, startLimit, "model", "inspect", path), c.WantError)
		})
	}
}

// Files that are whole, but no model that can be served.
func TestBadModels(t *testing.T) {
	dir := t.TempDir()
	for _, c := range gguftest.BadModels() {
		t.Run(c.Name, func(t *testing.T) {
			path := filepath.Join(dir, c.Name+".gguf")
			if err := os.WriteFile(path, c.Bytes, 0o600); err != nil {
				t.Fatal(err)
			}
			checkRefused(t, runBaton(t, startLimit, "serve", "--port", "0", "-m", path), c.WantError)
			checkRefused(t, runBaton(t, startLimit, "run", "-m", path, "Hello"), c.WantError)
			if r := runBaton(t, startLimit, "model", "inspect", path); r.code != 0 || r.signal != 0 {
				t.Errorf("inspect of a well-formed file: exit code %d, signal %v: %s", r.code, r.signal, r.out)
			}
		})
	}
}

// The demo model cut short, at every 1 KiB with BATON_SLOW=1 (some minutes), else at a
// few places in the header and in the data.
func TestTruncatedModel(t *testing.T) {
	whole := demo.GGUF()
	path := filepath.Join(t.TempDir(), "cut.gguf")
	cuts := []int{0, 3, 24, 1 << 10, 10 << 10, 100 << 10, 150 << 10, 1 << 20, len(whole) / 2, len(whole) - 1<<10, len(whole) - 1}
	if os.Getenv("BATON_SLOW") != "" {
		cuts = cuts[:0]
		for n := 0; n < len(whole); n += 1 << 10 {
			cuts = append(cuts, n)
		}
	}
	for _, n := range cuts {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		checkRefused(t, runBaton(t, startLimit, "serve", "--port", "0", "-m", path), "cut.gguf")
		if t.Failed() {
			t.Fatalf("cut after %d bytes", n)
		}
	}
	t.Logf("%d cuts", len(cuts))
}
