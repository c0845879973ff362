package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"baton/internal/engine"
	"baton/internal/remote"
	"baton/internal/supervise"

	"github.com/prometheus/client_golang/prometheus"
)

// Command says how to start a process; see supervise.Config.
type Command func(ctx context.Context) (*supervise.Command, error)

// ProcessOptions say what processes to run.
type ProcessOptions struct {
	// Socket is where the decoder's process listens: its control socket.
	Socket  string
	Decoder Command
	// Provider, if set, fills the cells of long prompts.
	Provider *Provider
	Logger   *slog.Logger // default: discards
}

// Provider says how to run a provider.
type Provider struct {
	Name      string        // that it registers under with the decoder; empty: whichever it does
	Command   Command       // nil: none runs all the time; see Files
	MinTokens int           // new tokens from which on a prompt is worth handing over
	Stall     time.Duration // see HandoffOptions
	Files     *StateFiles   // the same
}

// Processes are the processes behind a server: they are started again when they end,
// until Close.
type Processes struct {
	Engine *Engine

	decoder  *supervise.Child
	control  *Control
	provider *supervise.Child // nil: none
	handoff  *Handoff         // the same
}

// endLimit is how long processes may take to end after a start that failed.
const endLimit = 5 * time.Second

// Start starts the processes and returns when the decoder is ready; a provider may take
// its time. The error is the decoder's own, if that has said why it ended.
func Start(ctx context.Context, opt ProcessOptions) (*Processes, error) {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Processes{decoder: supervise.Start(supervise.Config{
		Name: "decoder", Command: opt.Decoder, Required: true, Log: opt.Logger,
		Ready: func(ctx context.Context, _ int) error {
			_, err := remote.Dial(ctx, opt.Socket) // answers once its model is loaded
			return err
		},
	})}
	client, err := p.dial(ctx, opt.Socket)
	if err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		return nil, errors.Join(err, p.stop(end))
	}
	eng := Options{Decoder: client, Up: p.decoder.Wait, Err: func() error { return p.err(client) }, Logger: opt.Logger}
	p.control = NewControl(opt.Socket, client.Info().Slots)
	if opt.Provider != nil {
		p.startProvider(opt)
		eng.Handoff = p.handoff
	}
	p.Engine = New(eng)
	return p, nil
}

// dial waits for the decoder and connects to it.
func (p *Processes) dial(ctx context.Context, socket string) (*remote.Client, error) {
	if err := p.decoder.Wait(ctx); err != nil {
		var end *supervise.Ended
		if errors.As(err, &end) && end.Last != "" {
			return nil, errors.New(end.Last)
		}
		return nil, err
	}
	return remote.Dial(ctx, socket)
}

func (p *Processes) startProvider(opt ProcessOptions) {
	h := HandoffOptions{
		Actions: p.control, Provider: opt.Provider.Name, MinTokens: opt.Provider.MinTokens,
		Stall: opt.Provider.Stall, Files: opt.Provider.Files, Logger: opt.Logger,
	}
	if opt.Provider.Command != nil {
		p.provider = supervise.Start(supervise.Config{
			Name: strings.TrimSpace("provider " + opt.Provider.Name), Log: opt.Logger,
			Command: func(ctx context.Context) (*supervise.Command, error) {
				// It registers with the decoder, and ends when that does.
				if err := p.decoder.Wait(ctx); err != nil {
					return nil, err
				}
				return opt.Provider.Command(ctx)
			},
			Ready: func(ctx context.Context, pid int) error { return awaitProvider(ctx, p.control, pid, opt.Logger) },
		})
		h.Restart = p.provider.Restart
	}
	p.handoff = NewHandoff(h)
}

const (
	registerLimit = 30 * time.Second // for a provider to load its model
	registerPoll  = 20 * time.Millisecond
)

// awaitProvider waits until the process pid is registered with the decoder.
func awaitProvider(ctx context.Context, c *Control, pid int, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, registerLimit)
	defer cancel()
	for {
		list, err := c.Providers(ctx)
		for _, r := range list {
			if r.PID == pid {
				log.Info("prompts can be handed over", "provider", r.Name, "pid", pid)
				return nil
			}
		}
		select {
		case <-time.After(registerPoll):
		case <-ctx.Done():
			return errors.Join(errors.New("it has not registered with the decoder"), err)
		}
	}
}

// err says why the decoder cannot be used at the moment, without paths: everybody may
// read it.
func (p *Processes) err(client *remote.Client) error {
	if !p.decoder.State().Ready {
		return &engine.Error{Code: engine.CodeAway, Message: "the decoder's process has ended and is being started again"}
	}
	if err := client.Err(); err != nil {
		return engine.AsError(err)
	}
	return nil
}

// Collectors are the metrics of the handoffs.
func (p *Processes) Collectors() []prometheus.Collector {
	if p.handoff == nil {
		return nil
	}
	return append(p.handoff.Collectors(), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "baton_provider_ready", Help: "1 if a provider is registered with the decoder, else 0.",
	}, func() float64 {
		if p.provider != nil && p.provider.State().Ready {
			return 1
		}
		return 0
	}))
}

// SlotFiles are the decoder's files for slots, if it was started with a directory for
// them.
func (p *Processes) SlotFiles() *SlotFiles { return p.Engine.SlotFiles(p.control) }

// Close takes no more requests, lets those there are finish until ctx ends, and stops
// the processes.
func (p *Processes) Close(ctx context.Context) error {
	return errors.Join(p.Engine.Close(ctx), p.stop(ctx))
}

// providerLimit is how long a provider may take to end: it has nothing to lose.
const providerLimit = time.Second

// stop stops the processes, the provider first: its memory is the decoder's.
func (p *Processes) stop(ctx context.Context) error {
	if p.provider != nil {
		soon, cancel := context.WithTimeout(ctx, providerLimit)
		_ = p.provider.Stop(soon) // or it is killed
		cancel()
	}
	if p.control != nil {
		p.control.Close()
	}
	return p.decoder.Stop(ctx)
}
