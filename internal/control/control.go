// Package control is the decoder's control API: the actions on a slot that make up a
// handoff, over HTTP on a socket that only the decoder's own user can reach.
//
//	POST /slots/{id}?action=share    have a provider fill the cells of a prompt
//	POST /slots/{id}?action=wait     wait for that, for some time
//	POST /slots/{id}?action=adopt    take the cells of a share into the slot
//	POST /slots/{id}?action=release  give a share back
//	GET  /providers                  who can fill cells
//
// It translates between JSON and package handoff, and knows neither models nor blocks.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"baton/internal/handoff"
)

// maxBody bounds a request: a token id takes at most eight bytes of JSON.
const maxBody = 64 << 20

// Lookup says how many of the first tokens of a prompt are in the cache.
type Lookup func(ctx context.Context, tokens []int32) (int, error)

// Handler serves the actions. Mount it for "POST /slots/{id}" on the control socket,
// never on TCP, and set ConnContext and ConnState of the http.Server to its methods: a
// share dies with the connection that made it.
type Handler struct {
	backend atomic.Pointer[backend]

	mu    sync.Mutex
	conns map[net.Conn]chan struct{}
}

// backend is what there is once the model is loaded.
type backend struct {
	table  *handoff.Table
	cached Lookup
}

// NewHandler returns a handler that answers 503 until SetTable.
func NewHandler() *Handler { return &Handler{conns: make(map[net.Conn]chan struct{})} }

// SetTable makes the handler serve the actions of a table.
func (h *Handler) SetTable(table *handoff.Table, cached Lookup) {
	h.backend.Store(&backend{table, cached})
}

type ownerKey struct{}

// ConnContext is for http.Server: it notes the connection that a request comes over.
func (h *Handler) ConnContext(ctx context.Context, c net.Conn) context.Context {
	closed := make(chan struct{})
	h.mu.Lock()
	h.conns[c] = closed
	h.mu.Unlock()
	return context.WithValue(ctx, ownerKey{}, (<-chan struct{})(closed))
}

// ConnState is for http.Server: it ends the shares of a connection that is closed.
func (h *Handler) ConnState(c net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if closed, ok := h.conns[c]; ok {
		close(closed)
		delete(h.conns, c)
	}
}

// loaded returns what there is once the model is loaded, or nil after it has answered that
// it is not.
func (h *Handler) loaded(w http.ResponseWriter) *backend {
	b := h.backend.Load()
	if b == nil {
		w.Header().Set("Retry-After", "1")
		writeJSON(w, http.StatusServiceUnavailable, errorBody(errors.New("control: the model is still being loaded")))
	}
	return b
}

// Provider is an element of the answer to GET /providers.
type Provider struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"` // 0: not known
	Trust   string `json:"trust"`
	Foreign bool   `json:"foreign"`
	Busy    bool   `json:"busy"`
}

// Providers lists the providers that are registered.
func (h *Handler) Providers(w http.ResponseWriter, _ *http.Request) {
	b := h.loaded(w)
	if b == nil {
		return
	}
	list := []Provider{}
	for _, p := range b.table.Providers() {
		list = append(list, Provider{p.Name(), p.PID(), p.Policy().Trust.String(), p.Policy().Foreign, p.Busy()})
	}
	writeJSON(w, http.StatusOK, list)
}

// ServeHTTP performs an action.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b := h.loaded(w)
	if b == nil {
		return
	}
	answer, err := b.act(r)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func (h *backend) act(r *http.Request) (any, error) {
	slot, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		return nil, badRequest("id", "slot %q is no number", r.PathValue("id"))
	}
	switch action := r.URL.Query().Get("action"); action {
	case "share":
		return h.share(r, slot)
	case "wait":
		return h.wait(r, slot)
	case "adopt":
		return h.adopt(r, slot)
	case "release":
		return h.release(r, slot)
	default:
		return nil, badRequest("action", "action %q is unknown: there are share, wait, adopt and release", action)
	}
}

// ShareRequest is the body of the action share.
type ShareRequest struct {
	Provider string `json:"provider,omitempty"` // a registered one; may be left out if there is only one
	Socket   string `json:"socket,omitempty"`   // or else a socket in the run directory where one waits
	// Tokens is the whole prompt; the cells of all but the last are filled.
	Tokens []int32 `json:"tokens"`
	// MinTokens: with fewer new cells than these nothing is shared; the route is local.
	MinTokens int `json:"min_tokens,omitempty"`
	// NoWait answers when the provider has got everything, not when it is done.
	NoWait bool `json:"no_wait,omitempty"`
	// BudgetMS is how long the provider may take in all; 0: as long as it makes progress.
	BudgetMS int `json:"budget_ms,omitempty"`
}

// ShareAnswer is the answer to the action share.
type ShareAnswer struct {
	Route     string            `json:"route"` // shared, or local when too few tokens are new
	ID        handoff.ID        `json:"share_id,omitempty"`
	Provider  string            `json:"provider,omitempty"`
	Trust     string            `json:"trust,omitempty"`
	Pos0      int               `json:"pos0"`            // cells that were cached
	Cells     int               `json:"cells,omitempty"` // there are so many when the provider is done
	ShareMS   float64           `json:"share_ms"`
	Layout    *handoff.Layout   `json:"layout,omitempty"`
	Params    map[string]string `json:"params,omitempty"`
	Regions   []handoff.Region  `json:"regions,omitempty"`
	Filled    int               `json:"filled"`            // what the provider claims, cached cells included
	PrefillMS float64           `json:"prefill_ms"`        // that it took
	Stopped   string            `json:"stopped,omitempty"` // why it ended early
}

func (h *backend) share(r *http.Request, slot int) (any, error) {
	var q ShareRequest
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	if q.MinTokens > 0 {
		cached, err := h.cached(r.Context(), q.Tokens)
		if err != nil {
			return nil, err
		}
		if len(q.Tokens)-1-cached < q.MinTokens {
			return &ShareAnswer{Route: "local", Pos0: cached}, nil
		}
	}
	if q.Provider == "" && q.Socket == "" {
		var err error
		if q.Provider, err = h.onlyProvider(); err != nil {
			return nil, err
		}
	}
	owner, _ := r.Context().Value(ownerKey{}).(<-chan struct{})
	s, err := h.table.Share(r.Context(), &handoff.Request{
		Slot: slot, Provider: q.Provider, Socket: q.Socket, Tokens: q.Tokens,
		Policy: handoff.Policy{Trust: handoff.Sealed, Foreign: true},
		Budget: time.Duration(q.BudgetMS) * time.Millisecond, Owner: owner,
	})
	if err != nil {
		return nil, err
	}
	layout := s.Layout
	a := &ShareAnswer{
		Route: "shared", ID: s.ID, Provider: s.Provider, Trust: s.Trust.String(), Pos0: s.Pos0, Cells: s.Cells,
		ShareMS: ms(s.Took), Layout: &layout, Params: s.Params, Regions: s.Regions,
	}
	if q.NoWait {
		return a, nil
	}
	out, err := h.table.Wait(r.Context(), slot, s.ID)
	if err != nil {
		return nil, err
	}
	a.Filled, a.PrefillMS = out.Filled, ms(out.Took)
	if out.Err != nil {
		a.Stopped = out.Err.Error()
	}
	return a, nil
}

// WaitRequest is the body of the action wait, for a share made with no_wait.
type WaitRequest struct {
	ID handoff.ID `json:"share_id"`
	// ForMS is how long to wait; 0: as long as it takes.
	ForMS int `json:"for_ms,omitempty"`
}

// WaitAnswer is the answer to the action wait.
type WaitAnswer struct {
	Done      bool    `json:"done"`
	Filled    int     `json:"filled"`               // what the provider claims so far, cached cells included
	PrefillMS float64 `json:"prefill_ms,omitempty"` // when done: that it took
	Stopped   string  `json:"stopped,omitempty"`    // when done: why it ended early
}

func (h *backend) wait(r *http.Request, slot int) (any, error) {
	var q WaitRequest
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if q.ForMS > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(q.ForMS)*time.Millisecond)
	}
	defer cancel()
	out, err := h.table.Wait(ctx, slot, q.ID)
	switch {
	case err == nil:
		a := &WaitAnswer{Done: true, Filled: out.Filled, PrefillMS: ms(out.Took)}
		if out.Err != nil {
			a.Stopped = out.Err.Error()
		}
		return a, nil
	case errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil:
		filled, err := h.table.Progress(slot, q.ID)
		if err != nil {
			return nil, err
		}
		return &WaitAnswer{Filled: filled}, nil
	}
	return nil, err
}

// onlyProvider is the name of the provider, if there is one and no other.
func (h *backend) onlyProvider() (string, error) {
	all := h.table.Providers()
	switch len(all) {
	case 0:
		return "", &handoff.Refusal{Code: handoff.ProviderGone, Detail: "none is registered"}
	case 1:
		return all[0].Name(), nil
	}
	return "", badRequest("provider", "there are %d providers: one has to be named", len(all))
}

// AdoptRequest is the body of the action adopt.
type AdoptRequest struct {
	ID      handoff.ID      `json:"share_id"`
	Digest  *handoff.Digest `json:"digest,omitempty"` // of the tokens; or else
	Tokens  []int32         `json:"tokens,omitempty"`
	Require string          `json:"require,omitempty"` // "all": refuse cells that are only partly filled
}

// AdoptAnswer is the answer to the action adopt. No byte of a row is moved by it.
type AdoptAnswer struct {
	Cells       int     `json:"cells"`  // adopted
	Filled      int     `json:"filled"` // now in the slot, cached ones included
	Trust       string  `json:"trust"`
	Provider    string  `json:"provider"`
	BytesCopied int64   `json:"bytes_copied"`
	ConfirmMS   float64 `json:"confirm_ms"` // the kernel's word that nobody else can write
	VerifyMS    float64 `json:"verify_ms"`  // header and content
	AttachMS    float64 `json:"attach_ms"`  // on the step loop
	AdoptMS     float64 `json:"adopt_ms"`   // all of it
	Short       string  `json:"short,omitempty"`
}

func (h *backend) adopt(r *http.Request, slot int) (any, error) {
	var q AdoptRequest
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	if q.Require != "" && q.Require != "all" {
		return nil, badRequest("require", "require is %q, expected \"all\" or nothing", q.Require)
	}
	a, err := h.table.Adopt(r.Context(), &handoff.AdoptRequest{Slot: slot, ID: q.ID, Digest: q.Digest, Tokens: q.Tokens, All: q.Require == "all"})
	if err != nil {
		return nil, err
	}
	out := &AdoptAnswer{
		Cells: a.Filled - a.Pos0, Filled: a.Filled, Trust: a.Trust.String(), Provider: a.Provider,
		ConfirmMS: ms(a.Confirm), VerifyMS: ms(a.Verify), AttachMS: ms(a.Attach), AdoptMS: ms(a.Took),
	}
	if a.Short != nil {
		out.Short = a.Short.Error()
	}
	return out, nil
}

func (h *backend) release(r *http.Request, slot int) (any, error) {
	var q struct {
		ID handoff.ID `json:"share_id"`
	}
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	if err := h.table.Release(slot, q.ID); err != nil {
		return nil, err
	}
	return struct {
		Released bool `json:"released"`
	}{true}, nil
}

// decode reads a body strictly: one object, no unknown fields, nothing behind it.
func decode(r *http.Request, v any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return badRequest("", "the body is no such request: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("", "something follows the request's object")
	}
	return nil
}

func badRequest(field, format string, args ...any) *handoff.Refusal {
	return &handoff.Refusal{Code: handoff.BadRequest, Field: field, Detail: fmt.Sprintf(format, args...)}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // a number that JSON has not: a bug
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the answer cannot be encoded"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a client that has left needs no answer
}

// apiError is the error shape of the API.
type apiError struct {
	Error struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Param   string `json:"param,omitempty"`
		Code    string `json:"code"`
		Do      string `json:"do,omitempty"`
	} `json:"error"`
}

func errorBody(err error) (body apiError) {
	e := &body.Error
	e.Message, e.Type, e.Code = err.Error(), "handoff_error", "internal"
	return body
}

// writeError answers with the code and status of the table of refusals.
func writeError(w http.ResponseWriter, err error) {
	body, status := errorBody(err), http.StatusInternalServerError
	var ref *handoff.Refusal
	if errors.As(err, &ref) {
		status = ref.Status()
		e := &body.Error
		e.Code, e.Param, e.Do = string(ref.Code), ref.Field, ref.Do()
		if ref.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int((ref.RetryAfter+time.Second-1)/time.Second)))
		}
	}
	writeJSON(w, status, body)
}
