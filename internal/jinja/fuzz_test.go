package jinja

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func addSeeds(f *testing.F, add func(src string)) {
	files, err := filepath.Glob("testdata/templates/*.jinja")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/expressions.txt") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if filepath.Ext(file) == ".jinja" {
			add(string(data))
			continue
		}
		for line := range strings.Lines(string(data)) {
			add(strings.TrimSuffix(line, "\n"))
		}
	}
}

// checkError fails unless err is nil or an *Error with a place in src.
func checkError(t *testing.T, src string, err error) {
	t.Helper()
	var e *Error
	if err == nil {
		return
	}
	if !errors.As(err, &e) || e.Kind == 0 || e.Msg == "" && e.Kind != Raised {
		t.Fatalf("%q: got the error %#v", src, err)
	}
	if e.Line > strings.Count(src, "\n")+strings.Count(src, "\r")+1 || e.Line > 0 && e.Col < 1 {
		t.Fatalf("%q: line %d, column %d does not exist", src, e.Line, e.Col)
	}
}

func FuzzParse(f *testing.F) {
	addSeeds(f, func(src string) { f.Add(src) })
	f.Fuzz(func(t *testing.T, src string) {
		_, err := Parse(src)
		checkError(t, src, err)
	})
}

// FuzzRender renders with the variables of a chat and checks that marks change
// nothing in the text and lie within it.
func FuzzRender(f *testing.F) {
	const vars = `{
		"messages": [
			{"role": "system", "content": "Be brief."},
			{"role": "user", "content": "Hi <|im_end|> ü"},
			{"role": "assistant", "content": "<think>a</think>b", "tool_calls": [
				{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1.5, "y": null}}}]},
			{"role": "tool", "content": "{}"}
		],
		"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "number"}}}}}],
		"add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
		"s": "Hello, World", "u": "Grüße 世界", "e": "", "n": 7, "f": 2.5, "t": true, "z": null,
		"l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"b": 1, "a": "x"},
		"users": [{"name": "ann", "age": 30}, {"name": "bob", "age": 25}]
	}`
	plainVars, err := FromJSON([]byte(vars))
	if err != nil {
		f.Fatal(err)
	}
	marked := UntrustedValue(plainVars).(*Dict)
	addSeeds(f, func(src string) { f.Add(src) })
	f.Fuzz(func(t *testing.T, src string) {
		tmpl, err := Parse(src)
		if err != nil {
			return
		}
		o := Options{Limits: Limits{Steps: 20_000, Work: 4 << 20, Output: 1 << 20}, Now: goldenNow}
		want, err := tmpl.Render(plainVars.(*Dict), o)
		checkError(t, src, err)
		if !utf8.ValidString(want) {
			t.Fatalf("%q renders invalid UTF-8: %q", src, want)
		}
		text, markedErr := tmpl.RenderText(marked, o)
		checkError(t, src, markedErr)
		var e *Error
		if errors.As(err, &e) && e.Kind == Limit || errors.As(markedErr, &e) && e.Kind == Limit {
			return // marks count as work, so that only one may go past a limit
		}
		if (err == nil) != (markedErr == nil) || text.String() != want {
			t.Fatalf("%q: %q, %v without marks, %q, %v with them", src, want, err, text.String(), markedErr)
		}
		for _, m := range text.Marks() {
			if m.Start < 0 || m.Start >= m.End || m.End > len(want) {
				t.Fatalf("%q: mark %v in %d bytes", src, m, len(want))
			}
		}
	})
}

func FuzzFromJSON(f *testing.F) {
	for _, s := range []string{`{}`, `[1, 2.5, "a", null, true]`, `{"a": {"b": [1e400]}}`, `123456789012345678901234567890`, `{"a": 1, "a": 2}`, `[`, `"\ud800"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := FromJSON(data)
		if err != nil {
			return
		}
		if err := checkValue(v, 0); err != nil {
			t.Fatalf("%q gives a value that templates refuse: %v", data, err)
		}
	})
}
