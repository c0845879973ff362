package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"baton/internal/cli"
	"baton/internal/control"
	"baton/internal/decoder"
	"baton/internal/handoff"
	"baton/internal/rundir"
)

// providerSocket is the name of the socket in the run directory where providers register
// with the decoder.
const providerSocket = "provider.sock"

// ownProvider is the name under which our own provider registers. Others are foreign:
// their blocks are sealed, and every row they claim is looked at.
const ownProvider = "cpu"

// sharingFlags is what a decoder is told about handoffs.
type sharingFlags struct {
	handoff  *string
	shareMax *int
}

func newSharingFlags(s *cli.Set) sharingFlags {
	return sharingFlags{
		handoff:  s.Choice("--handoff", "", []string{"leased", "sealed", "attached", "off"}, "trust mode of our own provider, or no handoffs"),
		shareMax: s.Int("--share-max", "", "N", 0, 0, 1024, "shares outstanding at once; 0: one a slot"),
	}
}

// off says why handoffs are off; empty: they are not. BATON_KV_SHARE turns them on when
// it is set and not empty, whatever its value; unset, the flag decides.
func (f *sharingFlags) off(log *slog.Logger) string {
	if v := os.Getenv("BATON_KV_SHARE"); v != "" {
		if v == "0" {
			log.Warn("BATON_KV_SHARE=0 turns sharing on: set and not empty means on; unset it and use --handoff off")
		}
		return ""
	}
	if *f.handoff == "off" {
		return "the decoder was started with --handoff off"
	}
	return ""
}

// policy is how a provider that registers is treated.
func (f *sharingFlags) policy(h handoff.Hello) (handoff.Policy, error) {
	if h.Name != ownProvider {
		return handoff.Policy{Trust: handoff.Sealed, Foreign: true}, nil
	}
	mode := *f.handoff
	if mode == "off" { // BATON_KV_SHARE has turned sharing on
		mode = handoff.Leased.String()
	}
	trust, err := handoff.ParseTrust(mode)
	return handoff.Policy{Trust: trust}, err
}

// sharing is the decoder's side of handoffs: the table, and the socket for providers.
type sharing struct {
	table    *handoff.Table
	listener *net.UnixListener
	stop     context.CancelFunc
	ended    chan error
}

// readyBlocks is how many free blocks a decoder keeps ready to be filled by others.
const readyBlocks = 4

// share opens the decoder for handoffs, unless off says why not: actions through h, providers through a socket in
// dir. A decoder that cannot share says so once, and runs all the same.
func (f *sharingFlags) share(d *decoder.Decoder, off string, dir *rundir.Dir, h *control.Handler, log *slog.Logger) (*sharing, error) {
	root, err := os.OpenRoot(dir.Path())
	if err != nil {
		return nil, fmt.Errorf("opening the run directory: %w", err)
	}
	t, err := d.NewTable(handoff.Options{Off: off, MaxShares: *f.shareMax, RunDir: root, Log: log})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	s := &sharing{table: t, ended: make(chan error, 1)}
	if off != "" {
		log.Warn("prompts are not handed over", "reason", off)
	} else if s.listener, err = dir.Listen(providerSocket); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	h.SetTable(t, d.Cached)
	if s.listener == nil {
		return s, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() { s.ended <- t.Serve(ctx, s.listener, f.policy) }()
	return s, nil
}

// close gives up all shares. The decoder must still run.
func (s *sharing) close() error {
	if s.listener == nil {
		return s.table.Close()
	}
	s.stop()
	var errs []error
	for _, err := range []error{s.listener.Close(), <-s.ended} {
		if !errors.Is(err, net.ErrClosed) && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, s.table.Close())...)
}
