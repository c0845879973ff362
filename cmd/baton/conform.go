package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"baton/internal/cli"
	"baton/internal/conform"
	"baton/internal/load"
)

// conformCommand is "baton conform provider|decoder": tests for programs of other people.
func conformCommand(ctx context.Context, args []string, out io.Writer) error {
	const usage = "baton conform provider PROGRAM, or baton conform decoder SOCKET"
	if len(args) == 0 {
		return fmt.Errorf("%w: %s", errUsage, usage)
	}
	switch args[0] {
	case "provider":
		return conformProvider(ctx, args[1:], out)
	case "decoder":
		return conformDecoder(ctx, args[1:], out)
	case "help", "-h", "--help":
		_, err := fmt.Fprintln(out, "usage:", usage)
		return err
	}
	return fmt.Errorf("%w: there is no %q: %s", errUsage, args[0], usage)
}

func conformProvider(ctx context.Context, args []string, out io.Writer) error {
	s := cli.NewSet("conform provider", "[options] [--] PROGRAM [ARG...]", "Tests a provider against a fake decoder: what it writes, what it leaves alone, what it answers.\n"+
		"The program inherits the connection as descriptor 3; {} in an ARG stands for the path of a socket to connect to instead.")
	return runConform(ctx, s, args, out, func(rest []string) bool { return len(rest) > 0 }, conform.Provider)
}

func conformDecoder(ctx context.Context, args []string, out io.Writer) error {
	s := cli.NewSet("conform decoder", "[options] SOCKET", "Tests a decoder against a fake provider: that it adopts what is right and refuses what is not.\n"+
		"SOCKET is its control socket; provider.sock is beside it. Nobody else should be using the decoder.")
	return runConform(ctx, s, args, out, func(rest []string) bool { return len(rest) == 1 },
		func(ctx context.Context, o conform.Options, rest []string) (*conform.Report, error) {
			return conform.Decoder(ctx, o, rest[0])
		})
}

func runConform(ctx context.Context, s *cli.Set, args []string, out io.Writer, valid func(rest []string) bool,
	test func(context.Context, conform.Options, []string) (*conform.Report, error)) error {
	path := s.String("-m --model", "BATON_MODEL LLAMA_ARG_MODEL", "FILE", "", "GGUF file that the program works with; without it the built-in demo model")
	threads := s.Int("-t --threads", "BATON_THREADS", "N", 0, 0, 1024, "threads that compute what is compared; 0: one")
	tolerance := s.Float("--tolerance", "", "E", 0.05, 0, 1, "relative error that a row may have")
	timeout := s.Duration("--timeout", "", "TIME", time.Minute, "how long a prompt of a few tokens may take")
	rest, err := s.Parse(args, out)
	if err != nil {
		return asUsage(err)
	}
	if !valid(rest) {
		return fmt.Errorf("%w: see baton %s --help", errUsage, s.Name())
	}
	b, err := load.Open(*path)
	if err != nil {
		return err
	}
	defer b.Close()
	report, err := test(ctx, conform.Options{Model: b.Model, Threads: *threads, Tolerance: *tolerance, Timeout: *timeout, Out: out}, rest)
	if err != nil {
		return err
	}
	if !report.OK() {
		return errors.New("it does not conform")
	}
	return nil
}
