package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"baton/internal/engine"
)

// SlotFiles implements engine.SlotFiles with the files of a decoder in another process.
// An action on a slot waits its turn like a request for that slot.
type SlotFiles struct {
	e       *Engine
	control *Control
}

// SlotFiles returns the slot files of the engine's decoder, whose control is c.
func (e *Engine) SlotFiles(c *Control) *SlotFiles { return &SlotFiles{e, c} }

// slotFileAnswer is the decoder's answer to the actions save, restore and erase.
type slotFileAnswer struct {
	Saved    int    `json:"n_saved"`
	Restored int    `json:"n_restored"`
	Erased   int    `json:"n_erased"`
	Written  int64  `json:"n_written"`
	Read     int64  `json:"n_read"`
	Copied   int64  `json:"bytes_copied"`
	Verified bool   `json:"verified"`
	Warning  string `json:"warning"`
	Timings  struct {
		Save    float64 `json:"save_ms"`
		Restore float64 `json:"restore_ms"`
	} `json:"timings"`
}

// SaveSlot implements engine.SlotFiles.
func (s *SlotFiles) SaveSlot(ctx context.Context, slot int, name string) (engine.SlotFile, error) {
	a, err := s.act(ctx, slot, "save", name)
	return engine.SlotFile{Tokens: a.Saved, Bytes: a.Written, Verified: err == nil, Took: fromMS(a.Timings.Save)}, err
}

// RestoreSlot implements engine.SlotFiles.
func (s *SlotFiles) RestoreSlot(ctx context.Context, slot int, name string) (engine.SlotFile, error) {
	a, err := s.act(ctx, slot, "restore", name)
	return engine.SlotFile{
		Tokens: a.Restored, Bytes: a.Read, Copied: a.Copied, Verified: a.Verified, Warning: a.Warning, Took: fromMS(a.Timings.Restore),
	}, err
}

// EraseSlot implements engine.SlotFiles.
func (s *SlotFiles) EraseSlot(ctx context.Context, slot int) (int, error) {
	a, err := s.act(ctx, slot, "erase", "")
	return a.Erased, err
}

func (s *SlotFiles) act(ctx context.Context, slot int, action, name string) (a slotFileAnswer, err error) {
	if slot < 0 || slot >= s.e.info.Slots {
		return a, &engine.Error{Code: engine.CodeBadRequest, Param: "id_slot", Message: "there is no such slot"}
	}
	body, err := json.Marshal(map[string]string{"filename": name})
	if err != nil {
		return a, err
	}
	got, err := s.e.slots.wait(ctx, s.e.slots.enqueue(action, slot))
	if err != nil {
		return a, err
	}
	defer s.e.slots.release(got)
	err = s.control.do(ctx, got, action, body, &a)
	var r *Refused
	switch {
	case ctx.Err() != nil:
		return a, ctx.Err()
	case errors.As(err, &r):
		return a, r.engineError()
	}
	return a, err
}

// engineError is the refusal of an action on a slot's file.
func (r *Refused) engineError() *engine.Error {
	e := &engine.Error{Code: engine.CodeInternal, Message: r.Reason}
	switch code := engine.Code(r.Code); {
	case r.Code == codeUnreachable:
		e.Code = engine.CodeAway
	case code == engine.CodeNoFile, code == engine.CodeSlotBusy, code == engine.CodeBadFile, code == engine.CodeNoRoom, code == engine.CodeStopping:
		e.Code = code
	case r.Status == http.StatusBadRequest:
		e.Code = engine.CodeBadRequest
	}
	return e
}

func fromMS(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
