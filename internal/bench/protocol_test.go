package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTest(t *testing.T) {
	for line, want := range map[string]Test{
		"pp 512 0":     {Kind: "pp", N: 512, Seqs: 1},
		"pp 2048 4096": {Kind: "pp", N: 2048, Depth: 4096, Seqs: 1},
		"tg 64 0 1":    {Kind: "tg", N: 64, Seqs: 1},
		"tg 64 100 4":  {Kind: "tg", N: 64, Depth: 100, Seqs: 4},
	} {
		got, err := parseTest(line)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: -want +got\n%s", line, d)
		}
		if got.line() != line {
			t.Errorf("%q becomes %q", line, got.line())
		}
	}
	for _, line := range []string{"", "pp", "pp 0 0", "pp -1 0", "pp 1 -1", "pp 1 0 1", "tg 1 0", "tg 1 0 0", "tg x 0 1", "tg 99999999999999999999 0 1", "read 1 2"} {
		if got, err := parseTest(line); err == nil {
			t.Errorf("%q is accepted as %+v", line, got)
		}
	}
}

func TestParseAnswer(t *testing.T) {
	got, err := parseAnswer("ok", "ok seconds=1.5 allocs=0\n")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(answer{"seconds": "1.5", "allocs": "0"}, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if v, err := got.number("seconds"); err != nil || v != 1.5 {
		t.Errorf("seconds: %v, %v", v, err)
	}
	for _, key := range []string{"allocs", "missing"} { // 0 seconds is no measurement either
		if v, err := got.number(key); err == nil {
			t.Errorf("%s is accepted as %v", key, v)
		}
	}
	for _, line := range []string{"", "ready", "ok seconds", "error no such thing", "error"} {
		if got, err := parseAnswer("ok", line); err == nil {
			t.Errorf("%q is accepted as %v", line, got)
		}
	}
}

func FuzzParseTest(f *testing.F) {
	f.Add("pp 512 0")
	f.Add("tg 64 4096 4")
	f.Fuzz(func(t *testing.T, line string) {
		got, err := parseTest(line)
		if err != nil {
			return
		}
		again, err := parseTest(got.line())
		if err != nil || again != got {
			t.Fatalf("%q: %+v becomes %+v, %v", line, got, again, err)
		}
	})
}
