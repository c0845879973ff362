package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testSet() (*Set, *int, *string, *bool) {
	s := NewSet("test", "[options] FILE", "Does nothing.")
	n := s.Int("-np --parallel", "BATON_NP LLAMA_ARG_N_PARALLEL", "N", 4, 1, 100, "slots")
	f := s.Choice("--log-format", "", []string{"text", "json"}, "log format")
	b := s.Bool("--chat", "BATON_CHAT", "chat")
	return s, n, f, b
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, args string
		env        map[string]string
		n          int
		format     string
		chat       bool
		rest       []string
		err        string
	}{
		{name: "defaults", n: 4, format: "text"},
		{name: "short", args: "-np 2", n: 2, format: "text"},
		{name: "long with =", args: "--parallel=3 --chat", n: 3, format: "text", chat: true},
		{name: "options after arguments", args: "a -np 7 b --log-format json", n: 7, format: "json", rest: []string{"a", "b"}},
		{name: "two dashes end options", args: "a -- -np 7", n: 4, format: "text", rest: []string{"a", "-np", "7"}},
		{name: "environment", env: map[string]string{"BATON_NP": "9"}, n: 9, format: "text"},
		{name: "the first variable wins", env: map[string]string{"BATON_NP": "9", "LLAMA_ARG_N_PARALLEL": "8"}, n: 9, format: "text"},
		{name: "llama.cpp's variable", env: map[string]string{"LLAMA_ARG_N_PARALLEL": "8"}, n: 8, format: "text"},
		{name: "a flag beats the environment", args: "-np 5", env: map[string]string{"BATON_NP": "9"}, n: 5, format: "text"},
		{name: "out of range", args: "-np 0", err: "from 1 to 100"},
		{name: "not a number", args: "-np x", err: "from 1 to 100"},
		{name: "bad word", args: "--log-format xml", err: "text, json"},
		{name: "unknown", args: "--nope", err: "baton test --help"},
		{name: "bad variable", env: map[string]string{"BATON_NP": "many"}, err: `BATON_NP="many"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			s, n, format, chat := testSet()
			rest, err := s.Parse(strings.Fields(c.args), &strings.Builder{})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if *n != c.n || *format != c.format || *chat != c.chat {
				t.Errorf("got %d %s %v", *n, *format, *chat)
			}
			if d := cmp.Diff(c.rest, rest); d != "" {
				t.Error(d)
			}
			if want := c.n != 4; s.Given("-np") != want {
				t.Errorf("Given is %v, want %v", !want, want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	s, _, _, _ := testSet()
	var b strings.Builder
	if _, err := s.Parse([]string{"--help"}, &b); !errors.Is(err, ErrHelp) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"usage: baton test [options] FILE", "-np, --parallel N", "(default 4)", "[BATON_NP, LLAMA_ARG_N_PARALLEL]", "text|json"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, b.String())
		}
	}
}
