package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"baton/internal/engine"
)

const (
	// statsAge is how old a snapshot may be that Stats returns.
	statsAge = 200 * time.Millisecond
	// statsPatience is how long Stats waits for a newer one. After it the last one has to
	// do: Stats is asked for by whoever wants to know whether the decoder lives.
	statsPatience = 50 * time.Millisecond
	// statsLimit is how long a decoder may take to answer before it counts as away.
	statsLimit = 2 * time.Second
	// startLimit is how long it may take to accept a request, which needs no computation.
	startLimit = 30 * time.Second
	// dialPause is the time between two attempts to reach a decoder that starts.
	dialPause = 20 * time.Millisecond
)

// Transport returns a transport whose connections all go to the Unix socket at path,
// whatever host the URL names.
func Transport(path string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		// A new connection costs less than the doubt whether an idle one still leads to
		// the process that listens now.
		DisableKeepAlives: true,
	}
}

// Client implements engine.Engine with a decoder in another process. It survives the
// decoder's restarts: requests that ran are lost, later ones go to the new process.
type Client struct {
	path string
	http http.Client

	mu       sync.Mutex
	info     engine.Info
	stats    engine.Stats
	statsAt  time.Time
	instance string        // of the process that info describes
	away     error         // why the last exchange failed; nil if it did not
	fetching chan struct{} // closed when the running fetch of stats has ended
}

// Dial returns a client of the decoder that listens on the Unix socket at path. A decoder
// that is just starting is waited for until ctx ends.
func Dial(ctx context.Context, path string) (*Client, error) {
	tr := Transport(path)
	tr.ResponseHeaderTimeout = startLimit
	c := &Client{path: path, http: http.Client{Transport: tr}}
	var last error
	for {
		err := c.refresh(ctx)
		if err == nil {
			return c, nil
		}
		if engine.AsError(err).Code != engine.CodeAway || errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("remote: the decoder at %s: %w", path, err)
		}
		if ctx.Err() == nil || last == nil { // an attempt that was cut short says nothing
			last = err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("remote: no decoder is ready at %s: %w", path, last)
		case <-time.After(dialPause):
		}
	}
}

// Info implements engine.Engine. After a restart of the decoder it describes the new
// process as soon as that has answered once.
func (c *Client) Info() engine.Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info
}

// Err says why the decoder did not answer the last time; nil if it did. Stats asks it.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away
}

// Stats implements engine.Engine. The snapshot is at most 200 ms old, or the last one if
// the decoder does not send a newer one within 50 ms.
func (c *Client) Stats() engine.Stats {
	c.mu.Lock()
	if time.Since(c.statsAt) > statsAge {
		fetched := c.fetch()
		c.mu.Unlock()
		select {
		case <-fetched:
		case <-time.After(statsPatience):
		}
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	s := c.stats
	s.Slots, s.Recomputed = slices.Clone(s.Slots), maps.Clone(s.Recomputed)
	return s
}

// fetch starts to bring the snapshot up to date, unless that is being done already. The
// channel is closed when it has been tried. c.mu is held.
func (c *Client) fetch() <-chan struct{} {
	if c.fetching == nil {
		fetched := make(chan struct{})
		c.fetching = fetched
		go func() {
			defer close(fetched)
			ctx, cancel := context.WithTimeout(context.Background(), statsLimit)
			defer cancel()
			_ = c.refresh(ctx) // Err tells
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fetching = nil
		}()
	}
	return c.fetching
}

// refresh reads the engine's state, and its description if the process is a new one. The
// error has the code CodeAway when trying again may help.
func (c *Client) refresh(ctx context.Context) error {
	err := c.read(ctx)
	c.note(err)
	return err
}

func (c *Client) read(ctx context.Context) error {
	var m statsMessage
	instance, err := c.get(ctx, pathStats, &m)
	if err != nil {
		return err
	}
	now := time.Now()
	c.mu.Lock()
	known := c.instance
	c.mu.Unlock()
	if instance != known {
		var info infoMessage
		if instance, err = c.get(ctx, pathInfo, &info); err != nil {
			return err
		}
		if info.Protocol != protocol {
			return fmt.Errorf("it speaks %q, expected %q: both processes must be of one version", info.Protocol, protocol)
		}
		c.mu.Lock()
		c.info, c.instance = info.Info, instance
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats, c.statsAt = m.value(), now
	return nil
}

// get reads the message at path and tells which process has sent it.
func (c *Client) get(ctx context.Context, path string, into any) (instance string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://decoder"+path, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", away(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", refusal(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	if err != nil {
		return "", away(err)
	}
	if err := parseMessage(body, into); err != nil {
		return "", fmt.Errorf("reading its answer to %s: %w", path, err)
	}
	return resp.Header.Get(instanceHeader), nil
}

// away is the error for a decoder that did not answer because of cause.
func away(cause error) error {
	var u *url.Error // its "Get URL" says nothing here
	if errors.As(cause, &u) {
		cause = u.Err
	}
	return fmt.Errorf("%w: %w", &engine.Error{Code: engine.CodeAway,
		Message: "the decoder process does not answer: it may be starting, try again"}, cause)
}

// refusal reads the error that the decoder has answered with.
func refusal(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return away(err)
	}
	e := &engine.Error{}
	if err := json.Unmarshal(body, e); err != nil || e.Code == "" {
		return &engine.Error{Code: engine.CodeInternal, Message: fmt.Sprintf("remote: the decoder answered %s: %.200q", resp.Status, body)}
	}
	return toError(e)
}

// Generate implements engine.Engine.
func (c *Client) Generate(ctx context.Context, r *engine.Request) (engine.Stream, error) {
	body, err := encodeRequest(r)
	if err != nil {
		return nil, badRequest("remote: %v", err)
	}
	// The exchange has a context of its own: once the decoder has the request, it is
	// cancelled by asking, and the last event says that it has ended.
	exchange, stop := context.WithCancel(context.Background())
	unwatch := context.AfterFunc(ctx, stop)
	conn, err := c.start(exchange, body)
	unwatch()
	stop() // a connection that was taken over is not under the context any more
	if err != nil {
		if ctx.Err() != nil { // left before it began: a stream that says so, as in one process
			q := engine.NewQueue()
			q.Send(engine.Event{Kind: engine.Done, At: time.Now(), Result: &engine.Result{Reason: engine.Cancelled, Err: context.Canceled, Slot: -1}})
			return &stream{Queue: q, ended: true}, nil
		}
		return nil, err
	}
	s := &stream{Queue: engine.NewQueue(), conn: conn, lost: c.note}
	unwatch = context.AfterFunc(ctx, s.Cancel)
	go func() {
		defer unwatch()
		s.read()
	}()
	return s, nil
}

// start sends a request and returns the connection on which its events come.
func (c *Client) start(ctx context.Context, body []byte) (io.ReadWriteCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://decoder"+pathGenerate, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	resp, err := c.http.Do(req)
	if err != nil {
		err = away(err)
		if ctx.Err() == nil {
			c.note(err)
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		resp.Body.Close()
		return nil, errors.New("remote: the HTTP transport gives no connection after 101")
	}
	c.note(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if resp.Header.Get(instanceHeader) != c.instance {
		c.fetch()
	}
	return conn, nil
}

// note remembers how an exchange went.
func (c *Client) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = err
	if err != nil {
		c.statsAt = time.Time{} // what runs there is not known any more
	}
}
