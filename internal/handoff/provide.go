package handoff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"baton/internal/kv"
)

// ProviderOptions is what a provider is made of.
type ProviderOptions struct {
	Name        string
	ReadsPrefix bool
	Trust       []Trust // the modes that it keeps to
	// Accept is told what the decoder's blocks look like and what is to be reproduced,
	// and returns the layout and the parameters that the provider's own model gives. They
	// go into every header, so they must not be taken from the welcome.
	Accept func(*Welcome) (*kv.Layout, map[string]string, error)
	// Prefill writes the rows of the job's cells from Job.Pos0 on, and advances the job
	// as they become complete. It may stop early and return nil. When ctx ends it has to
	// return soon. It must not keep the job or its cells.
	Prefill func(ctx context.Context, j *Job) error
	// Once makes Provide return after one order.
	Once bool
	// Measured, if not nil, is told how long the parts of an order took, whatever came of
	// it, when everything is let go of and before the decoder is told.
	Measured func(OrderTimes)
}

// OrderTimes is how long a provider took for the parts of an order.
type OrderTimes struct {
	Map     time.Duration // everything mapped and populated, and the header written
	Prefill time.Duration // ProviderOptions.Prefill
	LetGo   time.Duration // everything unmapped that is not kept
}

// Provide serves one decoder at the other end of c until that closes the connection or
// ctx ends. It closes c. An order that fails is answered, and no error of Provide.
func Provide(ctx context.Context, c *net.UnixConn, o ProviderOptions) (err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	if _, err := loadFailpoints(); err != nil {
		return err
	}
	p := &providing{conn: c, opt: o, kept: map[uint64]*kv.Block{}}
	defer func() { err = errors.Join(err, p.unmapKept()) }()
	stop := context.AfterFunc(ctx, p.interrupt)
	defer stop()
	if err := p.introduce(); err != nil {
		return err
	}
	err = p.loop(ctx)
	p.stop()
	return err
}

// providing is a provider's end of a connection.
type providing struct {
	conn        *net.UnixConn
	opt         ProviderOptions
	trust       Trust
	layout      *kv.Layout
	digest      Digest
	description string
	kept        map[uint64]*kv.Block // in trust mode attached; of whose order it is

	mu          sync.Mutex
	interrupted bool
	current     Ticket // of the order in work; zero without one
	cancel      context.CancelFunc
	done        chan struct{} // closed when that order is answered
}

// interrupt makes the loop end.
func (p *providing) interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interrupted = true
	_ = p.conn.SetReadDeadline(time.Unix(1, 0)) // fails only if the loop has ended
}

// introduce exchanges hello and welcome.
func (p *providing) introduce() error {
	hello := &Hello{
		Protocol: Protocol, Name: p.opt.Name, PID: os.Getpid(), Layouts: []Digest{},
		ReadsPrefix: p.opt.ReadsPrefix, Trust: p.opt.Trust,
	}
	if err := writeMessage(p.conn, hello, nil); err != nil {
		return err
	}
	m, files, err := readMessage(p.conn, maxText)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *Welcome:
		return p.accept(m)
	case *Reject:
		return fmt.Errorf("handoff: the decoder does not take provider %s: %s", p.opt.Name, clip(m.Error, 500))
	}
	return errors.Join(fmt.Errorf("handoff: the decoder answers a hello with a %s", kindOf(m)), closeAll(files))
}

func (p *providing) accept(w *Welcome) error {
	layout, params, err := p.opt.Accept(w)
	if err != nil {
		return err
	}
	p.trust, p.layout = w.Trust, layout
	p.digest, p.description = layout.Hash(params), layout.Describe(params)
	return nil
}

// loop takes what the decoder sends.
func (p *providing) loop(ctx context.Context) error {
	for {
		m, files, err := readMessage(p.conn, maxText)
		if err != nil {
			p.mu.Lock()
			interrupted := p.interrupted
			p.mu.Unlock()
			if interrupted || errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		switch m := m.(type) {
		case *orderMessage:
			if err := p.start(ctx, &m.Order, files); err != nil {
				return errors.Join(err, closeAll(files))
			}
		case *Cancel:
			p.mu.Lock()
			if p.cancel != nil && p.current == m.Ticket {
				p.cancel()
			}
			p.mu.Unlock()
		case *Bye:
			return nil
		default:
			return errors.Join(fmt.Errorf("handoff: the decoder sends a %s", kindOf(m)), closeAll(files))
		}
	}
}

// start works on an order, in a goroutine of its own, so that a cancel and the end of
// the connection are noticed.
func (p *providing) start(ctx context.Context, o *Order, files []*os.File) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		return errors.New("handoff: the decoder sends an order while another one is in work")
	}
	ctx, cancel := context.WithCancel(ctx)
	p.current, p.cancel, p.done = o.Ticket, cancel, make(chan struct{})
	go func() {
		defer cancel()
		reply, err := p.work(ctx, o, files)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil {
			// Under the lock, so that the decoder's next order finds no other in work.
			err = p.send(reply)
		}
		p.current, p.cancel = Ticket{}, nil
		if err != nil || p.opt.Once {
			p.interrupted = p.interrupted || p.opt.Once
			_ = p.conn.SetReadDeadline(time.Unix(1, 0)) // nothing more will come of it
		}
		close(p.done)
	}()
	return nil
}

// work fills the cells of an order and lets go of them. The error is for what ends the
// connection; what goes wrong with the order is in the reply.
func (p *providing) work(ctx context.Context, o *Order, files []*os.File) (*Reply, error) {
	filled, err := p.fill(ctx, o, files)
	if ferr := fail(failReply); ferr != nil {
		return nil, ferr
	}
	if err == nil {
		return &Reply{Ticket: o.Ticket, Filled: &filled}, nil
	}
	r := &Reply{Ticket: o.Ticket, Error: err.Error()}
	var refusal *Refusal
	if errors.As(err, &refusal) {
		r.Code, r.Error = refusal.Code, refusal.Detail
	}
	if r.Error == "" {
		r.Error = "no reason given"
	}
	return r, nil
}

// fill does everything between the order and the reply; files are closed when it
// returns, and all mappings gone.
func (p *providing) fill(ctx context.Context, o *Order, files []*os.File) (filled int, err error) {
	if err := fail(failReceived); err != nil {
		return 0, errors.Join(err, closeAll(files))
	}
	if o.Layout.LayoutDigest != p.digest {
		return 0, errors.Join(p.difference(o), closeAll(files))
	}
	if o.Trust != p.trust {
		return 0, errors.Join(fmt.Errorf("handoff: an order in trust mode %s, agreed was %s", o.Trust, p.trust), closeAll(files))
	}
	var times OrderTimes
	began := time.Now()
	j, err := p.open(o, files)
	if err != nil {
		return 0, err
	}
	defer func() {
		letGo := time.Now()
		err = errors.Join(err, j.close())
		if times.LetGo = time.Since(letGo); p.opt.Measured != nil {
			p.opt.Measured(times)
		}
	}()
	if err := fail(failMapped); err != nil {
		return 0, err
	}
	writeHeader(j.page.Bytes(), header{
		magic: headerMagic, version: headerVersion, layout: p.digest, description: p.description,
		prompt: PromptDigest(o.Tokens), ticket: o.Ticket, filled: uint64(o.Pos0),
	})
	if err := fail(failHeader); err != nil {
		return 0, err
	}
	times.Map = time.Since(began)
	begun := time.Now()
	err = p.opt.Prefill(ctx, j)
	times.Prefill = time.Since(begun)
	if err == nil && j.filled < len(o.Tokens) {
		err = ctx.Err()
	}
	if ferr := fail(failUnmap); ferr != nil {
		err = errors.Join(err, ferr)
	}
	return j.filled, err
}

// difference says in what the decoder's layout differs from the provider's own.
func (p *providing) difference(o *Order) error {
	k, kerr := kv.ParseType(o.Layout.KType)
	v, verr := kv.ParseType(o.Layout.VType)
	if err := errors.Join(kerr, verr); err != nil {
		return because(LayoutDiffers, err)
	}
	l, err := kv.NewLayout(kv.Config{
		Layers: o.Layout.Layers, KVHeads: o.Layout.KVHeads, HeadDim: o.Layout.HeadDim,
		KType: k, VType: v, CellsPerBlock: o.Layout.Cells,
	})
	if err != nil {
		return because(LayoutDiffers, err)
	}
	r := describeDifference(l.Describe(o.Params), p.description)
	if r.Field == "" {
		r.Detail = fmt.Sprintf("the decoder's layout digest is %s, the provider's %s", o.Layout.LayoutDigest, p.digest)
	}
	return r
}

func (p *providing) send(r *Reply) error {
	if err := p.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if err := writeMessage(p.conn, r, nil); err != nil {
		return err
	}
	if err := p.conn.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	return fail(failReplied)
}

// stop ends the order in work, if there is one, and waits for it.
func (p *providing) stop() {
	p.mu.Lock()
	cancel, done := p.cancel, p.done
	p.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}

func (p *providing) unmapKept() error {
	var err error
	for _, b := range p.kept {
		err = errors.Join(err, b.Unmap())
	}
	return err
}
