package handoff

import (
	"context"
	"errors"
	"fmt"
	"time"

	"baton/internal/kv"
	"baton/internal/shm"
)

// AdoptRequest asks for the cells of a share.
type AdoptRequest struct {
	Slot int
	ID   ID
	// Digest is PromptDigest of the tokens that the caller believes the share is for,
	// with or without the last one; or else Tokens are these tokens. One of them has to
	// be given: it guards against a mix-up of prompts.
	Digest *Digest
	Tokens []int32
	// All refuses cells that are only partly filled.
	All bool
}

// Adopted says what an adopt did. It has moved no data.
type Adopted struct {
	Slot     int
	Provider string
	Trust    Trust
	Pos0     int // cells that were there before
	Filled   int // cells 0 to Filled-1 are the slot's now
	Cells    int // cells 0 to Cells-1 were asked for
	Blocks   int // attached by this adopt
	// Short says why Filled is less than Cells, if the provider said; nil otherwise.
	Short error

	Confirm time.Duration // waiting for the kernel's word that nobody else can write
	Verify  time.Duration // header and content
	Attach  time.Duration // on the step loop, waiting for it included
	Took    time.Duration // the whole adopt
	Since   time.Duration // since the share was asked for
}

// Adopt takes the cells of a share into its slot, after all checks; see the package's
// documentation. The id is used up, whatever comes of it, unless the request itself
// is wrong. The error is a *Refusal.
func (t *Table) Adopt(ctx context.Context, r *AdoptRequest) (*Adopted, error) {
	begun := time.Now()
	s, err := t.claim(r)
	if err != nil {
		return nil, err
	}
	a := &Adopted{Slot: s.slot, Provider: s.provider.Name(), Trust: s.trust, Pos0: s.pos0, Cells: s.cellCount()}
	if err := t.adopt(ctx, s, r, a); err != nil {
		t.mu.Lock()
		t.leave(s, ShareUsed)
		t.mu.Unlock()
		t.cleanUp(s, true)
		var refusal *Refusal
		if !errors.As(err, &refusal) {
			refusal = because(ContentDiffers, err)
		}
		return nil, refusal
	}
	t.mu.Lock()
	t.leave(s, ShareUsed)
	t.adopted++
	t.cells += uint64(a.Filled - a.Pos0)
	t.mu.Unlock()
	a.Took, a.Since = time.Since(begun), time.Since(s.begun)
	return a, nil
}

// claim finds the share of a request and uses its id up.
func (t *Table) claim(r *AdoptRequest) (*share, error) {
	if r.ID == 0 {
		return nil, &Refusal{Code: BadRequest, Field: "share_id", Detail: "share_id is missing: it is what the share answered"}
	}
	if (r.Digest == nil) == (r.Tokens == nil) {
		return nil, &Refusal{Code: BadRequest, Field: "digest", Detail: "either digest or tokens has to be given"}
	}
	want := PromptDigest(r.Tokens)
	if r.Digest != nil {
		want = *r.Digest
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.find(r.Slot, r.ID)
	if err != nil {
		return nil, err
	}
	s.state = adopting
	if want != s.given && want != s.all {
		// A mix-up on the caller's side: nothing here is to be trusted with it.
		t.leave(s, ShareUsed)
		t.running.Go(func() { t.cleanUp(s, true) })
		return nil, refuse(PromptDiffers, "the share is for a prompt of digest %s, the adopt for %s", s.all, want)
	}
	return s, nil
}

// adopt does the work, step by step. On an error the share still holds its blocks.
func (t *Table) adopt(ctx context.Context, s *share, r *AdoptRequest, a *Adopted) error {
	if err := fail(failAdopt); err != nil {
		return err
	}
	at := time.Now()
	if err := t.confirm(ctx, s); err != nil {
		return err
	}
	a.Confirm = time.Since(at)
	if err := fail(failConfirmed); err != nil {
		return err
	}
	at = time.Now()
	filled, err := t.verify(ctx, s, r.All)
	if err != nil {
		return err
	}
	a.Verify = time.Since(at)
	if err := fail(failChecked); err != nil {
		return err
	}
	a.Filled = filled
	if s.hasEnded() && filled < a.Cells {
		a.Short = s.outcome.Err
	}
	at = time.Now()
	if err := t.attach(ctx, s, a); err != nil {
		return err
	}
	a.Attach = time.Since(at)
	return nil
}

// confirm has it confirmed that nobody else can write to the blocks. What a provider has
// let go may take the kernel a moment to see, so it asks for a while.
func (t *Table) confirm(ctx context.Context, s *share) error {
	const first, last = 200 * time.Microsecond, 20 * time.Millisecond
	end := time.Now().Add(t.opt.LetGo)
	for delay := first; ; delay = min(2*delay, last) {
		err := t.confirmAll(s)
		if err == nil {
			return nil
		}
		if !errors.Is(err, shm.ErrStillWritable) {
			return because(StillWritable, err)
		}
		if time.Now().After(end) {
			how := "it has not replied"
			if s.hasEnded() {
				how = "it has replied, or gone"
			}
			return &Refusal{Code: StillWritable, Err: err, Detail: fmt.Sprintf(
				"block %d of %d, %v after the adopt; provider %s: %s", s.proven+1, len(s.blocks), t.opt.LetGo, s.provider.Name(), how)}
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return because(StillWritable, ctx.Err())
		}
	}
}

// confirmAll goes on where it failed the last time.
func (t *Table) confirmAll(s *share) error {
	for ; s.proven < len(s.blocks); s.proven++ {
		if err := t.confirmBlock(s, s.blocks[s.proven]); err != nil {
			return err
		}
	}
	return nil
}

// verify compares the header with the record and the cells with the tokens. Nobody else
// can write to the cells any more; the header it reads once.
func (t *Table) verify(ctx context.Context, s *share, all bool) (filled int, err error) {
	h := readHeader(s.page.Bytes())
	filled, refusal := h.validate(&expectation{
		layout: t.layout.LayoutDigest, description: t.description,
		ticket: s.ticket, prompt: s.given, pos0: s.pos0, cells: s.cellCount(),
	})
	if refusal != nil {
		var said *Refusal
		if refusal.Code == HeaderMissing && s.hasEnded() && errors.As(s.outcome.Err, &said) {
			// The provider has told why it wrote none.
			refusal = &Refusal{Code: said.Code, Detail: said.Detail, Err: refusal}
		}
		return 0, refusal
	}
	if all && filled < s.cellCount() {
		return 0, refuse(ShortFill, "%d of %d cells are filled", filled, s.cellCount())
	}
	if err := t.checkContent(ctx, s, filled); err != nil {
		return 0, err
	}
	return filled, nil
}

// attach makes the cells the slot's, on the step loop.
func (t *Table) attach(ctx context.Context, s *share, a *Adopted) error {
	cells := t.opt.Pool.Layout().CellsPerBlock
	a.Blocks = (a.Filled - a.Pos0 + cells - 1) / cells
	var refused error
	err := t.opt.OnLoop(ctx, func() { refused = t.attachOnLoop(s, a) })
	if err != nil {
		return refuse(NoRoom, "the decoder did not get round to it: %v", err)
	}
	if refused != nil {
		return refused
	}
	// What was not filled is as free of writers as what was.
	for _, b := range s.blocks {
		b.Release()
	}
	s.blocks = nil
	return nil
}

func (t *Table) attachOnLoop(s *share, a *Adopted) error {
	if t.opt.SlotBusy != nil && t.opt.SlotBusy(s.slot) {
		return refuse(SlotBusy, "slot %d", s.slot)
	}
	if err := s.seq.Adopt(s.blocks[:a.Blocks], s.tokens[a.Pos0:a.Filled]); err != nil {
		return because(NoRoom, err)
	}
	s.blocks = s.blocks[a.Blocks:] // the others are the sequence's now
	if err := t.opt.Attach(s.slot, s.seq); err != nil {
		return because(SlotBusy, err)
	}
	s.seq = nil
	return nil
}

// Wait waits until the provider of a share has replied, or has gone, and says how far it
// came. The share stays outstanding. The error is a *Refusal if there is no such share,
// or not any more, and ctx's if that ends first.
func (t *Table) Wait(ctx context.Context, slot int, id ID) (Outcome, error) {
	t.mu.Lock()
	s, err := t.find(slot, id)
	t.mu.Unlock()
	if err != nil {
		return Outcome{}, err
	}
	select {
	case <-s.ended:
		return s.outcome, nil
	case <-s.done:
		t.mu.Lock()
		_, err := t.find(slot, id)
		t.mu.Unlock()
		return Outcome{}, err
	case <-ctx.Done():
		return Outcome{}, ctx.Err()
	}
}

// Progress is how many cells of a share its provider says are filled by now.
func (t *Table) Progress(slot int, id ID) (filled int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.find(slot, id)
	if err != nil {
		return 0, err
	}
	return max(s.pos0, int(min(loadFilled(s.page.Bytes()), uint64(s.cellCount())))), nil
}

// Release gives a share back: its provider is told to stop.
func (t *Table) Release(slot int, id ID) error {
	t.mu.Lock()
	s, err := t.find(slot, id)
	t.mu.Unlock()
	if err != nil {
		return err
	}
	t.abandon(s, ShareUnknown)
	return nil
}

// runsOf is the cells that a share's provider has filled.
func (s *share) runsOf(filled int) []kv.Run { return kv.FilledRuns(s.blocks, filled-s.pos0) }
