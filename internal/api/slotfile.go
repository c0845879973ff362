package api

import (
	"time"

	"baton/internal/engine"
)

// Actions on a slot's state, the values of the query parameter action.
const (
	ActionSave    = "save"
	ActionRestore = "restore"
	ActionErase   = "erase"
)

// ParseSlotFile reads the body of the slot actions save and restore: the name of a file.
func ParseSlotFile(body []byte) (string, *Error) {
	o, err := parseBody(body)
	if err != nil {
		return "", err
	}
	var name string
	if !o.string("filename", &name) && o.err == nil {
		o.fail(badRequest("filename", CodeMissing, "filename: found nothing, expected the name of a file"))
	}
	return name, o.err
}

// SlotSaved answers the action save, as llama-server does.
type SlotSaved struct {
	Slot    int    `json:"id_slot"`
	File    string `json:"filename"`
	Saved   int    `json:"n_saved"`   // tokens
	Written int64  `json:"n_written"` // bytes
	Timings struct {
		MS float64 `json:"save_ms"`
	} `json:"timings"`
}

// SavedOf reports that a slot was saved.
func SavedOf(slot int, name string, f engine.SlotFile) *SlotSaved {
	s := &SlotSaved{Slot: slot, File: name, Saved: f.Tokens, Written: f.Bytes}
	s.Timings.MS = milliseconds(f.Took)
	return s
}

// SlotRestored answers the action restore: llama-server's fields, and whether the file
// is known to be whole and of this model.
type SlotRestored struct {
	Slot     int    `json:"id_slot"`
	File     string `json:"filename"`
	Restored int    `json:"n_restored"` // tokens
	Read     int64  `json:"n_read"`     // bytes
	Verified bool   `json:"verified"`
	Warning  string `json:"warning,omitempty"`
	Copied   int64  `json:"bytes_copied"`
	Timings  struct {
		MS float64 `json:"restore_ms"`
	} `json:"timings"`
}

// RestoredOf reports that a slot was restored.
func RestoredOf(slot int, name string, f engine.SlotFile) *SlotRestored {
	s := &SlotRestored{Slot: slot, File: name, Restored: f.Tokens, Read: f.Bytes, Verified: f.Verified, Warning: f.Warning, Copied: f.Copied}
	s.Timings.MS = milliseconds(f.Took)
	return s
}

// SlotErased answers the action erase.
type SlotErased struct {
	Slot   int `json:"id_slot"`
	Erased int `json:"n_erased"` // tokens
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
