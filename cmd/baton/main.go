// Command baton serves language models. One process works through a prompt, another
// generates the answer, and the KV cache between them is never copied.
//
// Each subcommand has a file of its own, with its flags and its wiring and nothing
// else.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"baton/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := dispatch(ctx, os.Args[1:], os.Stdout)
	report(err)
	os.Exit(exitCode(err))
}

// command is one subcommand.
type command struct {
	name  string
	about string // empty: not for people
	run   func(ctx context.Context, args []string, out io.Writer) error
}

func commands() []command {
	return []command{
		{"serve", "serve a model over HTTP (OpenAI and llama-server compatible)", serve},
		{"decode", "run a decoder alone, on a Unix socket", decode},
		{"prefill", "process prompts for a decoder in another process", prefill},
		{"conform", "test a provider or a decoder of your own", conformCommand},
		{"run", "answer a prompt in the terminal", run},
		{"model", "inspect or verify a GGUF file", modelCommand},
		{"bench", "measure speed, alone or beside another engine", benchCommand},
		{"version", "print the version", version},
		{connectCommand, "", connect},
	}
}

// errUsage marks mistakes in the command line.
var errUsage = errors.New("usage")

func dispatch(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		usage(os.Stderr)
		return errUsage
	}
	switch args[0] {
	case "help", "-h", "--help":
		usage(out)
		return nil
	case "-v", "--version":
		return version(ctx, nil, out)
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:], out)
		}
	}
	return fmt.Errorf("%w: there is no command %q (see baton help)", errUsage, args[0])
}

func usage(w io.Writer) {
	fmt.Fprint(w, "usage: baton COMMAND [options]\n\ncommands:\n")
	for _, c := range commands() {
		if c.about != "" {
			fmt.Fprintf(w, "  %-10s %s\n", c.name, c.about)
		}
	}
	fmt.Fprint(w, "\nbaton COMMAND --help shows the options of a command.\n"+
		"With no model given, the built-in demo model is used.\n")
}

// report prints err for people; help and bare usage have printed themselves.
func report(err error) {
	if err == nil || errors.Is(err, cli.ErrHelp) || err == errUsage { //nolint:errorlint // wrapped, it has a message that is still to be printed
		return
	}
	fmt.Fprintln(os.Stderr, "baton:", err)
}

func exitCode(err error) int {
	switch {
	case err == nil || errors.Is(err, cli.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	}
	return 1
}
