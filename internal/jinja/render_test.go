package jinja

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func parseFile(t testing.TB, name string) *Template {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata/templates", name+".jinja"))
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := Parse(string(src))
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		src, want string
		kind      Kind
		col       int
	}{
		{"a\n\n{% import 'x' as y %}", "jinja: line 3: {% import %} is not supported", Unsupported, 4},
		{"{% extends 'x' %}", "jinja: line 1: {% extends %} is not supported", Unsupported, 4},
		{"{% for x in y recursive %}{% endfor %}", "jinja: line 1: {% for ... recursive %} is not supported", Unsupported, 15},
		{"{{ 1|pprint }}", `jinja: line 1: filter "pprint" is not supported`, Unsupported, 6},
		{"{{ 1 is nope }}", `jinja: line 1: test "nope" is not supported`, Unsupported, 6},
		{"{{ [1]|map('nope')|list }}", `jinja: line 1: filter "nope" is not supported`, Unsupported, 8},
		{"\n {{ 1 + }}", "jinja: line 2: expected an expression, found }}", Syntax, 9},
		{"{% if a %}", "jinja: line 1: {% if %} has no {% endif %}", Syntax, 11},
		{"{% if a %}{% endfor %}", "jinja: line 1: unknown statement {% endfor %} inside {% if %}", Syntax, 14},
		{"{{ a", "jinja: line 1: {{ has no end }}", Syntax, 1},
		{"{{ 'a }}", "jinja: line 1: the string has no end '", Syntax, 4},
		{"{{ (a] }}", `jinja: line 1: unexpected "]", expected ")"`, Syntax, 6},
		{"{{ 99999999999999999999 }}", "jinja: line 1: the integer 99999999999999999999 does not fit 64 bits", Syntax, 4},
		{"{{ a.b.c }}", "jinja: line 1: 'a' is undefined", Runtime, 5},
		{"\n\n{{ 'a' + 1 }}", `jinja: line 3: can only concatenate str (not "int") to str`, Runtime, 8},
		{"{{ 9223372036854775807 + 1 }}", "jinja: line 1: the integer result does not fit 64 bits", Runtime, 24},
		{"{{ -9223372036854775807 - 2 }}", "jinja: line 1: the integer result does not fit 64 bits", Runtime, 25},
		{"{{ 9223372036854775807 * 2 }}", "jinja: line 1: the integer result does not fit 64 bits", Runtime, 24},
		{"{{ (-9223372036854775807 - 1) // -1 }}", "jinja: line 1: the integer result does not fit 64 bits", Runtime, 31},
		{"{{ 3 ** 64 }}", "jinja: line 1: the integer result does not fit 64 bits", Runtime, 6},
		{"{{ '9223372036854775808'|int }}", "jinja: line 1: the integer result does not fit 64 bits", Runtime, 26},
		{"{{ [].append(1) }}", "jinja: line 1: 'list.append' is unsafe: templates cannot change values", Runtime, 13},
		{"{{ raise_exception('no system role') }}", "jinja: line 1: the template raised: no system role", Raised, 19},
		{"{{ strftime_now('%Q') }}", "jinja: line 1: strftime_now: %Q is not supported", Unsupported, 16},
		{"\xff", "jinja: the template is not valid UTF-8", Syntax, 0},
	} {
		_, err := parseAndRender(tt.src, nil)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: got %v, want an *Error", tt.src, err)
			continue
		}
		if err.Error() != tt.want || e.Kind != tt.kind || e.Col != tt.col {
			t.Errorf("%q: got %q, kind %v, column %d; want %q, %v, %d", tt.src, err, e.Kind, e.Col, tt.want, tt.kind, tt.col)
		}
	}
}

func TestVariablesOfUnknownTypes(t *testing.T) {
	tmpl, err := Parse("{{ x }}")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{uint8(1), []string{"a"}, map[string]any{}, struct{}{}, []any{[]any{1.5, 'r'}}, (*Dict)(nil)} {
		vars := NewDict()
		vars.Set("x", v)
		if _, err := tmpl.Render(vars, Options{}); err == nil || !strings.Contains(err.Error(), "variable x") {
			t.Errorf("%T: got %v, want an error about variable x", v, err)
		}
	}
}

func TestDict(t *testing.T) {
	d := NewDict()
	for _, k := range strings.Fields("z y x w v u t s r q p") { // more than smallDict
		d.Set(k, k)
	}
	d.Set("y", 1)
	d.Delete("x")
	d.Delete("nope")
	d.Set("x", "again")
	var keys []string
	for k := range d.All() {
		keys = append(keys, k)
	}
	if diff := cmp.Diff(strings.Fields("z y w v u t s r q p x"), keys); diff != "" {
		t.Error(diff)
	}
	if v, ok := d.Get("y"); v != int64(1) || !ok {
		t.Errorf("y is %v, %v", v, ok)
	}
	if _, ok := d.Get("nope"); ok {
		t.Error("nope is there")
	}
	c := d.Clone()
	c.Set("new", 1)
	if _, ok := d.Get("new"); ok || d.Len() != 11 || c.Len() != 12 {
		t.Errorf("the clone shares its keys: %d and %d", d.Len(), c.Len())
	}
}

func TestFromJSON(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"b": 1, "a": [2, 2.0, 1e2, -0.5], "c": null}`, `{'b': 1, 'a': [2, 2.0, 100.0, -0.5], 'c': None}`},
		{`{"a": 1, "b": 2, "a": 3}`, `{'a': 3, 'b': 2}`},
		{`[9223372036854775807, 9223372036854775808]`, `[9223372036854775807, 9.223372036854776e+18]`},
		{` "ü\u00e9\ud83d\ude00" `, `üé😀`},
		{`true`, `True`},
	} {
		v, err := FromJSON([]byte(tt.in))
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		vars := NewDict()
		vars.Set("x", v)
		if got, err := parseAndRender("{{ x }}", vars); err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v, want %s", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{``, `{`, `[1 2]`, `{"a" 1}`, `{1: 2}`, `1 2`, `[1]]`, `nul`, `[1,]`, `1e999`,
		strings.Repeat("[", 502) + strings.Repeat("]", 502), strings.Repeat(`{"a":`, 100_000)} {
		if v, err := FromJSON([]byte(in)); err == nil {
			t.Errorf("%.20q: got %v, want an error", in, v)
		}
	}
	if _, err := FromJSON([]byte(strings.Repeat("[", 500) + strings.Repeat("]", 500))); err != nil {
		t.Error(err)
	}
}

func TestConcurrentRenders(t *testing.T) {
	tmpl := parseFile(t, "qwen3")
	all := readValue(t, "testdata/conversations.json").(*Dict)
	v, _ := all.Get("two tool calls")
	vars := conversation(v)
	want, err := tmpl.Render(vars, Options{Now: goldenNow})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if got, err := tmpl.Render(vars, Options{Now: goldenNow}); err != nil || got != want {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestClock(t *testing.T) {
	tmpl, err := Parse("{{ strftime_now('%Y') }}")
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now().Format("2006")
	got, err := tmpl.Render(nil, Options{})
	if after := time.Now().Format("2006"); err != nil || got != before && got != after {
		t.Errorf("got %q, %v, want the year", got, err)
	}
}

func BenchmarkParse(b *testing.B) {
	src, err := os.ReadFile("testdata/templates/gpt-oss.jinja")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(string(src)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRender(b *testing.B) {
	all := readValue(b, "testdata/conversations.json").(*Dict)
	v, _ := all.Get("tool call")
	vars := conversation(v)
	for _, name := range []string{"chatml", "qwen3", "llama3.1", "gemma4", "gpt-oss"} {
		b.Run(name, func(b *testing.B) {
			tmpl := parseFile(b, name)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tmpl.Render(vars, Options{Now: goldenNow}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
