package main

import (
	"context"
	"os"
	"strconv"

	"baton/internal/cli"
	"baton/internal/gateway"
	"baton/internal/supervise"
)

// modelFD is where children find the model's file: the first descriptor after the
// lifeline.
const modelFD = lifelineFD + 1

// decoder says how the decoder of a server is started: with the server's options, and
// with its open model file, so that a decoder which is started again serves the same
// model though the file may have been replaced.
func (f *serveFlags) decoder(b *backend, set *cli.Set) gateway.Command {
	args := []string{
		"decode", "--child", "--run-dir", b.dir.Path(), "--model", *f.model, "--model-fd", strconv.Itoa(modelFD),
		"--ctx-size", strconv.Itoa(*f.ctx), "--parallel", strconv.Itoa(*f.slots), "--threads", strconv.Itoa(*f.threads),
		"--ubatch-size", strconv.Itoa(*f.microBatch), "--kv-mib", strconv.Itoa(*f.kvMiB),
	}
	return f.child(args, b, set)
}

// child says how one of our own processes is started. Its log comes as JSON, and is
// passed on in the form that the server's has.
func (f *serveFlags) child(args []string, b *backend, set *cli.Set) gateway.Command {
	args = append(args, "--log-format", "json", "--verbose="+strconv.FormatBool(*f.verbose))
	return func(context.Context) (*supervise.Command, error) {
		return &supervise.Command{
			Args: args, Env: supervise.Env(set.Env()...), Files: []*os.File{b.source.File()}, Lifeline: true,
		}, nil
	}
}
