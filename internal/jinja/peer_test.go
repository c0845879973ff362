package jinja

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	peerDir       = "../../test/peer/jinja"
	templates     = "testdata/templates"
	conversations = "testdata/conversations.json"
)

// needPeer returns the cache of what `make peer` fetches, or skips the test.
func needPeer(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("BATON_PEER")
	if cache == "" {
		t.Skip("BATON_PEER is not set: run `make peer`")
	}
	return cache
}

// run runs a reference renderer, which prints JSON.
func run(t *testing.T, to any, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestPeerJinja2 makes the goldens anew with Jinja2 and expects no change.
func TestPeerJinja2(t *testing.T) {
	needPeer(t)
	if err := exec.Command("python3", "-c", "import jinja2").Run(); err != nil {
		t.Skip("python3 with jinja2 is missing (Debian: python3-jinja2)")
	}
	for file, args := range map[string][]string{
		"testdata/golden.json":      {peerDir + "/golden.py", templates, conversations},
		"testdata/expressions.json": {peerDir + "/golden.py", "--expressions", "testdata/expressions.txt"},
	} {
		var got, want any
		run(t, &got, "python3", args...)
		readJSON(t, file, &want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is not what Jinja2 gives (-golden +jinja2):\n%s", file, diff)
		}
	}
}

// jsDeviations are the renders in which the JavaScript implementation differs
// from Jinja2, which is what models were trained with. A conversation "*" means
// any of the template's.
var jsDeviations = []struct {
	template, conversation, reason string
}{
	{"chatml", "parts", "adds a list to a string; in Python that is an error"},
	{"deepseek-r1-distill", "parts", "adds a list to a string"},
	{"deepseek-v3.1", "parts", "adds a list to a string"},
	{"deepseek-v3.2", "parts", "adds a list to a string"},
	{"functionary-v3.2", "parts", "adds a list to a string"},
	{"functionary-v3.2", "tools", "cannot unpack a tuple in a for loop"},
	{"functionary-v3.2", "tool call, arguments as text", "cannot unpack a tuple in a for loop"},
	{"gemma2", "parts", "has no trim for lists"},
	{"gemma2", "tool call, arguments as text", "has no trim for None, and fails before the template raises"},
	{"gemma4", "tool call", "writes nothing for None"},
	{"gpt-oss", "parts", "adds a list to a string"},
	{"granite3.3", "parts", "adds a list to a string"},
	{"hermes3", "*", "cannot loop over undefined"},
	{"llama3.1", "parts", "has no trim for lists"},
	{"llama3.2", "parts", "has no trim for lists"},
	{"mistral-7b-v0.3", "parts", "adds a list to a string"},
	{"mistral-nemo", "parts", "adds a list to a string"},
	{"phi3.5", "parts", "adds a list to a string"},
	{"phi4", "parts", "adds a list to a string"},
	{"qwen2.5", "parts", "adds a list to a string"},
	{"qwen3-coder", "parts", "adds a list to a string"},
	{"qwen3-coder", "tool call", "has no string filter for None"},
	{"qwen3.5", "tool call", "has no string filter for None"},
	{"qwq", "parts", "adds a list to a string"},
	{"qwq", "turns", "ignores the argument of lstrip"},
	{"seed-oss", "*", "has no dicts with integers as keys"},
	{"smollm2", "parts", "adds a list to a string"},
	{"smollm3", "turns", "ignores the argument of lstrip"},
}

// TestPeerJavaScript compares with the JavaScript implementation.
func TestPeerJavaScript(t *testing.T) {
	modules := filepath.Join(needPeer(t), "npm", "node_modules")
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is missing")
	}
	if _, err := os.Stat(filepath.Join(modules, "@huggingface", "jinja")); err != nil {
		t.Skip("the npm package @huggingface/jinja is not installed: run `make peer`")
	}
	type render struct{ Text, Error *string }
	var js map[string]map[string]render
	run(t, &js, "node", peerDir+"/golden.mjs", modules, templates, conversations)
	all := readValue(t, conversations).(*Dict)
	equal, deviating := 0, 0
	for name, renders := range js {
		src, err := os.ReadFile(filepath.Join(templates, name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		tmpl, err := Parse(string(src))
		if err != nil {
			t.Fatal(err)
		}
		for c, want := range renders {
			vars, _ := all.Get(c)
			got, err := tmpl.Render(conversation(vars), Options{Now: goldenNow})
			if (err == nil) == (want.Error == nil) && (err != nil || got == *want.Text) {
				equal++
				continue
			}
			known := false
			for _, d := range jsDeviations {
				known = known || d.template == name && (d.conversation == c || d.conversation == "*")
			}
			if known {
				deviating++
				continue
			}
			t.Errorf("%s, %s: got %q, %v, want %v", name, c, got, err, want)
		}
	}
	t.Logf("%d renders are equal, %d differ for the reasons given in jsDeviations", equal, deviating)
	if equal < 450 {
		t.Errorf("only %d renders are equal", equal)
	}
}
