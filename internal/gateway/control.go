package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Share is what the decoder answers to the action share: either that the prompt is
// better processed locally, or that a provider has got it.
type Share struct {
	Route    string          `json:"route"` // "local": too few tokens are new
	ID       json.RawMessage `json:"share_id"`
	Provider string          `json:"provider"`
	Pos0     int             `json:"pos0"` // cells that were cached
}

// Progress is what the decoder answers to the action wait.
type Progress struct {
	Done    bool   `json:"done"`    // the provider has let go
	Filled  int    `json:"filled"`  // of the prompt's cells, cached ones included
	Stopped string `json:"stopped"` // when done: why the provider ended early; empty: it did not
}

// Adopted is what the decoder answers to the action adopt.
type Adopted struct {
	Cells       int    `json:"cells"` // now in the slot, without those that were cached
	Trust       string `json:"trust"`
	BytesCopied int64  `json:"bytes_copied"`
}

// Refused is an action that the decoder did not carry out.
type Refused struct {
	Action string
	Status int    // of HTTP; 0: there was no answer
	Code   string // of the table of refusals; "unreachable" without an answer
	Reason string
}

func (r *Refused) Error() string { return r.Action + ": " + r.Reason }

// codeUnreachable stands for a decoder that did not answer.
const codeUnreachable = "decoder_unreachable"

// Actions are the decoder's actions on a slot that make up a handoff.
type Actions interface {
	// Share has the provider of that name fill the cells of prompt, without its last
	// token, into blocks of the decoder, unless fewer than minTokens are new. It returns
	// when the provider has begun.
	Share(ctx context.Context, slot int, provider string, prompt []int32, minTokens int) (*Share, error)
	// Wait waits until the provider has let go, or some time has passed.
	Wait(ctx context.Context, slot int, share *Share, limit time.Duration) (*Progress, error)
	// Adopt puts the cells of a share into the slot.
	Adopt(ctx context.Context, slot int, share *Share, prompt []int32) (*Adopted, error)
	// Restore puts the cells of a state file into the slot.
	Restore(ctx context.Context, slot int, name string) (*Restored, error)
	// Release gives a share back.
	Release(ctx context.Context, slot int, share *Share) error
}

// Control performs actions on a decoder's control socket. The decoder gives a share up
// when the connection that made it is closed, so each slot has a connection of its own,
// which ends with a request that is cancelled.
type Control struct {
	clients []*http.Client // by slot
	other   *http.Client   // for what belongs to no slot
}

// NewControl returns the control of a decoder that listens on socket and has that many
// slots. It connects when it is first needed.
func NewControl(socket string, slots int) *Control {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	client := func() *http.Client {
		return &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1, DisableCompression: true, DialContext: dial}}
	}
	c := &Control{clients: make([]*http.Client, slots), other: client()}
	for i := range c.clients {
		c.clients[i] = client()
	}
	return c
}

// Close closes the connections.
func (c *Control) Close() {
	for _, client := range append(c.clients, c.other) {
		client.CloseIdleConnections()
	}
}

// Registered is a provider that is registered with the decoder.
type Registered struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

// Providers lists those that are registered.
func (c *Control) Providers(ctx context.Context) (list []Registered, err error) {
	return list, c.exchange(ctx, c.other, http.MethodGet, "providers", "http://decoder/providers", nil, &list)
}

// Share implements Actions.
func (c *Control) Share(ctx context.Context, slot int, provider string, prompt []int32, minTokens int) (*Share, error) {
	body := make([]byte, 0, 128+8*len(prompt))
	body = append(body, `{"provider":`...)
	body = strconv.AppendQuote(body, provider)
	body = append(body, `,"min_tokens":`...)
	body = strconv.AppendInt(body, int64(minTokens), 10)
	body = append(body, `,"no_wait":true,"tokens":[`...)
	for i, t := range prompt {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendInt(body, int64(t), 10)
	}
	body = append(body, "]}"...)
	out := new(Share)
	return out, c.do(ctx, slot, "share", body, out)
}

// Wait implements Actions.
func (c *Control) Wait(ctx context.Context, slot int, share *Share, limit time.Duration) (*Progress, error) {
	out := new(Progress)
	return out, c.do(ctx, slot, "wait", fmt.Appendf(nil, `{"share_id":%s,"for_ms":%d}`, share.ID, max(limit.Milliseconds(), 1)), out)
}

// Adopt implements Actions.
func (c *Control) Adopt(ctx context.Context, slot int, share *Share, prompt []int32) (*Adopted, error) {
	body := fmt.Appendf(nil, `{"share_id":%s,"digest":%q}`, share.ID, digest(prompt))
	out := new(Adopted)
	return out, c.do(ctx, slot, "adopt", body, out)
}

// Restore implements Actions.
func (c *Control) Restore(ctx context.Context, slot int, name string) (*Restored, error) {
	out := new(Restored)
	return out, c.do(ctx, slot, "restore", fmt.Appendf(nil, `{"filename":%q}`, name), out)
}

// Release implements Actions.
func (c *Control) Release(ctx context.Context, slot int, share *Share) error {
	return c.do(ctx, slot, "release", fmt.Appendf(nil, `{"share_id":%s}`, share.ID), nil)
}

// digest is the SHA-256 of a prompt's ids as little-endian 32-bit numbers, in hex.
func digest(prompt []int32) string {
	b := make([]byte, 0, 4*len(prompt))
	for _, t := range prompt {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// maxAnswer bounds the answer to an action, in bytes: a share lists its blocks.
const maxAnswer = 16 << 20

// do performs an action on a slot.
func (c *Control) do(ctx context.Context, slot int, action string, body []byte, out any) error {
	url := fmt.Sprintf("http://decoder/slots/%d?action=%s", slot, action)
	return c.exchange(ctx, c.clients[slot], http.MethodPost, action, url, body, out)
}

func (c *Control) exchange(ctx context.Context, client *http.Client, method, action, url string, body []byte, out any) error {
	unreachable := func(err error) error {
		return &Refused{Action: action, Code: codeUnreachable, Reason: "the decoder did not answer: " + err.Error()}
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return unreachable(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return unreachable(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		return refusal(action, resp.StatusCode, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return &Refused{Action: action, Status: resp.StatusCode, Code: codeUnreachable, Reason: fmt.Sprintf("the decoder's answer is no JSON as expected: %v", err)}
	}
	return nil
}

// refusal reads an answer in the error shape of the API.
func refusal(action string, status int, answer []byte) *Refused {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	r := &Refused{Action: action, Status: status, Code: "other", Reason: http.StatusText(status)}
	if json.Unmarshal(answer, &body) == nil && body.Error.Message != "" {
		r.Reason = body.Error.Message
		if body.Error.Code != "" {
			r.Code = body.Error.Code
		}
	}
	return r
}
