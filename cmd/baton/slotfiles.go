package main

import (
	"errors"
	"log/slog"
	"net/http"

	"baton/internal/api"
	"baton/internal/cli"
	"baton/internal/decoder"
	"baton/internal/engine"
	"baton/internal/statefile"
)

// slotFileFlags is what a command is told about files for slots.
type slotFileFlags struct{ slotSavePath *string }

func newSlotFileFlags(s *cli.Set) slotFileFlags {
	return slotFileFlags{slotSavePath: s.String("--slot-save-path", "BATON_SLOT_SAVE_PATH", "DIR", "",
		"directory where slots can be saved to and restored from over the API; without it they cannot")}
}

// slotFiles is a decoder's files for slots.
type slotFiles struct {
	store  *statefile.Store
	states *decoder.States
}

// open opens the directory; without one there is nothing to close.
func (f *slotFileFlags) open(d *decoder.Decoder, log *slog.Logger) (*slotFiles, error) {
	if *f.slotSavePath == "" {
		return nil, nil
	}
	store, err := statefile.Open(*f.slotSavePath)
	if err != nil {
		return nil, err
	}
	states, err := d.NewStates(store, log)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &slotFiles{store, states}, nil
}

// engine is the files as the API takes them; nil: there are none.
func (s *slotFiles) engine() engine.SlotFiles {
	if s == nil {
		return nil
	}
	return s.states
}

// close ends what is being saved or restored. The decoder must still run.
func (s *slotFiles) close() error {
	if s == nil {
		return nil
	}
	s.states.Close()
	return s.store.Close()
}

// slotActions gives the actions on files to the API, and the others, which hand out
// memory or take it in, to the control.
func slotActions(files, control http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("action") {
		case api.ActionSave, api.ActionRestore, api.ActionErase:
			files.ServeHTTP(w, r)
		default:
			control.ServeHTTP(w, r)
		}
	})
}
