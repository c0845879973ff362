package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"baton/internal/cli"
	"baton/internal/engine"
	"baton/internal/gateway"
	"baton/internal/load"
	"baton/internal/rundir"
	"baton/internal/server"
)

// serveFlags is what "baton serve" is told.
type serveFlags struct {
	engineFlags
	prefillOptions
	slotFileFlags
	apiFlags
	host, runDir *string
	port         *int
}

func newServeFlags() (*cli.Set, *serveFlags) {
	s := cli.NewSet("serve", "[options]", "Serves a model over HTTP, compatible with OpenAI's API and llama-server's.")
	return s, &serveFlags{
		engineFlags:    newEngineFlags(s),
		prefillOptions: newPrefillOptions(s),
		slotFileFlags:  newSlotFileFlags(s),
		host:           s.String("--host", "BATON_HOST LLAMA_ARG_HOST", "ADDR", "127.0.0.1", "address to listen on; another than loopback needs --api-key-file"),
		port:           s.Int("--port", "BATON_PORT LLAMA_ARG_PORT", "N", 8080, 0, 65535, "port to listen on; 0: a free one"),
		apiFlags:       newAPIFlags(s),
		runDir:         s.String("--run-dir", "BATON_RUN_DIR", "DIR", "", "directory for the sockets between the processes, with mode 0700; without it a fresh one"),
	}
}

// serve runs the server until ctx ends, then drains it.
func serve(ctx context.Context, args []string, out io.Writer) error {
	set, f := newServeFlags()
	rest, err := set.Parse(args, out)
	if err != nil {
		return asUsage(err)
	}
	if err := noArguments(set, rest); err != nil {
		return err
	}
	keys, err := f.keys()
	if err != nil {
		return err
	}
	l, err := listen(ctx, *f.host, *f.port, keys)
	if err != nil {
		return err
	}
	ctx, out, stderr := outliveReader(ctx, out)
	log := newLogger(stderr, *f.logFormat, *f.verbose)
	plan, err := f.plan(set)
	if err != nil {
		l.Close()
		return err
	}
	srv := f.server(keys, log)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // answers 503 until the model is loaded
	b, err := f.startBackend(ctx, set, plan, log)
	if err != nil {
		l.Close()
		if ctx.Err() != nil { // it was stopped before it was ready
			return nil
		}
		return err
	}
	back := server.Backend{
		Engine: b.processes.Engine, Tokenizer: load.Tokenizer{Vocab: b.text.Vocab}, Template: b.text.Template,
		Collectors: b.processes.Collectors(),
	}
	if *f.slotSavePath != "" {
		back.SlotFiles = b.processes.SlotFiles()
	}
	srv.SetBackend(back)
	announce(out, log, l.Addr(), b.processes.Engine.Info())

	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping: running answers may finish", "within", f.drain.String())
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), *f.drain)
		if srv.Shutdown(drain) != nil {
			log.Warn("answers that were still running have been cut off")
		}
		cancel()
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, b.close(end))
}

// backend is what answers: a process that runs the model, and in this one its vocabulary
// and chat template.
type backend struct {
	source    *load.Source
	text      *load.Bundle
	dir       *rundir.Dir
	states    string // directory of slots' files; empty: none
	ownStates bool   // it is ours to remove
	processes *gateway.Processes
}

// startBackend opens the model and starts the processes.
func (f *serveFlags) startBackend(ctx context.Context, set *cli.Set, plan *prefillPlan, log *slog.Logger) (_ *backend, err error) {
	b := new(backend)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close(ctx))
		}
	}()
	if b.source, err = load.OpenSource(*f.model); err != nil {
		return b, err
	}
	if b.text, err = b.source.OpenText(); err != nil {
		return b, err
	}
	if b.dir, err = rundir.Open(*f.runDir); err != nil {
		return b, err
	}
	if err = b.dir.Claim(); err != nil { // or we would talk to the decoder of another server
		return b, err
	}
	if b.states = *f.slotSavePath; b.states == "" && plan.trust == handoffFile {
		if b.states, err = os.MkdirTemp(b.dir.Path(), "states-"); err != nil {
			return b, err
		}
		b.ownStates = true
	}
	b.processes, err = gateway.Start(ctx, gateway.ProcessOptions{
		Socket: b.dir.Socket(controlSocket), Decoder: f.decoder(b, set, plan), Provider: f.provider(b, set, plan, log), Logger: log,
	})
	return b, err
}

// close ends what was started.
func (b *backend) close(ctx context.Context) error {
	var err error
	if b.processes != nil {
		err = b.processes.Close(ctx)
	}
	if b.ownStates {
		err = errors.Join(err, os.RemoveAll(b.states))
	}
	if b.dir != nil {
		err = errors.Join(err, b.dir.Close())
	}
	if b.text != nil {
		err = errors.Join(err, b.text.Close())
	}
	if b.source != nil {
		err = errors.Join(err, b.source.Close())
	}
	return err
}

// announce tells a person where the server is and how to try it.
func announce(out io.Writer, log *slog.Logger, addr net.Addr, i engine.Info) {
	logReady(log, i)
	url := "http://" + addr.String()
	if a, ok := addr.(*net.TCPAddr); ok && a.IP.IsUnspecified() { // reachable by any of our addresses
		url = "http://127.0.0.1:" + strconv.Itoa(a.Port)
	}
	fmt.Fprintf(out, "Baton is ready at %s\n\n%s\n"+
		"Try it:\n\n  curl %s/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Tell me a story about a fox.\"}]}'\n\n",
		url, describe(i), url)
}

// describe is what a person wants to know of a model that is being served.
func describe(i engine.Info) string {
	return fmt.Sprintf("  model    %s (%s, %s, %.1f M parameters)\n  context  %d tokens in each of %d slots (the model's own: %d)\n  threads  %d, kernels %s\n",
		i.Name, i.Arch, i.Quant, float64(i.Params)/1e6, i.CtxSlot, i.Slots, i.CtxTrain, i.Threads, i.Kernels)
}

func logReady(log *slog.Logger, i engine.Info) {
	log.Info("ready", "model", i.Name, "arch", i.Arch, "quant", i.Quant, "slots", i.Slots, "ctx", i.CtxSlot,
		"threads", i.Threads, "kernels", i.Kernels, "kv_mib", i.KVBytes>>20)
}
