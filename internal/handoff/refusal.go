package handoff

import (
	"fmt"
	"strings"
	"time"
)

//go:generate go run ./gendocs

// Code names a reason to refuse a share or an adopt. Codes are stable.
type Code string

// The codes, in the order of the table.
const (
	BadRequest        Code = "bad_request"
	SlotUnknown       Code = "slot_unknown"
	ShareUnknown      Code = "share_unknown"
	ShareUsed         Code = "share_used"
	ShareOfOtherSlot  Code = "share_of_other_slot"
	SlotBusy          Code = "slot_busy"
	AlreadySharing    Code = "already_sharing"
	StillWritable     Code = "still_writable"
	ShareExpired      Code = "share_expired"
	HeaderMissing     Code = "header_missing"
	TicketDiffers     Code = "ticket_differs"
	LayoutDiffers     Code = "layout_differs"
	PromptDiffers     Code = "prompt_differs"
	ShortFill         Code = "short_fill"
	ContentDiffers    Code = "content_differs"
	SharingOff        Code = "sharing_off"
	ModelNotShareable Code = "model_not_shareable"
	ProviderGone      Code = "provider_unreachable"
	NoRoom            Code = "no_room"
)

// Entry is a row of the table of refusals.
type Entry struct {
	Code   Code
	Status int    // of HTTP
	Means  string // a sentence without its full stop
	Do     string // what the caller can do
}

// table is what the errors, the HTTP layer and docs/refusals.md are made of.
var table = []Entry{
	{BadRequest, 400, "the request is malformed: an id, a token or a length is missing or out of bounds",
		"correct the request; the message names the field"},
	{SlotUnknown, 404, "the decoder has no slot of that number",
		"ask /slots for those that there are"},
	{ShareUnknown, 409, "no share of that id was made by this decoder, or it was given back",
		"make a share first; process the prompt locally"},
	{ShareUsed, 409, "the share was adopted, or an adopt of it failed: an id is good for one attempt",
		"make a new share, or process the prompt locally"},
	{ShareOfOtherSlot, 409, "the share was made for another slot",
		"adopt it into the slot that it was made for"},
	{SlotBusy, 409, "the slot is processing another request",
		"wait for the slot, or use another one"},
	{AlreadySharing, 409, "the slot has a share outstanding",
		"adopt or release that share first"},
	{StillWritable, 409, "somebody can still write to the cells: a mapping or a descriptor was not let go",
		"process the prompt locally; have the provider unmap and close everything before it replies"},
	{ShareExpired, 410, "the share was given up: its provider made no progress, it took too long, or the connection that made it is closed",
		"process the prompt locally; see whether the provider hangs"},
	{HeaderMissing, 422, "the provider did not write a header that this decoder understands",
		"process the prompt locally; see the provider's log"},
	{TicketDiffers, 422, "the header was written for another share",
		"process the prompt locally; the provider must echo the ticket of the share that it fills"},
	{LayoutDiffers, 422, "the provider works with another model, layout or parameters",
		"start both with the same model file and parameters; the message names what differs"},
	{PromptDiffers, 422, "the cells were filled for another prompt",
		"process the prompt locally; compare the token ids on both sides"},
	{ShortFill, 422, "not all cells are filled, and all were required",
		"adopt without requiring all: what is filled is used and the rest processed locally"},
	{ContentDiffers, 422, "the cells do not hold what the prompt's tokens give",
		"process the prompt locally; the provider computes something else, or claims more than it wrote"},
	{SharingOff, 501, "the decoder was started without sharing, or this system cannot share",
		"start the decoder with sharing on; process the prompt locally"},
	{ModelNotShareable, 501, "the model keeps state that cannot be handed over",
		"process the prompt locally"},
	{ProviderGone, 502, "the provider is not registered, has gone, or does not answer",
		"process the prompt locally; start the provider again"},
	{NoRoom, 503, "there are not enough free cache blocks, or too many shares are outstanding",
		"try again later, or start with a larger cache"},
}

var entries = func() map[Code]Entry {
	m := make(map[Code]Entry, len(table))
	for _, e := range table {
		m[e.Code] = e
	}
	return m
}()

// Refusals is the table of refusals, in its order.
func Refusals() []Entry { return append([]Entry(nil), table...) }

// Refusal is an error of the table.
type Refusal struct {
	Code       Code
	Detail     string        // what exactly was found and expected; may be empty
	Field      string        // the parameter at fault, of LayoutDiffers and BadRequest; may be empty
	RetryAfter time.Duration // of NoRoom: when another attempt makes sense
	Err        error         // what caused it; may be nil
}

// refuse makes a refusal with a detail.
func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// because makes a refusal of an error.
func because(code Code, err error) *Refusal {
	return &Refusal{Code: code, Detail: strings.TrimPrefix(err.Error(), "handoff: "), Err: err}
}

// Error is the sentence of the table and the detail.
func (r *Refusal) Error() string {
	means := entries[r.Code].Means
	if r.Detail == "" {
		return fmt.Sprintf("handoff: %s: %s", r.Code, means)
	}
	return fmt.Sprintf("handoff: %s: %s (%s)", r.Code, means, r.Detail)
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Status is the HTTP status of the refusal.
func (r *Refusal) Status() int { return entries[r.Code].Status }

// Do says what the caller can do about it.
func (r *Refusal) Do() string { return entries[r.Code].Do }

// Markdown is the table of refusals as a page of the documentation.
func Markdown() string {
	var b strings.Builder
	b.WriteString("<!-- Code generated by internal/handoff/gendocs; DO NOT EDIT. -->\n\n")
	b.WriteString("# Refusals of a handoff\n\n")
	b.WriteString("What `share`, `adopt` and `release` answer when they refuse: the code and the HTTP status are\n")
	b.WriteString("stable, the message adds what was found and what was expected. None of them fails a request\n")
	b.WriteString("for text: the prompt is processed locally then.\n\n")
	b.WriteString("| code | status | it means that | what to do |\n| --- | --- | --- | --- |\n")
	for _, e := range table {
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", e.Code, e.Status, e.Means, e.Do)
	}
	b.WriteString("\nReproduce: `go generate ./internal/handoff`. The tests of `internal/handoff` provoke each row.\n")
	return b.String()
}
