package handoff

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"baton/internal/kv"
	"baton/internal/shm"
)

// Request asks for a share.
type Request struct {
	Slot     int
	Provider string  // a registered one
	Socket   string  // or else a socket in the run directory where one waits
	Tokens   []int32 // the whole prompt; the cells of all but the last are to be filled
	// Policy is for the provider at Socket; a registered one has its own.
	Policy Policy
	// Budget is how long the share may take in all, such as what processing the prompt
	// locally would; 0: as long as it makes progress.
	Budget time.Duration
	// Owner is closed when the connection that the request came over is: the share is
	// given up then. May be nil.
	Owner <-chan struct{}
}

// Share describes a share that was made.
type Share struct {
	ID       ID
	Slot     int
	Provider string
	Trust    Trust
	Pos0     int // cells that the decoder had already
	Cells    int // cells 0 to Cells-1 are there when the provider is done
	Layout   Layout
	Params   map[string]string
	Regions  []Region
	Took     time.Duration
}

// Outcome is how a provider's work ended.
type Outcome struct {
	Filled int   // cells 0 to Filled-1 are claimed to be complete
	Err    error // nil: the provider says that it did what it was asked for
	Took   time.Duration
}

// Share reserves blocks for a prompt and has a provider fill them. It returns when the
// provider has all descriptors; Wait tells when it is done. The error is a *Refusal.
//
// It waits for the provider's turn, as long as ctx allows: a provider has one order at a
// time. No blocks are held meanwhile.
func (t *Table) Share(ctx context.Context, r *Request) (*Share, error) {
	if err := t.checkRequest(r); err != nil {
		return nil, err
	}
	s, err := t.enter(r)
	if err != nil {
		return nil, err
	}
	order, err := t.make(ctx, s, r)
	if err != nil {
		var refusal *Refusal
		if !errors.As(err, &refusal) {
			refusal = because(ProviderGone, err)
		}
		t.abandon(s, ShareUnknown)
		return nil, refusal
	}
	if r.Owner != nil {
		t.running.Go(func() {
			select {
			case <-r.Owner:
				t.abandon(s, ShareExpired)
			case <-s.done:
			}
		})
	}
	return &Share{
		ID: s.id, Slot: s.slot, Provider: s.provider.Name(), Trust: s.trust,
		Pos0: s.pos0, Cells: s.cellCount(), Layout: t.layout, Params: t.opt.Params, Regions: order.Regions,
		Took: time.Since(s.begun),
	}, nil
}

func (t *Table) checkRequest(r *Request) error {
	switch n := len(r.Tokens); {
	case t.opt.Off != "":
		return refuse(SharingOff, "%s", t.opt.Off)
	case t.opt.Unshareable != "":
		return refuse(ModelNotShareable, "%s", t.opt.Unshareable)
	case r.Slot < 0 || r.Slot >= t.opt.Slots:
		return refuse(SlotUnknown, "slot %d of %d", r.Slot, t.opt.Slots)
	case n < 2:
		return &Refusal{Code: BadRequest, Field: "tokens", Detail: fmt.Sprintf("tokens: %d ids, at least 2 are needed", n)}
	case n > t.opt.Context:
		return &Refusal{Code: BadRequest, Field: "tokens", Detail: fmt.Sprintf("tokens: %d ids, a slot has %d positions", n, t.opt.Context)}
	case (r.Provider == "") == (r.Socket == ""):
		return &Refusal{Code: BadRequest, Field: "provider", Detail: "either provider or socket has to be given"}
	}
	return t.checkTokens(r.Tokens)
}

func (t *Table) checkTokens(tokens []int32) error {
	for i, id := range tokens {
		if id < 0 || int(id) >= t.opt.Vocab {
			return &Refusal{Code: BadRequest, Field: "tokens", Detail: fmt.Sprintf("tokens: id %d at position %d, there are %d", id, i, t.opt.Vocab)}
		}
	}
	return nil
}

// make takes a share from its record to the provider.
func (t *Table) make(ctx context.Context, s *share, r *Request) (*Order, error) {
	p, err := t.provider(ctx, r)
	if err != nil {
		return nil, err
	}
	s.provider, s.trust, s.once = p, p.policy.Trust, r.Socket != ""
	if err := p.wait(ctx); err != nil {
		if s.once {
			p.disconnect()
		}
		return nil, err
	}
	order, files, err := t.prepare(ctx, s)
	if err != nil {
		if s.once {
			p.disconnect()
		} else {
			p.yield() // nothing was sent
		}
		return nil, err
	}
	if err := t.send(s, order, files); err != nil {
		return nil, err
	}
	return order, nil
}

// provider returns the provider that a request names.
func (t *Table) provider(ctx context.Context, r *Request) (*Provider, error) {
	if r.Socket == "" {
		t.mu.Lock()
		p := t.providers[r.Provider]
		t.mu.Unlock()
		if p == nil {
			return nil, refuse(ProviderGone, "no provider named %q is registered", clip(r.Provider, 64))
		}
		return p, nil
	}
	c, err := t.dial(ctx, r.Socket)
	if err != nil {
		return nil, err
	}
	p, err := t.greet(ctx, c, func(Hello) (Policy, error) { return r.Policy, nil }, false)
	if err != nil {
		var refusal *Refusal
		if errors.As(err, &refusal) {
			return nil, refusal
		}
		return nil, because(ProviderGone, err)
	}
	return p, nil
}

// wait waits until it is the caller's turn.
func (p *Provider) wait(ctx context.Context) error {
	if p.isGone() {
		return refuse(ProviderGone, "provider %s is gone", p.Name())
	}
	select {
	case <-p.turn:
		return nil
	case <-p.gone:
		return refuse(ProviderGone, "provider %s is gone", p.Name())
	case <-ctx.Done():
		return refuse(ProviderGone, "provider %s has another order: %v", p.Name(), ctx.Err())
	}
}

// prepare reserves the blocks and opens everything that goes to the provider.
func (t *Table) prepare(ctx context.Context, s *share) (_ *Order, files []*os.File, err error) {
	var reserved *kv.Reservation
	var refused error
	err = t.opt.OnLoop(ctx, func() { reserved, refused = t.reserve(s) })
	if err != nil {
		return nil, nil, refuse(NoRoom, "the decoder did not get round to it: %v", err)
	}
	if refused != nil {
		return nil, nil, refused
	}
	if s.blocks, err = reserved.Prepare(); err != nil {
		return nil, nil, because(NoRoom, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(files))
			files = nil
		}
	}()
	if s.header, err = shm.Create("baton-share", HeaderSize, shm.Options{}); err != nil {
		return nil, nil, because(NoRoom, err)
	}
	if s.page, err = s.header.Map(shm.ReadOnly); err != nil {
		return nil, nil, because(NoRoom, err)
	}
	order := &Order{
		Ticket: s.ticket, Trust: s.trust, Pos0: s.pos0, Layout: t.layout, Params: t.opt.Params,
		Tokens: s.tokens[:s.cellCount()],
	}
	header, err := s.header.ReopenReadWrite()
	if err != nil {
		return nil, nil, because(NoRoom, err)
	}
	file, err := header.Detach()
	if err != nil {
		return nil, nil, because(NoRoom, err)
	}
	files = append(files, file)
	pos := 0
	for _, run := range s.prefix {
		if files, err = t.addPrefix(s, order, files, run, pos); err != nil {
			return nil, files, err
		}
		pos += run.Len
	}
	for _, run := range kv.FilledRuns(s.blocks, s.cellCount()-s.pos0) {
		if files, err = addRegion(s, order, files, run, pos, ReadWrite); err != nil {
			return nil, files, because(NoRoom, err)
		}
		pos += run.Len
	}
	return order, files, nil
}

// reserve finds the cells that are there already and takes room for the rest. It runs on
// the step loop.
func (t *Table) reserve(s *share) (*kv.Reservation, error) {
	if t.opt.SlotBusy != nil && t.opt.SlotBusy(s.slot) {
		return nil, refuse(SlotBusy, "slot %d", s.slot)
	}
	most := 0
	if s.provider.hello.ReadsPrefix {
		most = s.cellCount() - 1 // something has to be left to do
	}
	seq, _ := t.opt.Index.Attach(s.tokens, most)
	if s.provider.policy.Foreign {
		// It could write to blocks that are not sealed, and sealing needs settled ones.
		settled := 0
		for _, run := range seq.Runs(0, seq.Len(), nil) {
			if !run.Block.Settled() || run.Block.Keeper() != nil {
				break
			}
			settled += run.Len
		}
		seq.Truncate(settled)
	}
	var keeper any
	if s.trust == Attached {
		keeper = s.provider
	}
	cells := t.opt.Pool.Layout().CellsPerBlock
	rest := s.cellCount() - seq.Len()
	reserved, err := t.opt.Pool.ReserveShared((rest+cells-1)/cells, keeper)
	if err != nil {
		seq.Free()
		return nil, &Refusal{Code: NoRoom, Detail: err.Error(), RetryAfter: time.Second, Err: err}
	}
	s.seq, s.pos0, s.prefix = seq, seq.Len(), seq.Runs(0, seq.Len(), nil)
	return reserved, nil
}

// addPrefix adds cells that the provider is to read.
func (t *Table) addPrefix(s *share, o *Order, files []*os.File, run kv.Run, pos int) ([]*os.File, error) {
	if s.provider.policy.Foreign {
		if err := run.Block.Seal(); err != nil {
			return files, because(StillWritable, err)
		}
	}
	files, err := addRegion(s, o, files, run, pos, ReadOnly)
	if err != nil {
		return files, because(NoRoom, err)
	}
	return files, nil
}

// addRegion adds a region to an order and its descriptor to files.
func addRegion(s *share, o *Order, files []*os.File, run kv.Run, pos int, mode Mode) ([]*os.File, error) {
	r := Region{Mode: mode, Block: run.Block.ID(), FD: len(files), Pos: pos, Cell: run.Cell, Cells: run.Len}
	if s.trust == Attached && s.provider.kept[r.Block] {
		r.FD = -1
		o.Regions = append(o.Regions, r)
		return files, nil
	}
	open := run.Block.WriterFile
	if mode == ReadOnly {
		open = run.Block.ReaderFile
	}
	file, err := open()
	if err != nil {
		return files, err
	}
	o.Regions = append(o.Regions, r)
	return append(files, file), nil
}

// send sends the order and has the reply waited for.
func (t *Table) send(s *share, o *Order, files []*os.File) error {
	p := s.provider
	s.sent = true
	err := fail(failSend)
	if err == nil {
		err = p.conn.SetDeadline(time.Now().Add(sendTimeout))
	}
	if err == nil {
		err = writeMessage(p.conn, &orderMessage{*o}, files)
	}
	if err == nil {
		err = p.conn.SetDeadline(time.Time{})
	}
	err = errors.Join(err, closeAll(files))
	if err != nil {
		p.disconnect() // it is out of step, and may have some of the descriptors
		return because(ProviderGone, fmt.Errorf("provider %s: %w", p.Name(), err))
	}
	if s.trust == Attached {
		for _, r := range o.Regions {
			p.kept[r.Block] = p.kept[r.Block] || r.Mode == ReadWrite
		}
	}
	p.mu.Lock()
	p.order = s
	p.mu.Unlock()
	t.mu.Lock()
	s.state = filling
	s.moved = time.Now()
	t.mu.Unlock()
	t.running.Go(func() { t.await(s, o.Regions) })
	t.wake()
	return fail(failSent)
}

// await waits for the provider's reply, and then for the end of the share, with which
// the header page goes.
func (t *Table) await(s *share, sent []Region) {
	p := s.provider
	filled, err := p.reply(s)
	claimed := int(min(loadFilled(s.page.Bytes()), uint64(s.cellCount())))
	if filled < 0 {
		filled = claimed // it went, or gave up, but what is filled is filled
	}
	if err != nil {
		// It may not have mapped what it was to keep, or not any more.
		for _, r := range sent {
			delete(p.kept, r.Block)
		}
	}
	s.outcome = Outcome{Filled: min(filled, claimed), Err: err, Took: time.Since(s.begun)}
	close(s.ended)
	if s.once {
		p.disconnect()
	}
	if !p.isGone() {
		p.yield()
	}
	t.wake()
	<-s.done
	t.closeHeader(s)
}

// reply reads the provider's reply; filled is -1 if that does not say. A connection that
// is out of step is closed.
func (p *Provider) reply(s *share) (filled int, err error) {
	m, files, err := readMessage(p.conn, maxReplyText)
	p.mu.Lock()
	p.order = nil
	if err == nil {
		err = p.conn.SetReadDeadline(time.Time{}) // a cancel may have set one
	}
	p.mu.Unlock()
	r, ok := m.(*Reply)
	switch {
	case err != nil:
		err = refuse(ProviderGone, "provider %s: %v", p.Name(), err)
	case !ok:
		err = refuse(ProviderGone, "provider %s sends a %s, want a reply", p.Name(), kindOf(m))
	case r.Ticket != s.ticket:
		err = refuse(ProviderGone, "provider %s replies to ticket %s, want %s", p.Name(), r.Ticket, s.ticket)
	case r.Filled == nil:
		code := r.Code
		if code == "" {
			code = ProviderGone
		}
		return -1, refuse(code, "provider %s says: %s", p.Name(), clip(r.Error, 500))
	default:
		return *r.Filled, nil
	}
	p.disconnect()
	return -1, errors.Join(err, closeAll(files))
}

// cancel asks for the end of an order, if it is not over. The provider has a moment to
// reply; then it is disconnected.
func (p *Provider) cancel(s *share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.order != s {
		return
	}
	// The message is short, and what it cannot be written to is closed by the deadline.
	err := p.conn.SetDeadline(time.Now().Add(cancelGrace))
	if err == nil {
		err = p.conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	}
	if err == nil {
		err = writeMessage(p.conn, &Cancel{Ticket: s.ticket}, nil)
	}
	if err == nil {
		err = p.conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		_ = p.conn.SetReadDeadline(time.Unix(1, 0)) // wakes who waits for the reply
	}
}

func (t *Table) closeHeader(s *share) {
	var err error
	if s.page != nil {
		err = s.page.Unmap()
	}
	if s.header != nil {
		err = errors.Join(err, s.header.Close())
	}
	if err != nil {
		t.log().Warn("handoff: close a header page", "error", err)
	}
}
