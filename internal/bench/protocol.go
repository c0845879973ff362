package bench

import (
	"fmt"
	"strconv"
	"strings"
)

// The protocol between the harness and an engine's process: one line each way. The
// process begins with
//
//	ready name=NAME [KEY=VALUE ...]
//
// and answers each command with "ok KEY=VALUE ..." or "error TEXT":
//
//	pp N DEPTH        process a prompt of N tokens behind DEPTH cells      seconds=S
//	tg N DEPTH SEQS   generate N tokens in each of SEQS sequences          seconds=S
//	read DEPTH        read weights and DEPTH cells once (Baton only)       seconds=S bytes=B
//
// Only the N tokens are timed. The process keeps the DEPTH cells for the next command.
// It ends when its input does.

// Test is one thing to measure, in the terms of llama-bench: pp512 is a prompt of 512
// tokens, tg64 the generation of 64, Depth the cells that are there before.
type Test struct {
	Kind  string // "pp" or "tg"
	N     int    // tokens, in each sequence
	Depth int
	Seqs  int // sequences that generate together; 1 for pp
}

// Name is the test's name without its depth: "pp512", "tg64".
func (t Test) Name() string { return t.Kind + strconv.Itoa(t.N) }

// Tokens is how many tokens one run processes or generates.
func (t Test) Tokens() int { return t.N * t.Seqs }

// warmUp is the same test, as short as it can be and still use every buffer.
func (t Test) warmUp() Test {
	most := 512
	if t.Kind == "tg" {
		most = 2
	}
	t.N = min(t.N, most)
	return t
}

func (t Test) line() string {
	if t.Kind == "pp" {
		return fmt.Sprintf("pp %d %d", t.N, t.Depth)
	}
	return fmt.Sprintf("tg %d %d %d", t.N, t.Depth, t.Seqs)
}

// parseTest is the inverse of line.
func parseTest(line string) (Test, error) {
	f := strings.Fields(line)
	if !(len(f) == 3 && f[0] == "pp" || len(f) == 4 && f[0] == "tg") {
		return Test{}, fmt.Errorf("bench: no such command %q", line)
	}
	t := Test{Kind: f[0], Seqs: 1}
	for i, p := range []*int{&t.N, &t.Depth, &t.Seqs}[:len(f)-1] {
		v, err := strconv.Atoi(f[i+1])
		if err != nil || v < 0 || v > 1<<24 || v == 0 && p != &t.Depth {
			return Test{}, fmt.Errorf("bench: number %q in command %q is out of range", f[i+1], line)
		}
		*p = v
	}
	return t, nil
}

// answer is what follows "ready" or "ok", by key.
type answer map[string]string

// parseAnswer reads a line that must begin with word.
func parseAnswer(word, line string) (answer, error) {
	head, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if head == "error" {
		return nil, fmt.Errorf("bench: %s", rest)
	}
	if head != word {
		return nil, fmt.Errorf("bench: found %q, expected a line that begins with %q", line, word)
	}
	a := answer{}
	for _, f := range strings.Fields(rest) {
		key, value, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("bench: found %q in %q, expected KEY=VALUE", f, line)
		}
		a[key] = value
	}
	return a, nil
}

// number is the value of key, which must be there and finite and above zero.
func (a answer) number(key string) (float64, error) {
	v, err := strconv.ParseFloat(a[key], 64)
	if err != nil || !(v > 0 && v < 1e18) {
		return 0, fmt.Errorf("bench: found %s=%q, expected a positive number", key, a[key])
	}
	return v, nil
}
