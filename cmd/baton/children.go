package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"baton/internal/cli"
	"baton/internal/gateway"
	"baton/internal/handoff"
	"baton/internal/supervise"
)

// prefillOptions is what a server is told about handing prompts over.
type prefillOptions struct {
	prefill, handoff                   *string
	threads, nice, minTokens, shareMax *int
	stall                              *time.Duration
}

func newPrefillOptions(s *cli.Set) prefillOptions {
	return prefillOptions{
		prefill:   s.String("--prefill", "BATON_PREFILL", "cpu|exec:PROGRAM|none", "cpu", "who processes long prompts: a process of Baton's, a program of yours, or the decoder itself"),
		threads:   s.Int("--prefill-threads", "BATON_PREFILL_THREADS", "N", 0, 0, 1024, "threads of that process; 0: the cores that this process may use"),
		nice:      s.Int("--prefill-nice", "BATON_PREFILL_NICE", "N", 10, 0, 19, "how far it gives way to the decoder"),
		minTokens: s.Int("--prefill-min-tokens", "BATON_PREFILL_MIN_TOKENS", "N", 512, 1, 1<<30, "new tokens from which on a prompt is handed over"),
		stall:     s.Duration("--prefill-stall", "BATON_PREFILL_STALL", "TIME", 20*time.Second, "silence after which it is taken to hang and started again; at most 25s"),
		handoff: s.Choice("--handoff", "BATON_HANDOFF", []string{"leased", "sealed", "attached", handoffFile, handoffOff},
			"how it is known that it writes no more; or by files, or no handoffs; a program of yours: always sealed"),
		shareMax: s.Int("--share-max", "BATON_SHARE_MAX", "N", 0, 0, 1024, "prompts that may be handed over at once; 0: one a slot"),
	}
}

// prefillPlan is what those options come to.
type prefillPlan struct {
	program []string // of somebody else; nil: our own
	trust   string   // or one of these:
}

// Values of --handoff that are no trust modes.
const (
	handoffOff  = "off"
	handoffFile = "file"
)

// memory is what the decoder is told: with files, memory is not handed over.
func (p *prefillPlan) memory() string {
	if p.trust == handoffFile {
		return handoffOff
	}
	return p.trust
}

func (f *prefillOptions) plan(set *cli.Set) (*prefillPlan, error) {
	p := &prefillPlan{trust: *f.handoff}
	if p.trust == handoffOff && os.Getenv("BATON_KV_SHARE") != "" { // the decoder has the same rule
		p.trust = handoff.Leased.String()
	}
	// Before the decoder loses its own patience, what was filled is not lost.
	if *f.stall <= 0 || *f.stall > 25*time.Second {
		return nil, fmt.Errorf("%w: --prefill-stall is %v, expected more than 0 and at most 25s", errUsage, *f.stall)
	}
	program, isExec := strings.CutPrefix(*f.prefill, "exec:")
	switch {
	case *f.prefill == "none":
		p.trust = handoffOff
	case isExec:
		var err error
		if p.program, err = splitProgram(program); err != nil {
			return nil, err
		}
		if set.Given("--handoff") && p.trust != handoffOff && p.trust != handoff.Sealed.String() {
			return nil, fmt.Errorf("%w: --handoff %s is for Baton's own process: a program gets blocks that are sealed", errUsage, p.trust)
		}
	case *f.prefill != "cpu":
		return nil, fmt.Errorf("%w: --prefill is %q, expected cpu, exec:PROGRAM or none", errUsage, *f.prefill)
	}
	return p, nil
}

// splitProgram finds a program: the path of one, or one with arguments behind it.
func splitProgram(s string) ([]string, error) {
	if path, err := exec.LookPath(s); err == nil {
		return []string{path}, nil
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		return nil, fmt.Errorf("%w: --prefill exec: names no program", errUsage)
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return nil, fmt.Errorf("--prefill %q: %w", "exec:"+s, err)
	}
	return append([]string{path}, words[1:]...), nil
}

// decoder says how the decoder of a server is started: with the server's options, and
// with its open model file, so that a decoder which is started again serves the same
// model though the file may have been replaced.
func (f *serveFlags) decoder(b *backend, set *cli.Set, plan *prefillPlan) gateway.Command {
	args := f.ownLog(
		"decode", "--child", "--run-dir", b.dir.Path(), "--model", *f.model, "--model-fd", strconv.Itoa(lifelineFD+1),
		"--ctx-size", strconv.Itoa(*f.ctx), "--parallel", strconv.Itoa(*f.slots), "--threads", strconv.Itoa(*f.engineFlags.threads),
		"--ubatch-size", strconv.Itoa(*f.microBatch), "--kv-mib", strconv.Itoa(*f.kvMiB),
		"--handoff", plan.memory(), "--share-max", strconv.Itoa(*f.shareMax), "--slot-save-path", b.states,
	)
	env := childEnv(set)
	if plan.trust == handoffFile {
		env = supervise.Env(append(set.Env(), "BATON_KV_SHARE")...)
	}
	return func(context.Context) (*supervise.Command, error) {
		return &supervise.Command{Args: args, Env: env, Files: []*os.File{b.source.File()}, Lifeline: true}, nil
	}
}

// provider says how the provider of a server is started; nil: there is none.
func (f *serveFlags) provider(b *backend, set *cli.Set, plan *prefillPlan, log *slog.Logger) *gateway.Provider {
	if plan.trust == handoffOff {
		return nil
	}
	const fd = 3 // the first that is inherited
	p := &gateway.Provider{Name: ownProvider, MinTokens: *f.minTokens, Stall: *f.stall}
	model := []string{"--model", *f.model, "--model-fd", strconv.Itoa(fd), "--threads", strconv.Itoa(*f.prefillOptions.threads)}
	socket := b.dir.Socket(providerSocket)
	cmd := supervise.Command{Env: childEnv(set), Nice: *f.nice}
	switch {
	case plan.program != nil:
		p.Name = "" // whichever it registers under
		cmd.Args = append([]string{connectCommand, socket}, plan.program...)
	case plan.trust == handoffFile:
		p.Files = &gateway.StateFiles{Dir: b.states, Logger: log, Command: func(path string) *supervise.Command {
			once := cmd
			once.Files = []*os.File{b.source.File()}
			once.Args = f.ownLog(append([]string{"prefill", "--out", path, "--tokens", "-"}, model...)...)
			return &once
		}}
		return p
	default:
		cmd.Files = []*os.File{b.source.File()}
		cmd.Args = f.ownLog(append([]string{"prefill", "--connect", socket, "--name", p.Name, "--trust", plan.trust}, model...)...)
	}
	p.Command = func(context.Context) (*supervise.Command, error) { return &cmd, nil }
	return p
}

// ownLog adds the options for the log to the arguments of one of our own processes: as
// JSON, which is passed on in the form that the server's has.
func (f *serveFlags) ownLog(args ...string) []string {
	return append(args, "--log-format", "json", "--verbose="+strconv.FormatBool(*f.verbose))
}

// childEnv is the environment without the options in it: those are the server's.
func childEnv(set *cli.Set) []string { return supervise.Env(set.Env()...) }

// connectCommand is for servers, not for people.
const connectCommand = "connect"

// connect becomes a provider of somebody else's, with a connection to the decoder as
// descriptor 3. The decoder asks the kernel who has connected: it must be the process
// that will write.
func connect(_ context.Context, args []string, _ io.Writer) error {
	if len(args) < 2 {
		return fmt.Errorf("%w: baton %s SOCKET PROGRAM [ARG...]", errUsage, connectCommand)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: args[0]}); err != nil {
		return fmt.Errorf("connecting to the decoder at %s: %w", args[0], err)
	}
	const inherited = 3
	if fd == inherited {
		_, err = unix.FcntlInt(inherited, unix.F_SETFD, 0)
	} else {
		err = unix.Dup3(fd, inherited, 0)
	}
	if err != nil {
		return fmt.Errorf("passing the connection on: %w", err)
	}
	return errors.Join(fmt.Errorf("starting %s", args[1]), unix.Exec(args[1], args[1:], os.Environ()))
}
