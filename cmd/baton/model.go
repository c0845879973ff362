package main

import (
	"context"
	"fmt"
	"io"

	"baton/internal/cli"
	"baton/internal/gguf"
	"baton/internal/jinja"
	"baton/internal/model"
	"baton/internal/modelfile"
	"baton/internal/vocab"
)

// modelCommand is "baton model inspect|verify FILE".
func modelCommand(ctx context.Context, args []string, out io.Writer) error {
	const usage = "baton model inspect FILE.gguf, or baton model verify FILE.gguf"
	if len(args) == 0 {
		return fmt.Errorf("%w: %s", errUsage, usage)
	}
	switch args[0] {
	case "inspect":
		return inspect(args[1:], out)
	case "verify":
		return verify(ctx, args[1:], out)
	case "help", "-h", "--help":
		_, err := fmt.Fprintln(out, "usage:", usage)
		return err
	}
	return fmt.Errorf("%w: there is no %q: %s", errUsage, args[0], usage)
}

// support asks the packages that would run the model whether they can.
func support() modelfile.Support {
	return modelfile.Support{
		Model:    func(f *gguf.File) error { _, err := model.Load(f); return err },
		Vocab:    func(f *gguf.File) error { _, err := vocab.New(f); return err },
		Template: func(source string) error { _, err := jinja.Parse(source); return err },
	}
}

func inspect(args []string, out io.Writer) error {
	s := cli.NewSet("model inspect", "[options] FILE.gguf", "Shows what a GGUF file holds and what Baton can do with it.")
	asJSON := s.Bool("--json", "", "print JSON")
	brief := s.Bool("--brief", "", "leave out the tables of metadata and tensors")
	f, err := openModel(s, args, out)
	if err != nil {
		return err
	}
	defer f.Close()
	return modelfile.Inspect(out, f, modelfile.Options{JSON: *asJSON, Brief: *brief, Support: support()})
}

func verify(ctx context.Context, args []string, out io.Writer) error {
	s := cli.NewSet("model verify", "[options] FILE.gguf", "Reads every byte of a GGUF file and says what is wrong with it.")
	asJSON := s.Bool("--json", "", "print JSON")
	f, err := openModel(s, args, out)
	if err != nil {
		return err
	}
	defer f.Close()
	bar := newProgress("verify")
	v, err := modelfile.Verify(ctx, f, func(done, total uint64) { bar.set(int(done>>10), int(total>>10)) })
	bar.done()
	if err != nil {
		return err
	}
	if err := v.Write(out, *asJSON); err != nil {
		return err
	}
	if !v.OK() {
		return fmt.Errorf("%s is damaged", f.Name)
	}
	return nil
}

func openModel(s *cli.Set, args []string, out io.Writer) (*gguf.File, error) {
	rest, err := s.Parse(args, out)
	if err != nil {
		return nil, asUsage(err)
	}
	if len(rest) != 1 {
		return nil, fmt.Errorf("%w: baton %s takes one file, found %d", errUsage, s.Name(), len(rest))
	}
	return gguf.Open(rest[0])
}
