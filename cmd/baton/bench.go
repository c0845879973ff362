package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"baton/internal/bench"
	"baton/internal/cli"
	"baton/internal/kernel"
	"baton/internal/quant"
)

// benchCommand is "baton bench engine", and its siblings.
func benchCommand(ctx context.Context, args []string, out io.Writer) error {
	const usage = "baton bench engine, baton bench handoff, baton bench kernel or baton bench accuracy; each with --help"
	if len(args) == 0 {
		return fmt.Errorf("%w: %s", errUsage, usage)
	}
	switch args[0] {
	case "engine":
		return benchEngine(ctx, args[1:], out)
	case "handoff":
		return benchHandoff(ctx, args[1:], out)
	case "kernel":
		return benchKernel(ctx, args[1:], out)
	case "accuracy":
		return benchAccuracy(ctx, args[1:], out)
	case "worker":
		return benchWorker(args[1:], out)
	case "help", "-h", "--help":
		_, err := fmt.Fprintln(out, "usage:", usage)
		return err
	}
	return fmt.Errorf("%w: there is no %q: %s", errUsage, args[0], usage)
}

// benchEngine measures tokens per second, alone or beside another engine.
func benchEngine(ctx context.Context, args []string, out io.Writer) error {
	s := cli.NewSet("bench engine", "[options]",
		"Measures how many tokens a second prompts and generation take. With --peer another engine runs in turn with\n"+
			"Baton on the same file and the same number of threads: llama=PATH for PATH of peers/llama's llamapeer, or\n"+
			"baton=PATH for another build of this program.")
	var (
		models   = s.String("-m --model", "", "FILES", "", "GGUF files, separated by commas")
		prompts  = s.String("-p --n-prompt", "", "N,...", "512", "lengths of prompts; 0: none")
		gen      = s.Int("-n --n-gen", "", "N", 64, 0, 1<<20, "tokens to generate; 0: none")
		depths   = s.String("-d --n-depth", "", "N,...", "0", "tokens in the cache before")
		threads  = s.String("-t --threads", "", "N,...", strconv.Itoa(runtime.GOMAXPROCS(0)), "threads")
		seqs     = s.Int("-np --parallel", "", "N", 1, 1, 64, "also generate in N sequences together, at the first depth")
		reps     = s.Int("-r --reps", "", "N", 5, 1, 1000, "repetitions")
		peer     = s.String("--peer", "", "NAME=PATH", "", "compare with llama=PATH or baton=PATH")
		priority = s.Bool("--priority", "", "run the engines before all other work on the machine (needs root)")
		asJSON   = s.Bool("--json", "", "print JSON")
	)
	rest, err := s.Parse(args, out)
	if err != nil {
		return asUsage(err)
	}
	if len(rest) > 0 || *models == "" {
		return fmt.Errorf("%w: baton bench engine needs -m FILE and takes no other arguments", errUsage)
	}
	o := bench.EngineOptions{Gen: *gen, Seqs: *seqs, Reps: *reps, Priority: *priority}
	if o.Prompts, err = numbers(*prompts, "--n-prompt"); err != nil {
		return err
	}
	if o.Depths, err = numbers(*depths, "--n-depth"); err != nil {
		return err
	}
	if len(o.Prompts) == 1 && o.Prompts[0] == 0 {
		o.Prompts = nil
	}
	counts, err := numbers(*threads, "--threads")
	if err != nil {
		return err
	}
	o.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	var all []bench.Result
models:
	for _, o.Threads = range counts {
		for path := range strings.SplitSeq(*models, ",") {
			o.Model = path
			if err := enginePrograms(&o, *peer); err != nil {
				return err
			}
			var results []bench.Result
			results, err = bench.CompareEngines(ctx, o)
			all = append(all, results...)
			if err != nil {
				break models
			}
		}
	}
	// What there is was measured, also when the rest could not be.
	if *asJSON {
		return errors.Join(bench.WriteJSON(out, all), err)
	}
	return errors.Join(bench.WriteResults(out, all), err)
}

// enginePrograms sets the command lines of both engines.
func enginePrograms(o *bench.EngineOptions, peer string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	model, threads := o.Model, strconv.Itoa(o.Threads)
	baton := func(path string) func(ctx, seqs int) bench.Program {
		return func(ctx, seqs int) bench.Program {
			return bench.Program{Path: path, Args: []string{"bench", "worker", "-m", model, "-t", threads, "-c", strconv.Itoa(ctx), "-np", strconv.Itoa(seqs)}}
		}
	}
	o.Baton = baton(self)
	name, path, _ := strings.Cut(peer, "=")
	o.PeerName = name
	switch {
	case peer == "":
	case path == "":
		return fmt.Errorf("%w: --peer %s has no path", errUsage, peer)
	case name == "baton":
		o.PeerName = "other baton"
		o.Peer = baton(path)
	case name == "llama":
		o.PeerName = "llama.cpp"
		o.Peer = func(ctx, seqs int) bench.Program {
			return bench.Program{Path: path, Args: []string{"serve", model, threads, "--ctx", strconv.Itoa(ctx), "--fa", "1"}}
		}
	default:
		return fmt.Errorf("%w: --peer knows llama=PATH and baton=PATH, not %q", errUsage, name)
	}
	return nil
}

// benchKernel measures the kernels beside their floors.
func benchKernel(ctx context.Context, args []string, out io.Writer) error {
	s := cli.NewSet("bench kernel", "[options] [KERNEL ...]",
		"Measures how fast kernels are, beside a floor measured in the same run: a loop that only reads the same bytes,\n"+
			"or one that only does the multiply-adds. Kernels: "+strings.Join(bench.KernelNames(), ", ")+"; all unless named.\n"+
			kernel.EnvKernels+" in the environment chooses the implementation: "+strings.Join(kernel.Implementations(), ", ")+".")
	var (
		types   = s.String("--type", "", "TYPE,...", "Q4_K,Q6_K,Q8_0,Q4_0,F16", "types of weights")
		shapes  = s.String("--shape", "", "RxC,...", "3072x1024,1024x3072", "rows and columns of weights")
		tokens  = s.String("--tokens", "", "N,...", "1,4,64,512", "tokens at once")
		threads = s.String("-t --threads", "", "N,...", strconv.Itoa(runtime.GOMAXPROCS(0)), "threads")
		reps    = s.Int("-r --reps", "", "N", 5, 1, 1000, "repetitions, of which the best counts")
		first   = s.Bool("--priority", "", "run before all other work on the machine (needs root)")
		asJSON  = s.Bool("--json", "", "print JSON")
	)
	names, err := s.Parse(args, out)
	if err != nil {
		return asUsage(err)
	}
	if *first {
		rest := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.TrimLeft(a, "-") == "priority" })
		return bench.RunFirst(ctx, append([]string{"bench", "kernel"}, rest...))
	}
	o := bench.KernelOptions{Kernels: names, Reps: *reps}
	if o.Tokens, err = numbers(*tokens, "--tokens"); err != nil {
		return err
	}
	if o.Threads, err = numbers(*threads, "--threads"); err != nil {
		return err
	}
	if o.Types, err = weightTypes(*types); err != nil {
		return err
	}
	for shape := range strings.SplitSeq(*shapes, ",") {
		var rc [2]int
		if n, err := fmt.Sscanf(shape, "%dx%d", &rc[0], &rc[1]); n != 2 || err != nil {
			return fmt.Errorf("%w: --shape %s: expected ROWSxCOLUMNS", errUsage, shape)
		}
		o.Shapes = append(o.Shapes, rc)
	}
	results, err := bench.MeasureKernels(ctx, o, func(r *bench.KernelResult) {
		fmt.Fprintf(os.Stderr, "\r%-60s", fmt.Sprintf("%s %s %s %d tokens, %d threads", r.Kernel, r.Type, r.Shape, r.Tokens, r.Threads))
	})
	fmt.Fprintf(os.Stderr, "\r%60s\r", "")
	if err != nil {
		return err
	}
	if *asJSON {
		return bench.WriteJSON(out, results)
	}
	return bench.WriteKernels(out, results)
}

// benchAccuracy compares logits and perplexity with the float path's.
func benchAccuracy(ctx context.Context, args []string, out io.Writer) error {
	s := cli.NewSet("bench accuracy", "[options]",
		"Compares logits, and the perplexity of a text, with those of a slow path that rounds nothing. With --peer\n"+
			"llama=PATH (peers/llama's llamapeer) another engine's, too.")
	var (
		models  = s.String("-m --model", "", "FILES", "", "GGUF files, separated by commas; without it the built-in demo model")
		text    = s.String("-f --file", "", "FILE", "", "text; without it a built-in tale")
		tokens  = s.Int("-n --tokens", "", "N", 0, 0, 1<<20, "use at most N tokens of the text; 0: all")
		threads = s.Int("-t --threads", "", "N", runtime.GOMAXPROCS(0), 1, 1024, "threads")
		peer    = s.String("--peer", "", "llama=PATH", "", "measure llama.cpp, too")
		asJSON  = s.Bool("--json", "", "print JSON")
	)
	rest, err := s.Parse(args, out)
	if err != nil {
		return asUsage(err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: baton bench accuracy takes no arguments, only options", errUsage)
	}
	o := bench.AccuracyOptions{Tokens: *tokens, Threads: *threads}
	if *text != "" {
		b, err := os.ReadFile(*text)
		if err != nil {
			return err
		}
		o.Text = string(b)
	}
	if *peer != "" {
		name, path, _ := strings.Cut(*peer, "=")
		if name != "llama" || path == "" {
			return fmt.Errorf("%w: --peer %s: expected llama=PATH", errUsage, *peer)
		}
		o.PeerName = "llama.cpp"
		o.Peer = func(model, tokens, logits string) bench.Program {
			return bench.Program{Path: path, Args: []string{"logits", model, tokens, logits, strconv.Itoa(*threads), "--fa", "1"}}
		}
	}
	var results []bench.AccuracyResult
	for path := range strings.SplitSeq(*models, ",") {
		o.Model = path
		r, err := bench.MeasureAccuracy(ctx, o)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if *asJSON {
		return bench.WriteJSON(out, results)
	}
	return bench.WriteAccuracy(out, results)
}

// weightTypes reads names such as Q4_K.
func weightTypes(list string) (types []quant.Type, err error) {
	all := []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0, quant.Q4_K, quant.Q6_K}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(t quant.Type) bool { return strings.EqualFold(t.String(), name) })
		if i < 0 {
			return nil, fmt.Errorf("%w: --type %s: there is no type %q", errUsage, list, name)
		}
		types = append(types, all[i])
	}
	return types, nil
}

// benchWorker is Baton's side of a comparison; bench engine starts it.
func benchWorker(args []string, out io.Writer) error {
	s := cli.NewSet("bench worker", "[options]", "Answers the lines that bench engine sends (internal/bench, protocol.go).")
	var (
		path    = s.String("-m --model", "", "FILE", "", "GGUF file")
		threads = s.Int("-t --threads", "", "N", runtime.GOMAXPROCS(0), 1, 1024, "threads")
		ctx     = s.Int("-c --ctx-size", "", "N", 4096, 1, 1<<24, "cells of a sequence")
		seqs    = s.Int("-np --parallel", "", "N", 1, 1, 64, "sequences")
	)
	if _, err := s.Parse(args, out); err != nil {
		return asUsage(err)
	}
	w, err := bench.NewWorker(bench.WorkerOptions{Path: *path, Threads: *threads, Ctx: *ctx, Seqs: *seqs})
	if err != nil {
		return err
	}
	defer w.Close()
	return w.Serve(os.Stdin, out)
}

// numbers reads a list of numbers that are not negative.
func numbers(list, option string) (n []int, err error) {
	for f := range strings.SplitSeq(list, ",") {
		v, err := strconv.Atoi(strings.TrimSpace(f))
		if err != nil || v < 0 || v > 1<<24 {
			return nil, fmt.Errorf("%w: %s %s: expected numbers separated by commas", errUsage, option, list)
		}
		n = append(n, v)
	}
	return n, nil
}
