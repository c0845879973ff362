package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// examples is the directory of the examples.
const examples = "../../examples"

// demoModel is the built-in model, as a file.
const demoModel = "../../internal/demo/model/demo-q8_0.gguf"

// conform runs "baton conform" and returns what it prints.
func conform(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*startLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, batonBin, append([]string{"conform"}, args...)...).CombinedOutput()
	if err != nil {
		t.Errorf("baton conform %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Our own provider conforms, inside its sandbox.
func TestOwnProviderConforms(t *testing.T) {
	out := conform(t, "provider", "--", batonBin, "prefill", "-t", "1", "--connect", "{}")
	if !strings.Contains(out, "0 failed, 0 skipped") {
		t.Errorf("%s", out)
	}
}

// Our own decoder conforms, all of its API included.
func TestOwnDecoderConforms(t *testing.T) {
	path := socketPath(t)
	d := startDecode(t, path, "-t", "1")
	defer d.stop(t)
	out := conform(t, "decoder", path)
	if !strings.Contains(out, "0 failed, 3 skipped") { // what depends on how it was started
		t.Errorf("%s", out)
	}
}

// pythonProvider is the command of the example in Python.
func pythonProvider(t *testing.T) []string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine")
	}
	// recv_fds came with 3.9.
	if err := exec.Command(python, "-c", "import socket; socket.recv_fds").Run(); err != nil {
		t.Skip("the python3 on this machine cannot receive descriptors: it is older than 3.9")
	}
	var paths []string
	for _, p := range []string{filepath.Join(examples, "provider.py"), demoModel} {
		abs, err := filepath.Abs(p)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, abs)
	}
	return append([]string{python}, paths...)
}

// The example conforms, and is short enough to be read.
func TestPythonProviderConforms(t *testing.T) {
	command := pythonProvider(t)
	if out := conform(t, append([]string{"provider", "--"}, command...)...); !strings.Contains(out, "0 failed, 0 skipped") {
		t.Errorf("%s", out)
	}
	source, err := os.ReadFile(command[1])
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte("\n")); n >= 150 {
		t.Errorf("the example has %d lines, promised are fewer than 150", n)
	}
}

// What the example fills is adopted, and the answer is the one that the reference
// implementation gives.
func TestPythonProviderIsAdopted(t *testing.T) {
	command := pythonProvider(t)
	g := goldenPrompts(t)[0]
	s := startServer(t, "--prefill", "exec:"+strings.Join(command, " "), "--prefill-min-tokens", "2", "-t", "1")
	defer s.stop(t)
	ask := func(prompt []int32, n int) object {
		return s.mustPost(t, "/completion", object{"prompt": prompt, "n_predict": n, "temperature": 0})
	}
	// Until it has registered: prompts that have no beginning in common.
	end := time.Now().Add(startLimit)
	for id := int32(1); ask([]int32{id, 2, 3, 4}, 1).str("timings", "route") != "shared"; id++ {
		if time.Now().After(end) {
			t.Fatalf("the provider does not register:\n%s", s.out)
		}
		time.Sleep(50 * time.Millisecond)
	}
	r := ask(g.Tokens, 32)
	if r.str("timings", "route") != "shared" || r.str("timings", "trust") != "sealed" || r.num("timings", "cells") != len(g.Tokens)-1 {
		t.Errorf("timings %v\n%s", r.at("timings"), s.out)
	}
	if got := r.str("content"); got != g.Answer {
		t.Errorf("%q, want %q", got, g.Answer)
	}
}
