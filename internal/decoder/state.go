package decoder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"baton/internal/engine"
	"baton/internal/kv"
	"baton/internal/model"
	"baton/internal/quant"
	"baton/internal/statefile"
)

// States implements engine.SlotFiles for a decoder: it saves what slots have in the
// cache, and puts it back. Lists of blocks change on the step loop; files are read and
// written off it.
type States struct {
	d     *Decoder
	store *statefile.Store
	log   *slog.Logger
	fit   statefile.Fit
	rows  *model.KeyRows

	stopped context.Context // ends with Close
	stop    context.CancelFunc
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// NewStates returns the States of a decoder with files in store; log, which may be nil,
// gets a line for each file. Close it before the decoder.
func (d *Decoder) NewStates(store *statefile.Store, log *slog.Logger) (*States, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	fingerprint, err := d.model.Fingerprint()
	if err != nil {
		return nil, err
	}
	s := &States{
		d: d, store: store, log: log, rows: model.NewKeyRows(d.model),
		fit: statefile.Fit{Layout: d.blocks.Layout(), Vocab: d.model.Vocab, MaxTokens: d.opt.Ctx, Model: fingerprint},
	}
	s.stopped, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close cancels what is running and waits for it. The store stays open.
func (s *States) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
	if !closed {
		s.rows.Close()
	}
}

// begin lets a call start whose context ends with Close, too; end has to be called.
func (s *States) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, &engine.Error{Code: engine.CodeStopping, Message: "the server is shutting down"}
	}
	s.running.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	unwatch := context.AfterFunc(s.stopped, cancel)
	return ctx, func() {
		unwatch()
		cancel()
		s.running.Done()
	}, nil
}

// onSlot runs f on the step loop for a slot that processes nothing.
func (s *States) onSlot(ctx context.Context, id int, f func(*slot) error) error {
	if id < 0 || id >= len(s.d.slots) {
		return &engine.Error{Code: engine.CodeBadRequest, Param: "id_slot", Message: fmt.Sprintf("slot %d does not exist: there are %d", id, len(s.d.slots))}
	}
	var err error
	if e := s.d.onLoop(ctx, func() {
		if sl := s.d.slots[id]; sl.busy() {
			err = &engine.Error{Code: engine.CodeSlotBusy, Message: fmt.Sprintf("slot %d is processing a request: wait for its end", id)}
		} else {
			err = f(sl)
		}
	}); e != nil {
		return e
	}
	return err
}

// free gives a sequence back. The loop runs until Close has returned, so it does run.
func (s *States) free(seq *kv.Sequence) { _ = s.d.onLoop(context.Background(), seq.Free) }

// cached is the cells that the slot's last request used, as far as they are still there;
// on the step loop. The caller frees it.
func (d *Decoder) cached(s *slot) *kv.Sequence {
	if s.kept != nil {
		return s.kept.Fork(s.kept.Len())
	}
	seq, _ := d.index.Attach(s.last, len(s.last))
	return seq
}

// SaveSlot implements engine.SlotFiles.
func (s *States) SaveSlot(ctx context.Context, slotID int, name string) (engine.SlotFile, error) {
	f, err := s.saveSlot(ctx, slotID, name)
	s.tell("saved", slotID, name, f, err)
	return f, err
}

// tell logs what became of a file.
func (s *States) tell(done string, slotID int, name string, f engine.SlotFile, err error) {
	if err != nil {
		s.log.Warn("slot not "+done, "slot", slotID, "reason", err.Error())
		return
	}
	args := []any{"slot", slotID, "file", name, "tokens", f.Tokens, "bytes", f.Bytes, "verified", f.Verified, "ms", f.Took.Milliseconds()}
	if f.Warning != "" {
		s.log.Warn("slot "+done, append(args, "warning", f.Warning)...)
		return
	}
	s.log.Info("slot "+done, args...)
}

func (s *States) saveSlot(ctx context.Context, slotID int, name string) (engine.SlotFile, error) {
	if err := statefile.CheckName(name); err != nil {
		return engine.SlotFile{}, asEngine(err)
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return engine.SlotFile{}, err
	}
	defer end()
	state := statefile.State{Layout: s.fit.Layout}
	var seq *kv.Sequence
	err = s.onSlot(ctx, slotID, func(sl *slot) error {
		seq = s.d.cached(sl)
		state.Tokens, state.Runs = seq.Tokens(), seq.Runs(0, seq.Len(), nil)
		return nil
	})
	if err != nil {
		return engine.SlotFile{}, asEngine(err)
	}
	defer s.free(seq)
	if len(state.Tokens) == 0 {
		return engine.SlotFile{}, &engine.Error{Code: engine.CodeBadRequest, Param: "id_slot", Message: fmt.Sprintf("slot %d has nothing in the cache: there is nothing to save", slotID)}
	}
	info, err := s.store.Save(ctx, name, s.fit.Model, state)
	return slotFile(info), asEngine(err)
}

// RestoreSlot implements engine.SlotFiles. What the slot had stays cached as long as
// there is room. A file without a checksum is compared with the model: some K rows of
// layer 0, which follow from the token and the position alone.
func (s *States) RestoreSlot(ctx context.Context, slotID int, name string) (engine.SlotFile, error) {
	f, err := s.restoreSlot(ctx, slotID, name)
	s.tell("restored", slotID, name, f, err)
	return f, err
}

func (s *States) restoreSlot(ctx context.Context, slotID int, name string) (engine.SlotFile, error) {
	if err := statefile.CheckName(name); err != nil {
		return engine.SlotFile{}, asEngine(err)
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return engine.SlotFile{}, err
	}
	defer end()
	start := time.Now()
	var seq *kv.Sequence
	defer func() {
		if seq != nil {
			s.free(seq)
		}
	}()
	var runs []kv.Run
	info, err := s.store.Restore(ctx, name, s.fit, func(tokens []int32) ([]kv.Run, error) {
		err := s.onSlot(ctx, slotID, func(*slot) error {
			seq = s.d.blocks.NewSequence()
			return s.d.append(seq, tokens)
		})
		if err != nil {
			return nil, err
		}
		runs = seq.Runs(0, len(tokens), nil)
		return runs, nil
	})
	if err == nil && !info.Verified {
		err = s.compare(name, seq.Tokens(), runs)
	}
	if err != nil {
		return engine.SlotFile{}, asEngine(err)
	}
	err = s.onSlot(ctx, slotID, func(*slot) error { return s.d.attach(slotID, seq) })
	if err != nil {
		return engine.SlotFile{}, asEngine(err)
	}
	seq = nil // it is the slot's now
	out := slotFile(info)
	out.Took = time.Since(start)
	return out, nil
}

// EraseSlot implements engine.SlotFiles. Other slots that began alike keep what they
// have; requests that come later find nothing of it.
func (s *States) EraseSlot(ctx context.Context, slotID int) (n int, err error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	err = s.onSlot(ctx, slotID, func(sl *slot) error {
		seq := s.d.cached(sl)
		n = seq.Len()
		runs := seq.Runs(0, n, nil)
		seq.Free()
		sl.drop()
		sl.last = sl.last[:0]
		for _, r := range runs {
			s.d.index.Forget(r.Block)
		}
		for _, other := range s.d.slots {
			if other.kept != nil { // its next request has to find it
				s.d.index.Insert(other.kept)
			}
		}
		return nil
	})
	return n, asEngine(err)
}

const (
	comparedRows = 16
	// rowTolerance is how far a K row of layer 0 may be from what we compute, relative to
	// its length: other kernels round differently, by about half a percent.
	rowTolerance = 0.05
)

// compare finds out whether cells were computed from the tokens by the model.
func (s *States) compare(name string, tokens []int32, runs []kv.Run) error {
	n := min(comparedRows, len(tokens))
	positions := rand.Perm(len(tokens))[:n]
	chosen := make([]int32, n)
	for i, pos := range positions {
		chosen[i] = tokens[pos]
	}
	width := s.fit.Layout.RowElems
	want := make([]uint16, n*width)
	if err := s.rows.Compute(chosen, positions, want); err != nil {
		return err
	}
	for i, pos := range positions {
		e := relativeError(keyRow(runs, pos, width), want[i*width:][:width])
		if !(e <= rowTolerance) { // so that a NaN does not pass
			return &engine.Error{Code: engine.CodeBadFile, Message: fmt.Sprintf(
				"the file %q has no checksum, and its K row of layer 0 at position %d differs from the model's for token %d: found a relative error of %.3g, expected at most %g: it was saved with another model, or is damaged",
				name, pos, chosen[i], e, rowTolerance)}
		}
	}
	return nil
}

// keyRow is the K row of layer 0 at a position.
func keyRow(runs []kv.Run, pos, width int) []uint16 {
	for _, r := range runs {
		if pos < r.Len {
			return r.K(0)[pos*width:][:width]
		}
		pos -= r.Len
	}
	return nil
}

// relativeError is the length of the difference of two f16 rows, relative to want's.
func relativeError(got, want []uint16) float64 {
	var difference, norm float64
	for i := range got {
		w := float64(quant.F16ToF32(want[i]))
		d := float64(quant.F16ToF32(got[i])) - w
		difference += d * d
		norm += w * w
	}
	if difference == 0 {
		return 0
	}
	return math.Sqrt(difference / norm)
}

func slotFile(i statefile.Info) engine.SlotFile {
	return engine.SlotFile{Tokens: i.Tokens, Bytes: i.Bytes, Copied: i.Copied, Verified: i.Verified, Warning: i.Warning, Took: i.Elapsed}
}

// asEngine makes err an *engine.Error, unless it is nil or a context's.
func asEngine(err error) error {
	var file *statefile.Error
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, errEnded):
		return &engine.Error{Code: engine.CodeStopping, Message: "the server is shutting down"}
	case errors.Is(err, kv.ErrNoRoom):
		return &engine.Error{Code: engine.CodeNoRoom, Message: err.Error()}
	case !errors.As(err, &file):
		return engine.AsError(err)
	}
	e := &engine.Error{Code: engine.CodeBadFile, Param: "filename", Message: err.Error()}
	switch file.Kind {
	case statefile.BadName, statefile.TooLong:
		e.Code = engine.CodeBadRequest
	case statefile.NotFound:
		e.Code = engine.CodeNoFile
	}
	return e
}
