package handoff

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Policy is how a decoder treats a provider.
type Policy struct {
	Trust Trust
	// Foreign is for programs that are not ours: they read prefix cells only from sealed
	// blocks, every row that they claim is looked at, and computed rows may differ from
	// theirs by Options.Tolerance.
	Foreign bool
	// Process is the provider's process, where the caller knows it. It has to be given
	// for a socketpair, of which the kernel knows only the maker. The provider closes
	// it when it goes.
	Process *Process
}

// Variables only so that tests need not wait for them.
var (
	helloTimeout = 5 * time.Second // for a connection to introduce itself
	sendTimeout  = 5 * time.Second // for a message to be taken
	cancelGrace  = 2 * time.Second // for a provider to reply after a cancel
)

// Provider is a registered provider, as the decoder sees it.
type Provider struct {
	hello   Hello
	policy  Policy
	conn    *net.UnixConn
	watch   *net.UnixConn
	process *Process      // may be nil
	turn    chan struct{} // holds a token while nobody has an order with it
	gone    chan struct{} // closed when the connection is

	mu     sync.Mutex
	closed bool
	hungUp bool   // nothing more will come from it
	order  *share // the one that it is working on

	kept map[uint64]bool // blocks of which it keeps a mapping; of who has the turn
}

// Name is the name that it registered with.
func (p *Provider) Name() string { return p.hello.Name }

// Hello is what it said of itself.
func (p *Provider) Hello() Hello { return p.hello }

// PID is the number of its process, as the kernel tells it; 0 if that is not known.
func (p *Provider) PID() int {
	if p.process == nil {
		return 0
	}
	return p.process.pid
}

// Policy is how it is treated.
func (p *Provider) Policy() Policy { return p.policy }

// Gone is closed when its connection is.
func (p *Provider) Gone() <-chan struct{} { return p.gone }

// Busy reports whether it has an order.
func (p *Provider) Busy() bool { return len(p.turn) == 0 }

// Kill ends its process: for a provider that hangs, so that its mappings go and what it
// has filled can be adopted.
func (p *Provider) Kill() error {
	if p.process == nil {
		return fmt.Errorf("handoff: provider %s: its process is not known", p.Name())
	}
	return p.process.Kill()
}

// dead reports whether its process has ended, and so its mappings.
func (p *Provider) dead() bool { return p.process != nil && p.process.Gone() }

func (p *Provider) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// forget lets go of the process.
func (p *Provider) forget() error {
	if p.process == nil {
		return nil
	}
	return p.process.Close()
}

// hangUp is for when nothing more will come from the provider. What it has sent before
// is still there to be read, by who has its turn; that one finds the end then. Otherwise
// the connection is closed.
func (p *Provider) hangUp() {
	p.mu.Lock()
	p.hungUp = true
	p.mu.Unlock()
	p.closeIfIdle()
}

// yield ends a turn.
func (p *Provider) yield() {
	p.turn <- struct{}{}
	p.closeIfIdle()
}

// closeIfIdle closes a connection that was hung up, if nobody has the turn.
func (p *Provider) closeIfIdle() {
	p.mu.Lock()
	hungUp := p.hungUp
	p.mu.Unlock()
	if !hungUp {
		return
	}
	select {
	case <-p.turn:
		p.disconnect()
	default:
	}
}

// disconnect closes the connection.
func (p *Provider) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	// Nothing can be done about errors, and nothing depends on them.
	_ = p.conn.Close()
	_ = p.watch.Close()
	close(p.gone)
}

// Register takes the connection of a provider over: it makes sure that the user at the
// other end is the one that the decoder runs as, waits for the hello, and answers it. It
// closes the connection when it returns an error.
func (t *Table) Register(ctx context.Context, c *net.UnixConn, policy Policy) (*Provider, error) {
	return t.greet(ctx, c, func(Hello) (Policy, error) { return policy, nil }, true)
}

// Serve registers whoever connects to l, with the policy for it, until l is closed. The
// socket of l must lie in a directory of mode 0700.
func (t *Table) Serve(ctx context.Context, l *net.UnixListener, policy func(Hello) (Policy, error)) error {
	var greeting sync.WaitGroup
	defer greeting.Wait()
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("handoff: accept: %w", err)
		}
		greeting.Go(func() {
			if _, err := t.greet(ctx, c, policy, true); err != nil {
				t.log().Warn("handoff: a provider was not registered", "error", err)
			}
		})
	}
}

// greet makes a provider of a connection and registers it; one that is not listed is for
// whoever asked for it, and is to be disconnected then.
func (t *Table) greet(ctx context.Context, c *net.UnixConn, policy func(Hello) (Policy, error), list bool) (*Provider, error) {
	p, err := t.handshake(ctx, c, policy)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := t.enroll(p, list); err != nil {
		_ = writeMessage(c, &Reject{Code: BadRequest, Error: err.Error()}, nil) // a courtesy
		p.disconnect()
		return nil, errors.Join(err, p.forget())
	}
	if err := t.welcome(p); err != nil {
		p.disconnect()
		return nil, err
	}
	p.yield()
	return p, nil
}

// handshake checks who is there and hears what it has to say. The caller closes c if it
// fails.
func (t *Table) handshake(ctx context.Context, c *net.UnixConn, policy func(Hello) (Policy, error)) (_ *Provider, err error) {
	uid, process, err := peerOf(c)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && process != nil {
			err = errors.Join(err, process.Close())
		}
	}()
	if want := os.Geteuid(); uid != want {
		return nil, fmt.Errorf("handoff: user %d is at the other end, want %d", uid, want)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, err
	}
	m, files, err := readMessage(c, maxReplyText)
	if err != nil {
		return nil, err
	}
	hello, ok := m.(*Hello)
	if !ok {
		return nil, errors.Join(fmt.Errorf("handoff: the first message is a %s, want a hello", kindOf(m)), closeAll(files))
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	pol, err := policy(*hello)
	if err == nil {
		err = t.admit(hello, pol)
	}
	if err != nil {
		r := &Reject{Code: BadRequest, Error: err.Error()}
		var refusal *Refusal
		if errors.As(err, &refusal) {
			r.Code = refusal.Code
		}
		_ = writeMessage(c, r, nil) // a courtesy
		return nil, err
	}
	if pol.Trust == Attached && process == nil && pol.Process == nil {
		return nil, fmt.Errorf("handoff: provider %s: its process is not known, so its mappings cannot be told from those of a dead one", hello.Name)
	}
	if pol.Process != nil {
		if process != nil {
			err = process.Close()
		}
		process = pol.Process
	}
	p := &Provider{
		hello: *hello, policy: pol, conn: c, process: process,
		turn: make(chan struct{}, 1), gone: make(chan struct{}), kept: map[uint64]bool{},
	}
	p.watch, err = watchHangup(c, p.hangUp)
	return p, err
}

// admit refuses a provider that could not do its work.
func (t *Table) admit(h *Hello, policy Policy) error {
	if !slices.Contains(h.Trust, policy.Trust) {
		return fmt.Errorf("handoff: provider %s does not do the trust mode %s, only %v", h.Name, policy.Trust, h.Trust)
	}
	if want := t.layout.LayoutDigest; len(h.Layouts) > 0 && !slices.Contains(h.Layouts, want) {
		return refuse(LayoutDiffers, "provider %s writes %d layouts, and not %s", h.Name, len(h.Layouts), want)
	}
	return nil
}

func (t *Table) welcome(p *Provider) error {
	if err := p.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	w := &Welcome{Protocol: Protocol, Trust: p.policy.Trust, Layout: t.layout, Params: t.opt.Params}
	if err := writeMessage(p.conn, w, nil); err != nil {
		return err
	}
	return p.conn.SetWriteDeadline(time.Time{})
}

// enroll keeps watch over p from now on and, if it is to be listed, enters it under its
// name, in place of one that is gone.
func (t *Table) enroll(p *Provider, list bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errors.New("handoff: the decoder is shutting down")
	}
	if list {
		if old := t.providers[p.Name()]; old != nil && !old.isGone() && !old.dead() {
			return fmt.Errorf("handoff: a provider named %s is registered already", p.Name())
		}
		t.providers[p.Name()] = p
	}
	t.running.Go(func() { t.attend(p) })
	return nil
}

// attend waits until p is gone, by its connection or its process, and strikes it off.
func (t *Table) attend(p *Provider) {
	var ended <-chan struct{}
	if p.process != nil {
		ended = p.process.Ended()
	}
	select {
	case <-ended:
		p.hangUp()
		// Somebody else may hold the other end open. What the process has sent is there.
		_ = p.conn.SetReadDeadline(time.Now().Add(cancelGrace)) // fails if it is closed
		<-p.gone
	case <-p.gone:
	}
	t.mu.Lock()
	if t.providers[p.Name()] == p {
		delete(t.providers, p.Name())
	}
	t.mu.Unlock()
	t.wake()
	if p.policy.Trust == Attached {
		// Its mappings live as long as its processes.
		t.waitDead(p)
		t.opt.Pool.Drop(p)
		t.wake()
	}
	if err := p.forget(); err != nil {
		t.log().Warn("handoff: close a provider's process descriptor", "error", err)
	}
}

// waitDead waits for the end of a provider's process and of the rest of its process
// group, of which there is no descriptor to wait for.
func (t *Table) waitDead(p *Provider) {
	select {
	case <-p.process.Ended():
	case <-t.closing:
		return
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !p.dead() {
		select {
		case <-tick.C:
		case <-t.closing:
			return
		}
	}
}

// Providers lists those that are registered, by name.
func (t *Table) Providers() []*Provider {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*Provider, 0, len(t.providers))
	for _, p := range t.providers {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *Provider) int { return strings.Compare(a.Name(), b.Name()) })
	return list
}

// dial connects to a provider that waits at a socket in the run directory. Symbolic
// links and what belongs to others are refused: the path is opened without following
// the link, looked at, and connected through the descriptor.
func (t *Table) dial(ctx context.Context, name string) (*net.UnixConn, error) {
	if t.opt.RunDir == nil {
		return nil, refuse(BadRequest, "socket: this decoder has no run directory")
	}
	if filepath.IsAbs(name) {
		within, err := filepath.Rel(t.opt.RunDir.Name(), name)
		if err != nil {
			return nil, because(BadRequest, err)
		}
		name = within
	}
	f, err := t.opt.RunDir.OpenFile(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, refuse(BadRequest, "socket: %q is not in the run directory: %v", clip(name, 200), err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, because(BadRequest, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, refuse(BadRequest, "socket: %q is not a socket", clip(name, 200))
	}
	if want := os.Geteuid(); int(st.Uid) != want {
		return nil, refuse(BadRequest, "socket: %q belongs to user %d, want %d", clip(name, 200), st.Uid, want)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, because(ProviderGone, err)
	}
	return c.(*net.UnixConn), nil
}
