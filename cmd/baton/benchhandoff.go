package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"baton/internal/bench"
	"baton/internal/cli"
	"baton/internal/handoff"
)

// benchHandoff measures handoffs, or with --pace what they do to others' answers.
func benchHandoff(ctx context.Context, args []string, out io.Writer) error {
	s := cli.NewSet("bench handoff", "[options]",
		"Measures what it takes to hand the cells of a prompt from one process to another. The rows are computed once for\n"+
			"each length and then replayed by this process, in the place of a provider, into the blocks of a decoder.\n"+
			"With --pace: how evenly an answer comes while somebody else sends a long prompt.")
	var (
		path    = s.String("-m --model", "", "FILE", "", "GGUF file; without it the built-in demo model")
		sizes   = s.String("--sizes", "", "N,...", "", "lengths of prompts; default 251,3189,12722, or 251,900,1900 of the demo model; with --pace 3189 or 1900")
		reps    = s.Int("-r --reps", "", "N", 7, 1, 1000, "repetitions")
		mode    = s.Choice("--handoff", "", []string{"leased", "sealed", "attached"}, "trust mode")
		threads = s.Int("-t --threads", "", "N", runtime.GOMAXPROCS(0), 1, 1024, "threads")
		peer    = s.String("--peer", "", "llama=PATH", "", "measure llama.cpp's save and restore, too (peers/llama's llamapeer)")
		madeUp  = s.Bool("--made-up", "", "replay rows that mean nothing instead of computing them, which takes minutes for long prompts")
		pace    = s.Bool("--pace", "", "measure the gaps between the tokens of an answer instead")
		nice    = s.Int("--nice", "", "N", 10, 0, 19, "with --pace: how much the provider gives way")
		asJSON  = s.Bool("--json", "", "print JSON")
	)
	rest, err := s.Parse(args, out)
	if err != nil {
		return asUsage(err)
	}
	if err := noArguments(s, rest); err != nil {
		return err
	}
	trust, err := handoff.ParseTrust(*mode)
	if err != nil {
		return err
	}
	lengths, err := numbers(handoffSizes(*sizes, *path == "", *pace), "--sizes")
	if err != nil {
		return err
	}
	name, llama, _ := strings.Cut(*peer, "=")
	if *peer != "" && (name != "llama" || llama == "") {
		return fmt.Errorf("%w: --peer %s: expected llama=PATH", errUsage, *peer)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	// What there is was measured, also when the rest could not be.
	if *pace {
		results, err := bench.MeasurePace(ctx, bench.PaceOptions{
			Baton: self, Model: *path, Sizes: lengths, Reps: *reps, Trust: trust, Threads: *threads, Nice: *nice, Log: log,
		})
		if *asJSON {
			return errors.Join(bench.WriteJSON(out, results), err)
		}
		return errors.Join(bench.WritePace(out, results), err)
	}
	results, err := bench.MeasureHandoffs(ctx, bench.HandoffOptions{
		Baton: self, Model: *path, Sizes: lengths, Reps: *reps, Trust: trust, Threads: *threads, Llama: llama, MadeUp: *madeUp, Log: log,
	})
	if *asJSON {
		return errors.Join(bench.WriteJSON(out, results), err)
	}
	return errors.Join(bench.WriteHandoffs(out, results), err)
}

// handoffSizes is the lengths to measure: those asked for, or some that the model has
// room for.
func handoffSizes(list string, demo, pace bool) string {
	sizes := []int{251, 3189, 12722}
	if demo {
		sizes = []int{251, 900, 1900}
	}
	switch {
	case list != "":
		return list
	case pace && demo:
		sizes = sizes[2:]
	case pace:
		sizes = sizes[1:2]
	}
	var words []string
	for _, n := range sizes {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ",")
}
