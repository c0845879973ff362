package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"baton/internal/engine"
	"baton/internal/supervise"
)

// StateFiles have a provider write the cells of a prompt to a file, which the decoder
// reads: the route where memory cannot be shared. It copies every cell twice.
type StateFiles struct {
	// Dir is the decoder's directory for slots' files.
	Dir string
	// Command starts a provider that reads the ids of a prompt from its standard input
	// and writes the state to path.
	Command func(path string) *supervise.Command
	Logger  *slog.Logger // default: discards
}

// write has the cells of all ids written to a new file, and returns its name.
func (f *StateFiles) write(ctx context.Context, ids []int32) (name string, err error) {
	name = "handoff-" + rand.Text()
	list := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		list = append(strconv.AppendInt(list, int64(id), 10), '\n')
	}
	cmd := f.Command(filepath.Join(f.Dir, name))
	cmd.Stdin, cmd.Stdout = bytes.NewReader(list), new(bytes.Buffer) // it tells people how many bytes
	log := f.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := supervise.Run(ctx, "provider", cmd, log); err != nil {
		return name, &Refused{Action: "write", Code: codeGone, Reason: "no state file was written: " + err.Error()}
	}
	return name, nil
}

// sumSuffix is that of the file with the checksum beside a state file.
const sumSuffix = ".sum"

// remove removes what write has made.
func (f *StateFiles) remove(name string) error {
	var err error
	for _, n := range []string{name, name + sumSuffix} {
		if e := os.Remove(filepath.Join(f.Dir, n)); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Restored is what the decoder answers to the action restore.
type Restored struct {
	Tokens      int   `json:"n_restored"`
	BytesCopied int64 `json:"bytes_copied"`
	Verified    bool  `json:"verified"`
}

// filed is the route by a state file.
func (h *Handoff) filed(ctx context.Context, r *engine.Request) (engine.Handoff, error) {
	out := engine.Handoff{Route: engine.RouteLocal}
	cells := r.Prompt[:len(r.Prompt)-1]
	start := time.Now()
	name, err := h.opt.Files.write(ctx, cells)
	defer func() {
		if err := h.opt.Files.remove(name); err != nil {
			h.opt.Logger.Warn("handoff: a state file is left behind", "error", err)
		}
	}()
	if err != nil {
		return out, err
	}
	written := time.Now()
	var restored *Restored
	err = whileBusy(ctx, func() error {
		restored, err = h.opt.Actions.Restore(ctx, r.Slot, name)
		return err
	})
	if err != nil {
		return out, err
	}
	if !restored.Verified || restored.Tokens != len(cells) {
		return out, &Refused{Action: "restore", Code: codeShort, Reason: "the state file does not hold the whole prompt"}
	}
	done := time.Now()
	h.counts.phase("write", written.Sub(start))
	h.counts.phase("restore", done.Sub(written))
	return engine.Handoff{
		Route: engine.RouteFile, Cells: restored.Tokens, Prefill: written.Sub(start), Took: done.Sub(written),
		BytesCopied: restored.BytesCopied,
	}, nil
}
