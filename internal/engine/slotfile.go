package engine

import (
	"context"
	"time"
)

// SlotFiles keeps what slots have in the cache in files. All methods are safe for
// concurrent use; errors are of type *Error, or ctx's.
type SlotFiles interface {
	// SaveSlot writes the cells that the slot's last request used, as far as they are
	// still cached, to the file of that name.
	SaveSlot(ctx context.Context, slot int, name string) (SlotFile, error)
	// RestoreSlot reads the cells of a file into the slot, where the next request whose
	// prompt begins like them finds them.
	RestoreSlot(ctx context.Context, slot int, name string) (SlotFile, error)
	// EraseSlot drops what the slot has in the cache and says how many tokens that was.
	EraseSlot(ctx context.Context, slot int) (int, error)
}

// SlotFile tells of a file that was saved or restored.
type SlotFile struct {
	Tokens   int
	Bytes    int64 // of the file
	Copied   int64 // bytes of rows moved
	Verified bool  // the file is what its checksum says: whole, and of this model
	Warning  string
	Took     time.Duration
}

// Codes of errors of SlotFiles.
const (
	CodeSlotBusy Code = "slot_busy"       // later it may work
	CodeNoFile   Code = "state_not_found" // there is no file of that name
	CodeBadFile  Code = "state_unusable"  // the file is damaged, or of another model
)
