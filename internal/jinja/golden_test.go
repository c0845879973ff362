package jinja

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// goldenNow is the moment at which golden.py renders.
func goldenNow() time.Time { return time.Date(2026, 7, 4, 9, 5, 3, 0, time.UTC) }

// A golden is what Jinja2 itself made of a template.
type golden struct {
	Text   *string
	Raised *string
	Error  *string
}

// check compares a render with what Jinja2 gave.
func (g golden) check(t *testing.T, got string, err error) {
	t.Helper()
	var e *Error
	errors.As(err, &e)
	switch {
	case g.Text != nil && err != nil:
		t.Errorf("got the error %v, want %q", err, *g.Text)
	case g.Text != nil:
		if diff := cmp.Diff(*g.Text, got); diff != "" {
			t.Errorf("differs (-jinja2 +baton):\n%s", diff)
		}
	case err == nil:
		t.Errorf("got %q, want an error", got)
	case e == nil:
		t.Errorf("got an error of the type %T, want *Error", err)
	case g.Raised != nil && (e.Kind != Raised || e.Msg != *g.Raised):
		t.Errorf("got %v, want the template to raise %q", err, *g.Raised)
	case g.Error != nil && (e.Kind == Raised || e.Line == 0):
		t.Errorf("got %v (kind %v, line %d), want an error like Jinja2's %s", err, e.Kind, e.Line, *g.Error)
	}
}

func readJSON(t testing.TB, path string, to any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readValue(t testing.TB, path string) any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := FromJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// conversation returns the variables of one of the test conversations.
func conversation(v any) *Dict {
	vars := NewDict()
	vars.Set("bos_token", "<bos>")
	vars.Set("eos_token", "<eos>")
	for name, v := range v.(*Dict).All() {
		vars.Set(name, v)
	}
	return vars
}

// TestGolden renders the templates of real models and compares with Jinja2.
func TestGolden(t *testing.T) {
	want := map[string]map[string]golden{}
	readJSON(t, "testdata/golden.json", &want)
	conversations := readValue(t, "testdata/conversations.json").(*Dict)
	files, err := filepath.Glob("testdata/templates/*.jinja")
	if err != nil || len(files) == 0 || len(files) != len(want) {
		t.Fatalf("%d templates, %d in golden.json: %v", len(files), len(want), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tmpl, err := Parse(string(src))
			if err != nil {
				t.Fatal(err)
			}
			for c, v := range conversations.All() {
				t.Run(c, func(t *testing.T) {
					g, ok := want[name][c]
					if !ok {
						t.Fatal("golden.json has no such render; make it anew")
					}
					got, err := tmpl.Render(conversation(v), Options{Now: goldenNow})
					g.check(t, got, err)

					// Marks change nothing in what a template writes.
					marked := UntrustedValue(conversation(v)).(*Dict)
					text, err := tmpl.RenderText(marked, Options{Now: goldenNow})
					g.check(t, text.String(), err)
				})
			}
		})
	}
}

// expressionVars are the variables of expressions.txt, the same as in golden.py.
const expressionVars = `{
	"s": "Hello, World", "u": "Grüße 世界", "e": "", "n": 7, "f": 2.5, "t": true, "z": null,
	"l": [3, 1, 2], "w": ["b", "A", "c", "a"],
	"d": {"b": 1, "a": "x", "items_": [1, 2]},
	"users": [
		{"name": "ann", "age": 30, "role": "admin", "tags": {"k": "v1"}},
		{"name": "bob", "age": 25, "role": "user", "tags": {"k": "v2"}},
		{"name": "cid", "age": 30, "role": "user", "tags": {"k": "v3"}, "extra": true}
	]
}`

func parseAndRender(src string, vars *Dict) (string, error) {
	tmpl, err := Parse(src)
	if err != nil {
		return "", err
	}
	return tmpl.Render(vars, Options{Now: goldenNow})
}

// TestExpressions compares small templates with Jinja2, construct by construct.
func TestExpressions(t *testing.T) {
	want := map[string]golden{}
	readJSON(t, "testdata/expressions.json", &want)
	vars, err := FromJSON([]byte(expressionVars))
	if err != nil {
		t.Fatal(err)
	}
	for line, g := range want {
		t.Run(line, func(t *testing.T) {
			src := line
			if strings.HasPrefix(line, `"`) {
				if err := json.Unmarshal([]byte(line), &src); err != nil {
					t.Fatal(err)
				}
			}
			got, err := parseAndRender(src, vars.(*Dict))
			g.check(t, got, err)
		})
	}
}
