package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"baton/internal/bench"
	"baton/internal/quant"
)

func TestNumbers(t *testing.T) {
	got, err := numbers("512, 2048,0", "--n-prompt")
	if err != nil || !slices.Equal(got, []int{512, 2048, 0}) {
		t.Errorf("found %v, %v", got, err)
	}
	for _, list := range []string{"", "1,", "x", "-1", "99999999999999999999"} {
		if got, err := numbers(list, "-x"); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, %v; want a usage error", list, got, err)
		}
	}
}

func TestWeightTypes(t *testing.T) {
	got, err := weightTypes("Q4_K,q8_0,bf16")
	if err != nil || !slices.Equal(got, []quant.Type{quant.Q4_K, quant.Q8_0, quant.BF16}) {
		t.Errorf("found %v, %v", got, err)
	}
	if _, err := weightTypes("Q9"); !errors.Is(err, errUsage) {
		t.Errorf("Q9: %v, want a usage error", err)
	}
}

func TestEnginePrograms(t *testing.T) {
	o := bench.EngineOptions{Model: "m.gguf", Threads: 3}
	if err := enginePrograms(&o, "llama=/opt/llamapeer"); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(o.Baton(100, 4).Args, " "), "bench worker -m m.gguf -t 3 -c 100 -np 4"; got != want {
		t.Errorf("Baton is started with %q, want %q", got, want)
	}
	p := o.Peer(100, 4)
	if got, want := strings.Join(p.Args, " "), "serve m.gguf 3 --ctx 100 --fa 1"; p.Path != "/opt/llamapeer" || got != want {
		t.Errorf("the peer is %s with %q, want /opt/llamapeer with %q", p.Path, got, want)
	}
	for _, peer := range []string{"llama", "llama=", "vllm=/x"} {
		if err := enginePrograms(&o, peer); !errors.Is(err, errUsage) {
			t.Errorf("--peer %s: %v, want a usage error", peer, err)
		}
	}
}

func TestBenchRefusals(t *testing.T) {
	for _, args := range [][]string{{}, {"speed"}, {"engine"}, {"engine", "-m", "x", "y"}, {"engine", "-m", "x", "-t", "0,x"},
		{"kernel", "--shape", "3"}, {"kernel", "--type", "Q9"}, {"accuracy", "--peer", "vllm=/x"}, {"accuracy", "x"},
		{"handoff", "x"}, {"handoff", "--sizes", "a"}, {"handoff", "--peer", "vllm=/x"}, {"handoff", "--peer", "llama"}, {"handoff", "--handoff", "off"}} {
		var out strings.Builder
		if err := benchCommand(context.Background(), args, &out); !errors.Is(err, errUsage) {
			t.Errorf("baton bench %s: %v, want a usage error", strings.Join(args, " "), err)
		}
	}
}

func TestHandoffSizes(t *testing.T) {
	for _, tt := range []struct {
		list       string
		demo, pace bool
		want       string
	}{
		{"", false, false, "251,3189,12722"}, {"", true, false, "251,900,1900"}, {"", false, true, "3189"}, {"", true, true, "1900"}, {"64,65", true, true, "64,65"},
	} {
		if got := handoffSizes(tt.list, tt.demo, tt.pace); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
