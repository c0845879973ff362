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
	"strings"
	"syscall"
	"time"

	"baton/internal/cli"
	"baton/internal/decoder"
	"baton/internal/engine"
	"baton/internal/load"
	"baton/internal/server"
)

// serveFlags is what "baton serve" is told.
type serveFlags struct {
	model, host, alias, keyFile, logFormat *string
	port, ctx, slots, threads, microBatch  *int
	kvMiB                                  *int
	drain                                  *time.Duration
	verbose                                *bool
}

func newServeFlags() (*cli.Set, *serveFlags) {
	s := cli.NewSet("serve", "[options]", "Serves a model over HTTP, compatible with OpenAI's API and llama-server's.")
	return s, &serveFlags{
		model:      s.String("-m --model", "BATON_MODEL LLAMA_ARG_MODEL", "FILE", "", "GGUF file; without it the built-in demo model"),
		host:       s.String("--host", "BATON_HOST LLAMA_ARG_HOST", "ADDR", "127.0.0.1", "address to listen on; another than loopback needs --api-key-file"),
		port:       s.Int("--port", "BATON_PORT LLAMA_ARG_PORT", "N", 8080, 0, 65535, "port to listen on; 0: a free one"),
		ctx:        s.Int("-c --ctx-size", "BATON_CTX_SIZE LLAMA_ARG_CTX_SIZE", "N", 0, 0, 1<<30, "context of each slot, in tokens; 0: the model's own, at most 8192"),
		slots:      s.Int("-np --parallel", "BATON_PARALLEL LLAMA_ARG_N_PARALLEL", "N", 4, 1, 256, "slots: requests that run at once"),
		threads:    s.Int("-t --threads", "BATON_THREADS LLAMA_ARG_THREADS", "N", 0, 0, 1024, "threads; 0: the cores that this process may use"),
		microBatch: s.Int("-ub --ubatch-size", "BATON_UBATCH LLAMA_ARG_UBATCH", "N", 512, 1, 1<<16, "tokens a step at most"),
		kvMiB:      s.Int("--kv-mib", "BATON_KV_MIB", "N", 0, 0, 1<<30, "limit of the KV cache in MiB; 0: every slot full, and one more"),
		alias:      s.String("-a --alias", "BATON_ALIAS LLAMA_ARG_ALIAS", "NAME,...", "", "names that the model is served under"),
		keyFile:    s.String("--api-key-file", "BATON_API_KEY_FILE LLAMA_ARG_API_KEY_FILE", "FILE", "", "accepted API keys, one a line"),
		drain:      s.Duration("--drain", "BATON_DRAIN", "TIME", 30*time.Second, "how long running answers may go on after SIGTERM"),
		logFormat:  s.Choice("--log-format", "BATON_LOG_FORMAT", []string{"text", "json"}, "format of the log on standard error"),
		verbose:    s.Bool("-v --verbose", "BATON_VERBOSE", "log every request"),
	}
}

// serve runs the server until ctx ends, then drains it.
func serve(ctx context.Context, args []string, out io.Writer) error {
	set, f := newServeFlags()
	rest, err := set.Parse(args, out)
	if err != nil {
		return asUsage(err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: baton serve takes options only, found %q", errUsage, rest[0])
	}
	keys, err := readKeys(*f.keyFile)
	if err != nil {
		return err
	}
	if err := server.CheckExposure(*f.host, keys); err != nil {
		return fmt.Errorf("%w (--api-key-file FILE)", err)
	}
	log := newLogger(*f.logFormat, *f.verbose)
	l, err := listen(ctx, *f.host, *f.port)
	if err != nil {
		return err
	}
	srv := server.New(server.Config{Aliases: splitNames(*f.alias), Keys: keys, Version: "baton-" + versionString(), Logger: log})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // answers 503 until the model is loaded

	d, b, err := start(f, log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer b.Close()
	srv.SetBackend(server.Backend{Engine: d, Tokenizer: load.Tokenizer{Vocab: b.Vocab}, Template: b.Template})
	announce(out, log, l.Addr(), d.Info())

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
	return errors.Join(err, d.Close(end))
}

// start loads the model and starts its decoder.
func start(f *serveFlags, log *slog.Logger) (*decoder.Decoder, *load.Bundle, error) {
	b, err := load.Open(*f.model)
	if err != nil {
		return nil, nil, err
	}
	for _, note := range b.Notes {
		log.Warn(note)
	}
	d, err := decoder.New(b.Model, b.Vocab, decoder.Options{
		Slots: *f.slots, Ctx: *f.ctx, Threads: *f.threads, MicroBatch: max(*f.microBatch, *f.slots),
		KVBytes: int64(*f.kvMiB) << 20, Name: b.Name, Path: b.Path,
	})
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return d, b, nil
}

// announce tells a person where the server is and how to try it.
func announce(out io.Writer, log *slog.Logger, addr net.Addr, i engine.Info) {
	log.Info("ready", "model", i.Name, "arch", i.Arch, "quant", i.Quant, "slots", i.Slots, "ctx", i.CtxSlot,
		"threads", i.Threads, "kernels", i.Kernels, "kv_mib", i.KVBytes>>20)
	url := "http://" + addr.String()
	if a, ok := addr.(*net.TCPAddr); ok && a.IP.IsUnspecified() { // reachable by any of our addresses
		url = "http://127.0.0.1:" + strconv.Itoa(a.Port)
	}
	fmt.Fprintf(out, "Baton is ready at %s\n\n  model    %s (%s, %s, %.1f M parameters)\n  context  %d tokens in each of %d slots (the model's own: %d)\n  threads  %d, kernels %s\n\n"+
		"Try it:\n\n  curl %s/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Tell me a story about a fox.\"}]}'\n\n",
		url, i.Name, i.Arch, i.Quant, float64(i.Params)/1e6, i.CtxSlot, i.Slots, i.CtxTrain, i.Threads, i.Kernels, url)
}

func newLogger(format string, verbose bool) *slog.Logger {
	opt := &slog.HandlerOptions{Level: slog.LevelInfo}
	if verbose {
		opt.Level = slog.LevelDebug
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, opt))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opt))
}

func listen(ctx context.Context, host string, port int) (net.Listener, error) {
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is already in use by another program: choose another --port", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	return l, nil
}

func readKeys(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the API keys: %w", err)
	}
	defer f.Close()
	keys, err := server.ReadKeys(f)
	if err != nil {
		return nil, fmt.Errorf("reading the API keys from %s: %w", path, err)
	}
	return keys, nil
}

func splitNames(s string) (names []string) {
	for n := range strings.SplitSeq(s, ",") {
		if n = strings.TrimSpace(n); n != "" {
			names = append(names, n)
		}
	}
	return names
}
