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
	"baton/internal/load"
	"baton/internal/server"
)

// engineFlags is what a command that runs a model is told about it.
type engineFlags struct {
	model                                  *string
	ctx, slots, threads, microBatch, kvMiB *int
	// shareReady is how many free blocks to keep ready for other processes; no option.
	shareReady int
}

func newEngineFlags(s *cli.Set) engineFlags {
	return engineFlags{
		model:      s.String("-m --model", "BATON_MODEL LLAMA_ARG_MODEL", "FILE", "", "GGUF file; without it the built-in demo model"),
		ctx:        s.Int("-c --ctx-size", "BATON_CTX_SIZE LLAMA_ARG_CTX_SIZE", "N", 0, 0, 1<<30, "context of each slot, in tokens; 0: the model's own, at most 8192"),
		slots:      s.Int("-np --parallel", "BATON_PARALLEL LLAMA_ARG_N_PARALLEL", "N", 4, 1, 256, "slots: requests that run at once"),
		threads:    s.Int("-t --threads", "BATON_THREADS LLAMA_ARG_THREADS", "N", 0, 0, 1024, "threads; 0: the cores that this process may use"),
		microBatch: s.Int("-ub --ubatch-size", "BATON_UBATCH LLAMA_ARG_UBATCH", "N", 512, 1, 1<<16, "tokens a step at most"),
		kvMiB:      s.Int("--kv-mib", "BATON_KV_MIB", "N", 0, 0, 1<<30, "limit of the KV cache in MiB; 0: every slot full, and one more"),
	}
}

// start loads the model and starts its decoder. fd is an inherited descriptor of the
// model's file; < 0: there is none.
func (f *engineFlags) start(fd int, log *slog.Logger) (*decoder.Decoder, *load.Bundle, error) {
	source, err := openSource(fd, *f.model)
	if err != nil {
		return nil, nil, err
	}
	defer source.Close()
	b, err := source.Open()
	if err != nil {
		return nil, nil, err
	}
	for _, note := range b.Notes {
		log.Warn(note)
	}
	d, err := decoder.New(b.Model, b.Vocab, decoder.Options{
		Slots: *f.slots, Ctx: *f.ctx, Threads: *f.threads, MicroBatch: max(*f.microBatch, *f.slots),
		KVBytes: int64(*f.kvMiB) << 20, ShareReady: f.shareReady, Name: b.Name, Path: b.Path,
	})
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return d, b, nil
}

// openSource opens the model's file, or takes it over from the parent process; path is
// then only its name.
func openSource(fd int, path string) (*load.Source, error) {
	if fd >= 0 {
		return load.InheritSource(fd, path)
	}
	return load.OpenSource(path)
}

// apiFlags is what a command that serves the API is told about it, but for the address.
type apiFlags struct {
	alias, keyFile, logFormat *string
	drain                     *time.Duration
	verbose                   *bool
}

func newAPIFlags(s *cli.Set) apiFlags {
	return apiFlags{
		alias:     s.String("-a --alias", "BATON_ALIAS LLAMA_ARG_ALIAS", "NAME,...", "", "names that the model is served under"),
		keyFile:   s.String("--api-key-file", "BATON_API_KEY_FILE LLAMA_ARG_API_KEY_FILE", "FILE", "", "accepted API keys, one a line"),
		drain:     s.Duration("--drain", "BATON_DRAIN", "TIME", 30*time.Second, "how long running answers may go on after SIGTERM"),
		logFormat: s.Choice("--log-format", "BATON_LOG_FORMAT", []string{"text", "json"}, "format of the log on standard error"),
		verbose:   s.Bool("-v --verbose", "BATON_VERBOSE", "log every request"),
	}
}

func newLogger(w io.Writer, format string, verbose bool) *slog.Logger {
	opt := &slog.HandlerOptions{Level: slog.LevelInfo}
	if verbose {
		opt.Level = slog.LevelDebug
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// keys reads the accepted API keys.
func (f *apiFlags) keys() ([]string, error) {
	if *f.keyFile == "" {
		return nil, nil
	}
	file, err := os.Open(*f.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the API keys: %w", err)
	}
	defer file.Close()
	keys, err := server.ReadKeys(file)
	if err != nil {
		return nil, fmt.Errorf("reading the API keys from %s: %w", *f.keyFile, err)
	}
	return keys, nil
}

// server returns a server of the API that answers 503 until it has a backend.
func (f *apiFlags) server(keys []string, log *slog.Logger) *server.Server {
	return server.New(server.Config{Aliases: splitNames(*f.alias), Keys: keys, Version: "baton-" + versionString(), Logger: log})
}

func splitNames(s string) (names []string) {
	for n := range strings.SplitSeq(s, ",") {
		if n = strings.TrimSpace(n); n != "" {
			names = append(names, n)
		}
	}
	return names
}

// listen listens on a TCP address, which without keys must be on this machine only.
func listen(ctx context.Context, host string, port int, keys []string) (net.Listener, error) {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]") // as addresses of IPv6 stand in URLs
	if err := server.CheckExposure(host, keys); err != nil {
		return nil, fmt.Errorf("%w (--api-key-file FILE)", err)
	}
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

// noArguments refuses arguments of a command that takes none.
func noArguments(s *cli.Set, rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("%w: baton %s takes options only, found %q", errUsage, s.Name(), rest[0])
	}
	return nil
}
