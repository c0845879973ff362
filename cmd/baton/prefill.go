package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"baton/internal/cli"
	"baton/internal/gguf"
	"baton/internal/handoff"
	"baton/internal/kernel"
	"baton/internal/model"
	"baton/internal/provider"
	"baton/internal/rundir"
	"baton/internal/sandbox"
	"baton/internal/shm"
)

// prefillFlags is what "baton prefill" is told.
type prefillFlags struct {
	model, name, trust, connect, listen, logFormat *string
	out, tokens                                    *string
	fd, modelFD, threads, microBatch, nice         *int
	noSandbox, verbose                             *bool
}

func newPrefillFlags() (*cli.Set, *prefillFlags) {
	s := cli.NewSet("prefill", "[options]", "Processes prompts for a decoder in another process: writes their KV rows into the decoder's memory.\n"+
		"One of --connect, --listen and --fds says where the decoder is; with --out it is a file that a decoder restores.")
	return s, &prefillFlags{
		connect:    s.String("--connect", "", "PATH", "", "connect to the decoder's socket for providers, and end when it does"),
		listen:     s.String("--listen", "", "PATH", "", "wait for decoders at this socket, in a directory of mode 0700"),
		fd:         s.Int("--fds", "", "N", -1, -1, 1<<20, "process one prompt for the decoder at the other end of this inherited socket, and end"),
		out:        s.String("--out", "", "FILE", "", "process the token ids of --tokens alone, write the state of their cells to FILE in llama.cpp's format, and end"),
		tokens:     s.String("--tokens", "", "FILE", "-", "token ids for --out, numbers separated by anything else; -: from standard input"),
		model:      s.String("-m --model", "BATON_MODEL LLAMA_ARG_MODEL", "FILE", "", "GGUF file, the decoder's; without it the built-in demo model"),
		modelFD:    s.Int("--model-fd", "", "N", -1, -1, 1<<20, "inherited descriptor of the model's file, which -m only names then"),
		name:       s.String("--name", "", "NAME", "cpu", "name to register with"),
		trust:      s.String("--trust", "", "MODE,...", "leased,sealed", "trust modes to keep to: leased, sealed, attached"),
		threads:    s.Int("-t --threads", "BATON_PREFILL_THREADS", "N", 0, 0, 1024, "threads; 0: the cores that this process may use"),
		microBatch: s.Int("-ub --micro-batch", "BATON_PREFILL_UBATCH", "N", 256, 1, 1<<16, "tokens that go through the layers at once"),
		nice:       s.Int("--nice", "", "N", 0, 0, 19, "how much to give way to other processes of the same session"),
		noSandbox:  s.Bool("--no-sandbox", "", "do not restrict what this process can do: for debuggers and profilers"),
		logFormat:  s.Choice("--log-format", "BATON_LOG_FORMAT", []string{"text", "json"}, "format of the log on standard error"),
		verbose:    s.Bool("-v --verbose", "BATON_VERBOSE", "log every prompt"),
	}
}

// prefill works for decoders until ctx ends, or the only decoder does.
func prefill(ctx context.Context, args []string, out io.Writer) error {
	set, f := newPrefillFlags()
	rest, err := set.Parse(args, out)
	if err != nil {
		return asUsage(err)
	}
	if err := noArguments(set, rest); err != nil {
		return err
	}
	trust, err := parseTrusts(*f.trust)
	if err != nil {
		return asUsage(err)
	}
	if *f.out != "" {
		return f.writeState(ctx, out)
	}
	inside, err := sandbox.Inside()
	if err != nil {
		return err
	}
	if inside == nil {
		return f.enter()
	}
	return f.provide(ctx, inside, trust)
}

// enter opens all that is needed and starts this program again, as a process that can
// open nothing.
func (f *prefillFlags) enter() error {
	socket, err := f.openSocket()
	if err != nil {
		return err
	}
	defer socket.Close()
	source, err := openSource(*f.modelFD, *f.model)
	if err != nil {
		return err
	}
	defer source.Close()
	// Decoders hand over a descriptor for each block, all of a prompt's at once.
	if err := shm.CheckFileLimit(1 << 10); err != nil {
		newLogger(os.Stderr, *f.logFormat, *f.verbose).Warn("long prompts may fail", "reason", err)
	}
	return sandbox.Enter(sandbox.Config{Files: []*os.File{socket, source.File()}, Nice: *f.nice, None: *f.noSandbox})
}

// provide works for the decoder that the socket leads to, or those.
func (f *prefillFlags) provide(ctx context.Context, inside *sandbox.State, trust []handoff.Trust) error {
	log := newLogger(os.Stderr, *f.logFormat, *f.verbose)
	socket, weights := inside.Files[0], inside.Files[1]
	name := *f.model
	if name == "" {
		name = "built-in model"
	}
	file, err := gguf.OpenFd(int(weights.Fd()), name)
	if err := errors.Join(err, weights.Close()); err != nil { // what is mapped stays
		return err
	}
	defer file.Close()
	m, err := model.Load(file)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, note := range kernel.SelfTest() {
		log.Warn(note)
	}
	p, err := provider.New(m, provider.Options{Name: *f.name, Trust: trust, Threads: *f.threads, MicroBatch: *f.microBatch, Log: log})
	if err != nil {
		return err
	}
	defer p.Close()
	for _, reason := range inside.Missing {
		log.Warn("this process can do more than it should", "reason", reason)
	}
	log.Info("ready", "provider", *f.name, "model", m.Name, "trust", *f.trust, "sandbox", inside.String())
	if err := inside.Lock(); err != nil {
		return err
	}
	if *f.listen != "" {
		l, err := net.FileListener(socket)
		if err := errors.Join(err, socket.Close()); err != nil {
			return err
		}
		return p.Listen(ctx, l.(*net.UnixListener))
	}
	c, err := net.FileConn(socket)
	if err := errors.Join(err, socket.Close()); err != nil { // or nobody would see us leave
		return err
	}
	u, ok := c.(*net.UnixConn)
	switch {
	case !ok:
		return errors.Join(fmt.Errorf("descriptor %d is no Unix socket", *f.fd), c.Close())
	case *f.fd >= 0:
		return p.ServeOne(ctx, u)
	}
	return p.Serve(ctx, u)
}

// openSocket opens what leads to the decoder: a connection, or a listening socket.
func (f *prefillFlags) openSocket() (*os.File, error) {
	given := 0
	for _, is := range []bool{*f.connect != "", *f.listen != "", *f.fd >= 0} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, fmt.Errorf("%w: baton prefill needs one of --connect, --listen, --fds and --out", errUsage)
	}
	switch {
	case *f.connect != "":
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: *f.connect, Net: "unix"})
		if err != nil {
			return nil, fmt.Errorf("connecting to the decoder: %w", err)
		}
		defer c.Close()
		return c.File()
	case *f.listen != "":
		return listenIn(*f.listen)
	}
	unix.CloseOnExec(*f.fd)
	return os.NewFile(uintptr(*f.fd), "inherited socket"), nil
}

// listenIn makes a listening socket in a directory that only its owner can enter.
func listenIn(path string) (*os.File, error) {
	dir, err := rundir.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	l, err := dir.Listen(filepath.Base(path))
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the duplicate goes on listening
	defer l.Close()
	return l.File()
}

func parseTrusts(list string) (trust []handoff.Trust, err error) {
	for name := range strings.SplitSeq(list, ",") {
		t, err := handoff.ParseTrust(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		trust = append(trust, t)
	}
	return trust, nil
}
