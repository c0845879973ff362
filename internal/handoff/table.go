package handoff

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"baton/internal/kv"
	"baton/internal/shm"
)

// Options is what a Table works with.
type Options struct {
	Pool  *kv.Pool
	Index *kv.Index
	// OnLoop runs f on the step loop, between two steps, and returns when it has run.
	// The error is not nil exactly if f did not run and never will: because ctx ended
	// first, or the loop has stopped.
	OnLoop func(ctx context.Context, f func()) error
	// SlotBusy reports whether a slot processes a request. It is called on the step
	// loop; nil: never.
	SlotBusy func(slot int) bool
	// Attach gives a slot the sequence that holds its prompt's cells. It is called on
	// the step loop, and takes the sequence over unless it returns an error.
	Attach func(slot int, s *kv.Sequence) error
	// KeyRows computes the K rows of layer 0, as the model's forward pass would: of
	// tokens[i] at positions[i], in the cache's type, into dst [len(tokens)][RowElems].
	// It is called on the goroutine that adopts.
	KeyRows func(ctx context.Context, tokens []int32, positions []int, dst []uint16) error
	// LeaseBroken is called on the step loop when somebody has opened the memory of a
	// block in use for writing. The index has forgotten the block; sequences that use it
	// (kv.Sequence.Uses) must be given up. May be nil.
	LeaseBroken func(b *kv.Block)

	Slots   int
	Context int               // positions a slot has
	Vocab   int               // token ids are below it
	Params  map[string]string // what a provider has to reproduce, beside the layout

	Off         string // why sharing is off; empty: it is on
	Unshareable string // why the model cannot be handed over; empty: it can

	MaxShares int           // outstanding at once; 0: one a slot
	Stall     time.Duration // a share without progress for so long is given up; 0: 30 s
	LetGo     time.Duration // how long an adopt waits for mappings to go; 0: 2 s
	// Tolerance is the relative error (L2 norm) up to which computed rows agree with
	// those of a foreign provider; 0: 0.05. Those of our own have to be equal.
	Tolerance float64
	RunDir    *os.Root // where sockets named in requests may be; nil: nowhere
	Log       *slog.Logger
}

// ID names a share towards whoever asked for it. It cannot be guessed.
type ID uint64

// Table is the decoder's side of all handoffs: its providers, and the record of every
// share. All methods are safe for concurrent use.
type Table struct {
	opt         Options
	layout      Layout
	description string // what the layout's digest is of

	mu         sync.Mutex
	closed     bool
	providers  map[string]*Provider
	shares     map[ID]*share // outstanding
	slots      map[int]*share
	past       tombstones
	quarantine []*patient
	adopted    uint64
	cells      uint64

	work    chan struct{} // wakes the janitor
	closing chan struct{}
	running sync.WaitGroup
}

// NewTable makes a table without providers. Close it before the step loop stops.
func NewTable(o Options) (*Table, error) {
	if o.Pool == nil || o.Index == nil || o.OnLoop == nil || o.Attach == nil || o.KeyRows == nil {
		return nil, errors.New("handoff: table: Pool, Index, OnLoop, Attach and KeyRows must be set")
	}
	if o.Slots < 1 || o.Context < 1 || o.Vocab < 1 {
		return nil, fmt.Errorf("handoff: table: %d slots of %d positions, %d token ids", o.Slots, o.Context, o.Vocab)
	}
	if _, err := loadFailpoints(); err != nil {
		return nil, err
	}
	if o.MaxShares == 0 {
		o.MaxShares = o.Slots
	}
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	if o.LetGo == 0 {
		o.LetGo = 2 * time.Second
	}
	if o.Tolerance == 0 {
		o.Tolerance = 0.05
	}
	l := o.Pool.Layout()
	t := &Table{
		opt: o, layout: layoutMessage(l, o.Params), description: l.Describe(o.Params),
		providers: map[string]*Provider{}, shares: map[ID]*share{}, slots: map[int]*share{},
		work: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	t.running.Go(t.janitor)
	return t, nil
}

func (t *Table) log() *slog.Logger {
	if t.opt.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return t.opt.Log
}

// Layout is the layout of the blocks as it goes to providers.
func (t *Table) Layout() Layout { return t.layout }

type state uint8

const (
	preparing state = iota // not sent yet
	filling                // the provider has it, or has had it
	adopting               // the id is used up
	finished               // in no list any more
)

// share is the decoder's record of what it asked for. What is not said to change does
// not change after the order was sent.
type share struct {
	id       ID
	slot     int
	ticket   Ticket
	tokens   []int32 // of the whole prompt
	given    Digest  // of all tokens but the last, which the provider is given
	all      Digest
	trust    Trust
	provider *Provider
	once     bool // the provider's connection is for this share only
	sent     bool // the provider may have some of the descriptors

	pos0   int
	seq    *kv.Sequence // the prefix; of the step loop
	prefix []kv.Run
	blocks []*kv.Block // to be filled
	proven int         // blocks [0, proven) are leased or sealed; of who adopts

	header *shm.Object
	page   *shm.Mapping

	begun    time.Time
	deadline time.Time // zero: none

	ended   chan struct{} // closed when the provider has replied or gone; outcome is set
	outcome Outcome
	done    chan struct{} // closed when finished

	state state     // guarded by Table.mu
	seen  uint64    // filled, when the janitor looked last; of the janitor
	moved time.Time // when it last changed; of the janitor
}

// cellCount is how many cells the provider's work ends with.
func (s *share) cellCount() int { return len(s.tokens) - 1 }

// hasEnded reports whether the provider has replied or gone.
func (s *share) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// enter makes the record of a share that is about to be made.
func (t *Table) enter(r *Request) (*share, error) {
	s := &share{
		slot: r.Slot, tokens: r.Tokens, begun: time.Now(),
		ended: make(chan struct{}), done: make(chan struct{}),
	}
	s.given, s.all = promptDigests(r.Tokens)
	var random [8]byte
	rand.Read(random[:])
	s.id = ID(binary.LittleEndian.Uint64(random[:]) >> 1) // so that it fits in an int64
	rand.Read(s.ticket[:])
	if r.Budget > 0 {
		s.deadline = s.begun.Add(r.Budget)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, refuse(SharingOff, "the decoder is shutting down")
	case t.slots[r.Slot] != nil:
		return nil, refuse(AlreadySharing, "slot %d", r.Slot)
	case len(t.shares) >= t.opt.MaxShares:
		return nil, &Refusal{Code: NoRoom, RetryAfter: time.Second,
			Detail: fmt.Sprintf("%d shares are outstanding, at most %d are allowed", len(t.shares), t.opt.MaxShares)}
	}
	t.shares[s.id], t.slots[s.slot] = s, s
	return s, nil
}

// leave ends a record; why is what later uses of its id are told. It reports whether it
// was this call that ended it. It needs Table.mu.
func (t *Table) leave(s *share, why Code) bool {
	if s.state == finished {
		return false
	}
	s.state = finished
	delete(t.shares, s.id)
	delete(t.slots, s.slot)
	t.past.add(s.id, why)
	close(s.done)
	return true
}

// find returns the outstanding share of that id, if it is the slot's. It needs Table.mu.
func (t *Table) find(slot int, id ID) (*share, error) {
	if slot < 0 || slot >= t.opt.Slots {
		return nil, refuse(SlotUnknown, "slot %d of %d", slot, t.opt.Slots)
	}
	s := t.shares[id]
	switch {
	case s == nil:
		if why, known := t.past.why[id]; known {
			return nil, refuse(why, "share %d", id)
		}
		return nil, refuse(ShareUnknown, "share %d", id)
	case s.slot != slot:
		return nil, refuse(ShareOfOtherSlot, "share %d was made for slot %d, not %d", id, s.slot, slot)
	case s.state == preparing:
		return nil, refuse(ShareUnknown, "share %d is not made yet", id)
	case s.state == adopting:
		return nil, refuse(ShareUsed, "share %d is being adopted", id)
	}
	return s, nil
}

// tombstones remembers why the ids used last are no good any more.
type tombstones struct {
	why  map[ID]Code
	ring []ID
	next int
}

const maxTombstones = 4096

func (t *tombstones) add(id ID, why Code) {
	if t.why == nil {
		t.why = map[ID]Code{}
	}
	if len(t.ring) < maxTombstones {
		t.ring = append(t.ring, id)
	} else {
		delete(t.why, t.ring[t.next])
		t.ring[t.next] = id
		t.next = (t.next + 1) % maxTombstones
	}
	t.why[id] = why
}

// Stats is a snapshot of a table.
type Stats struct {
	Providers   int
	Shares      int    // outstanding
	Quarantined int    // blocks that somebody may still write to
	Adopted     uint64 // handoffs that succeeded
	Cells       uint64 // adopted with them
}

// Stats may be called at any time.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Providers: len(t.providers), Shares: len(t.shares), Adopted: t.adopted, Cells: t.cells}
	for _, p := range t.quarantine {
		s.Quarantined += len(p.blocks)
	}
	return s
}

// Close gives up all shares and disconnects all providers. Blocks that somebody may
// still write to are discarded; the error says how many.
func (t *Table) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	var shares []*share
	for _, s := range t.shares {
		shares = append(shares, s)
	}
	var providers []*Provider
	for _, p := range t.providers {
		providers = append(providers, p)
	}
	t.mu.Unlock()
	for _, s := range shares {
		t.abandon(s, ShareExpired)
	}
	for _, p := range providers {
		p.disconnect()
	}
	t.emptyQuarantine(t.opt.LetGo)
	close(t.closing)
	t.running.Wait()

	t.mu.Lock()
	rest := t.quarantine
	t.quarantine = nil
	t.mu.Unlock()
	n := 0
	for _, p := range rest {
		for _, b := range p.blocks {
			b.Condemn()
			b.Release()
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("handoff: close: %d blocks were still writable for others and are discarded", n)
	}
	return nil
}
