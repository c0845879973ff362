package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"baton/internal/cli"
	"baton/internal/control"
	"baton/internal/decoder"
	"baton/internal/load"
	"baton/internal/remote"
	"baton/internal/rundir"
	"baton/internal/server"
)

// controlSocket is the name of the decoder's control socket in the run directory.
const controlSocket = "decoder.sock"

// decodeFlags is what "baton decode" is told.
type decodeFlags struct {
	engineFlags
	apiFlags
	sharingFlags
	slotFileFlags
	runDir, socket, host *string
	port, modelFD        *int
	child                *bool
}

func newDecodeFlags() (*cli.Set, *decodeFlags) {
	s := cli.NewSet("decode", "[options]", "Runs a decoder alone: llama-server's API on a Unix socket that only you can use.")
	return s, &decodeFlags{
		engineFlags: newEngineFlags(s),
		// No variables: a decoder that a server starts inherits the server's.
		runDir:        s.String("--run-dir", "", "DIR", "", "directory for the control socket, with mode 0700; without it a fresh one"),
		socket:        s.String("--socket", "", "PATH", "", "the control socket itself; default "+controlSocket+" in the run directory"),
		host:          s.String("--host", "", "ADDR", "127.0.0.1", "address for the API over TCP; another than loopback needs --api-key-file"),
		port:          s.Int("--port", "", "N", 8081, 0, 65535, "port for the API over TCP; 0: a free one; without --host or --port there is none"),
		apiFlags:      newAPIFlags(s),
		sharingFlags:  newSharingFlags(s),
		slotFileFlags: newSlotFileFlags(s),
		modelFD:       s.Int("--model-fd", "", "N", -1, -1, 1<<20, "inherited descriptor of the model's file, which -m only names then"),
		child:         s.Bool("--child", "", "for use by baton serve: end when descriptor 3, a pipe, closes"),
	}
}

// releasedLimit is how long a child drains: its parent has done so, or is dead.
const releasedLimit = time.Second

// decode runs a decoder until ctx ends, then drains it. With --child it ends with its
// lifeline instead, and at once: its parent has drained. A parent knows that the decoder
// is ready when the control socket says so (remote.Dial waits for that).
func decode(ctx context.Context, args []string, out io.Writer) error {
	set, f := newDecodeFlags()
	rest, err := set.Parse(args, out)
	if err != nil {
		return asUsage(err)
	}
	if err := noArguments(set, rest); err != nil {
		return err
	}
	var stderr io.Writer = os.Stderr
	if !*f.child {
		ctx, out, stderr = outliveReader(ctx, out)
	} else if ctx, err = asChild(); err != nil {
		return err
	}
	dir, l, err := f.listen()
	if err != nil {
		return err
	}
	defer dir.Close()
	s, err := f.newDecodeServer(ctx, stderr, l, set.Given("--host") || set.Given("--port"))
	if err != nil {
		l.Close()
		return err
	}
	off := f.off(s.log)
	if off == "" {
		f.shareReady = readyBlocks
	}
	d, b, err := f.start(*f.modelFD, s.log)
	if err != nil {
		return errors.Join(err, s.close())
	}
	defer b.Close()
	shares, err := f.share(d, off, dir, s.actions, s.log)
	if err != nil {
		return errors.Join(err, s.close(), d.Close(expired()))
	}
	files, err := f.slotFileFlags.open(d, s.log)
	if err != nil {
		return errors.Join(err, s.close(), shares.close(), d.Close(expired()))
	}
	s.ready(d, b, files)
	if !*f.child { // whose parent talks to people
		s.announce(out, l.Addr(), d)
	}

	select {
	case err = <-s.served:
	case <-ctx.Done():
	}
	limit := *f.drain
	if errors.Is(context.Cause(ctx), errReleased) {
		limit = releasedLimit
	} else {
		s.log.Info("stopping: running answers may finish", "within", limit.String())
	}
	return errors.Join(err, s.drain(context.WithoutCancel(ctx), limit), shares.close(), files.close(), d.Close(expired()))
}

// expired is a context that has ended: what still runs is cut off.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// listen opens the run directory and makes the control socket in it.
func (f *decodeFlags) listen() (*rundir.Dir, net.Listener, error) {
	path, name := *f.runDir, controlSocket
	if *f.socket != "" {
		if path != "" {
			return nil, nil, fmt.Errorf("%w: found --run-dir and --socket, expected one of them", errUsage)
		}
		path, name = filepath.Dir(*f.socket), filepath.Base(*f.socket)
	}
	dir, err := rundir.Open(path)
	if err != nil {
		return nil, nil, err
	}
	l, err := dir.Listen(name)
	if err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	return dir, l, nil
}

// decodeServer is what the decoder listens with: the control socket with all there is,
// and, if asked for, TCP with the API alone.
type decodeServer struct {
	log     *slog.Logger
	engine  *remote.Handler
	api     *server.Server
	actions *control.Handler
	control *http.Server
	unix    net.Listener
	tcp     net.Listener // or nil
	served  chan error   // what a listener has failed with
}

// newDecodeServer starts to answer on l: 503 until the model is loaded.
func (f *decodeFlags) newDecodeServer(ctx context.Context, stderr io.Writer, l net.Listener, tcp bool) (*decodeServer, error) {
	keys, err := f.keys()
	if err != nil {
		return nil, err
	}
	s := &decodeServer{log: newLogger(stderr, *f.logFormat, *f.verbose), engine: remote.NewHandler(), actions: control.NewHandler(), unix: l, served: make(chan error, 2)}
	if tcp {
		if s.tcp, err = listen(ctx, *f.host, *f.port, keys); err != nil {
			return nil, err
		}
	}
	s.api = f.server(keys, s.log)
	s.control = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		ConnContext:       s.actions.ConnContext,
		ConnState:         s.actions.ConnState,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := s.control.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.served <- err
		}
	}()
	if s.tcp != nil {
		go func() {
			if err := s.api.Serve(s.tcp); err != nil {
				s.served <- err
			}
		}()
	}
	return s, nil
}

// routes is what the control socket offers beside the API. Whatever hands out memory or
// takes it in has its place here and nowhere else: nothing of it is reachable over TCP.
func (s *decodeServer) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/engine/", s.engine)
	mux.Handle("POST /slots/{id}", slotActions(s.api, s.actions))
	mux.HandleFunc("GET /providers", s.actions.Providers)
	mux.Handle("/", s.api)
	return mux
}

// ready lets requests in.
func (s *decodeServer) ready(d *decoder.Decoder, b *load.Bundle, files *slotFiles) {
	s.api.SetBackend(server.Backend{Engine: d, Tokenizer: load.Tokenizer{Vocab: b.Vocab}, Template: b.Template, SlotFiles: files.engine()})
	s.engine.SetEngine(d)
}

// announce tells a person where the decoder is and how to try it.
func (s *decodeServer) announce(out io.Writer, control net.Addr, d *decoder.Decoder) {
	logReady(s.log, d.Info())
	fmt.Fprintf(out, "The decoder is ready at %s\n", control)
	if s.tcp != nil {
		fmt.Fprintf(out, "and its API at http://%s\n", s.tcp.Addr())
	}
	fmt.Fprintf(out, "\n%s\nTry it:\n\n  curl --unix-socket %s http://decoder/completion -d '{\"prompt\": \"Once upon a time\", \"n_predict\": 32}'\n\n",
		describe(d.Info()), control)
}

// drain refuses new requests and lets running ones finish within limit, then closes all
// connections.
func (s *decodeServer) drain(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var wg sync.WaitGroup
	var apiErr, engineErr error
	wg.Go(func() { apiErr = s.api.Shutdown(ctx) })
	wg.Go(func() { engineErr = s.engine.Shutdown(ctx) })
	wg.Wait()
	if apiErr != nil || engineErr != nil {
		s.log.Warn("answers that were still running have been cut off")
	}
	return s.close()
}

// close ends the servers. Nothing is running any more that its client has not left.
func (s *decodeServer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.control.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.control.Close()
	}
	// The servers have closed these, unless they had not even begun.
	s.unix.Close()
	if s.tcp != nil {
		s.tcp.Close()
	}
	return err
}
