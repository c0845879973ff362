package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"baton/internal/control"
	"baton/internal/handoff"
)

// Decoder tests the decoder whose control socket this is; its socket for providers,
// provider.sock, is beside it. It takes slots of the decoder, which nobody else should
// use meanwhile.
func Decoder(ctx context.Context, o Options, socket string) (_ *Report, err error) {
	o.fill()
	ref, err := newReference(&o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ref.close()) }()
	f := &fakeProvider{Options: o, ctx: ctx, ref: ref, socket: socket, seed: rand.IntN(1 << 30)}
	f.api = f.newClient()
	defer f.hangUp()
	report := &Report{out: o.Out}
	for _, t := range decoderTests() {
		if err := ctx.Err(); err != nil {
			return report, err
		}
		if err := report.result(t.name, f.run(t.run)); err != nil {
			return report, err
		}
	}
	return report, report.summary()
}

// providerName is the name that the fake provider registers with.
const providerName = "conform"

// fakeProvider is a provider's end of a connection with a decoder, and a client of the
// decoder's control API.
type fakeProvider struct {
	Options
	ctx    context.Context
	ref    *reference
	socket string
	api    *http.Client
	conn   *net.UnixConn // nil: it is to be connected
	seed   int           // of the next prompt: none is cached
}

type decoderTest struct {
	name string
	run  func(*fakeProvider) error
}

// run runs a test on a connection that is made if there is none. After a failure, and
// whenever the test has left the connection out of step, it is closed.
func (f *fakeProvider) run(test func(*fakeProvider) error) error {
	if f.conn == nil {
		if err := f.register(); err != nil {
			return err
		}
	}
	err := test(f)
	var skip skipped
	if err != nil && !errors.As(err, &skip) {
		f.hangUp()
		time.Sleep(200 * time.Millisecond) // for the decoder to give up the shares
	}
	return err
}

func (f *fakeProvider) hangUp() {
	if f.conn != nil {
		_ = f.conn.Close() // a test may have closed it
		f.conn = nil
	}
	f.api.CloseIdleConnections() // with which its shares go
}

// newClient is a client of the control socket, with connections of its own.
func (f *fakeProvider) newClient() *http.Client {
	return &http.Client{Timeout: f.Timeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", f.socket)
		},
	}}
}

// dial connects to the decoder's socket for providers.
func (f *fakeProvider) dial() (*net.UnixConn, error) {
	path := filepath.Join(filepath.Dir(f.socket), "provider.sock")
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
}

func (f *fakeProvider) hello() *handoff.Hello {
	return &handoff.Hello{
		Protocol: handoff.Protocol, Name: providerName, PID: os.Getpid(), Layouts: []handoff.Digest{},
		ReadsPrefix: true, Trust: []handoff.Trust{handoff.Leased, handoff.Sealed},
	}
}

// register introduces the provider. A decoder may need a moment to notice that the one
// before has gone.
func (f *fakeProvider) register() error {
	var err error
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if f.conn, err = f.dial(); err != nil {
			return err
		}
		var w handoff.Welcome
		if err = send(f.conn, "hello", f.hello()); err == nil {
			if _, err = receive(f.conn, 5*time.Second, "welcome", &w); err == nil {
				return f.checkWelcome(&w)
			}
		}
		_ = f.conn.Close()
		f.conn = nil
	}
	return err
}

func (f *fakeProvider) checkWelcome(w *handoff.Welcome) error {
	want := f.ref.message()
	if w.Protocol != handoff.Protocol || w.Trust == handoff.Attached {
		return fmt.Errorf("welcome: protocol %d, trust mode %s, want protocol %d and a mode of the hello", w.Protocol, w.Trust, handoff.Protocol)
	}
	return sameLayout(&w.Layout, w.Params, &want, f.ref.params)
}

// sameLayout compares what a decoder says of its blocks with what its model gives.
func sameLayout(got *handoff.Layout, gotParams map[string]string, want *handoff.Layout, params map[string]string) error {
	g, err := json.Marshal(struct {
		L *handoff.Layout
		P map[string]string
	}{got, gotParams})
	if err != nil {
		return err
	}
	w, err := json.Marshal(struct {
		L *handoff.Layout
		P map[string]string
	}{want, params})
	if err != nil {
		return err
	}
	if !bytes.Equal(g, w) {
		return fmt.Errorf("the layout and the parameters are %s, want %s: is -m its model?", g, w)
	}
	return nil
}

// answer is what the control API answers.
type answer struct {
	status int
	body   []byte
}

// post performs an action on a slot.
func (f *fakeProvider) post(client *http.Client, slot int, action string, body any) (*answer, error) {
	return f.request(client, fmt.Sprintf("/slots/%d?action=%s", slot, action), body)
}

func (f *fakeProvider) request(client *http.Client, path string, body any) (*answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(f.ctx, http.MethodPost, "http://decoder"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err = io.ReadAll(res.Body)
	return &answer{res.StatusCode, data}, err
}

// accepted parses the answer to an action that was to succeed.
func (a *answer) accepted(into any) error {
	if a.status != http.StatusOK {
		return fmt.Errorf("status %d, want 200: %.300s", a.status, a.body)
	}
	return json.Unmarshal(a.body, into)
}

// refused checks that an action was refused, for this reason.
func (a *answer) refused(code handoff.Code) error {
	var body struct {
		Error struct {
			Code    handoff.Code `json:"code"`
			Message string       `json:"message"`
		} `json:"error"`
	}
	want := 0
	for _, e := range handoff.Refusals() {
		if e.Code == code {
			want = e.Status
		}
	}
	if err := json.Unmarshal(a.body, &body); err != nil {
		return fmt.Errorf("status %d, not JSON: %.300s", a.status, a.body)
	}
	if a.status != want || body.Error.Code != code {
		return fmt.Errorf("status %d, code %q, want %d, %q: %.300s", a.status, body.Error.Code, want, code, a.body)
	}
	return nil
}

// work is an order that was received, with its cells mapped.
type work struct {
	f      *fakeProvider
	slot   int
	share  control.ShareAnswer
	prompt []int32 // all of it
	order  handoff.Order
	files  []*os.File
	maps   [][]byte // by descriptor
	rows   *rows
}

// begin asks for a share of a new prompt and takes the order for it.
func (f *fakeProvider) begin(slot, n int) (*work, error) {
	f.seed++
	return f.beginWith(slot, f.ref.prompt(1000+f.seed, n))
}

// beginWith asks for a share and takes the order for it. The answer comes only when the
// descriptors have been taken.
func (f *fakeProvider) beginWith(slot int, prompt []int32) (*work, error) {
	w := &work{f: f, slot: slot, prompt: prompt}
	shared := make(chan error, 1)
	conn := f.conn
	go func() {
		a, err := f.post(f.api, slot, "share", &control.ShareRequest{Provider: providerName, Tokens: prompt, NoWait: true})
		if err == nil {
			err = a.accepted(&w.share)
		}
		if err != nil {
			_ = conn.SetReadDeadline(time.Unix(1, 0)) // no order will come
		}
		shared <- err
	}()
	files, err := f.nextOrder(&w.order)
	if err != nil {
		_ = conn.Close() // so that the decoder does not wait for its descriptors to be taken
	}
	serr := <-shared
	if err := errors.Join(err, serr); err != nil {
		return nil, fmt.Errorf("share: %w", err)
	}
	w.files = files
	if err := w.open(); err != nil {
		return nil, errors.Join(err, w.letGo())
	}
	return w, nil
}

// nextOrder receives an order. A cancel of the one before may have crossed its reply.
func (f *fakeProvider) nextOrder(o *handoff.Order) ([]*os.File, error) {
	for {
		kind, text, files, err := receiveAny(f.conn, f.Timeout)
		switch {
		case err != nil:
			return nil, err
		case kind == "cancel" && len(files) == 0:
		case kind != "order":
			return nil, fmt.Errorf("received %s, want an order: %.300s", kind, text)
		default:
			return files, strictly(text, o)
		}
	}
}

// open checks the order and maps everything that it names.
func (w *work) open() error {
	if err := w.check(); err != nil {
		return err
	}
	w.maps = make([][]byte, len(w.files))
	for i, file := range w.files {
		size := w.order.Layout.BlockBytes
		if i == w.order.Header {
			size = handoff.HeaderSize
		}
		prot := unix.PROT_READ | unix.PROT_WRITE
		if w.readOnly(i) {
			prot = unix.PROT_READ
		}
		var err error
		if w.maps[i], err = unix.Mmap(int(file.Fd()), 0, size, prot, unix.MAP_SHARED); err != nil {
			return fmt.Errorf("mapping descriptor %d: %w", i, err)
		}
	}
	var err error
	w.rows, err = w.f.ref.compute(w.order.Tokens)
	return err
}

// readOnly reports whether descriptor i is of cells to read.
func (w *work) readOnly(i int) bool {
	return slices.ContainsFunc(w.order.Regions, func(r handoff.Region) bool { return r.FD == i && r.Mode == handoff.ReadOnly })
}

// check compares an order with the prompt.
func (w *work) check() error {
	o := &w.order
	if !slices.Equal(o.Tokens, w.prompt[:len(w.prompt)-1]) {
		return fmt.Errorf("the order is for %d tokens, want the %d of the prompt but the last", len(o.Tokens), len(w.prompt))
	}
	want := w.f.ref.message()
	if err := sameLayout(&o.Layout, o.Params, &want, w.f.ref.params); err != nil {
		return err
	}
	pos := 0
	for i, r := range o.Regions {
		if mode := map[bool]handoff.Mode{true: handoff.ReadOnly, false: handoff.ReadWrite}[pos < o.Pos0]; r.Pos != pos || r.Mode != mode {
			return fmt.Errorf("region %d is %s from position %d, want %s from %d (pos0 is %d)", i, r.Mode, r.Pos, mode, pos, o.Pos0)
		}
		if r.FD < 0 || r.FD >= len(w.files) || r.Cell < 0 || r.Cells < 1 || r.Cell+r.Cells > o.Layout.Cells {
			return fmt.Errorf("region %d: descriptor %d of %d, cells %d to %d of %d", i, r.FD, len(w.files), r.Cell, r.Cell+r.Cells-1, o.Layout.Cells)
		}
		pos += r.Cells
	}
	if pos != len(o.Tokens) {
		return fmt.Errorf("the regions hold %d cells, want %d", pos, len(o.Tokens))
	}
	return nil
}

// row is the bytes of a row of a position, in the decoder's memory.
func (w *work) row(layer, v, pos int) []byte {
	for _, r := range w.order.Regions {
		if pos < r.Pos || pos >= r.Pos+r.Cells {
			continue
		}
		offset, n := w.order.Layout.KOffsets[layer], w.order.Layout.KRowBytes
		if v == 1 {
			offset, n = w.order.Layout.VOffsets[layer], w.order.Layout.VRowBytes
		}
		return w.maps[r.FD][offset+(r.Cell+pos-r.Pos)*n:][:n]
	}
	return nil
}

// write writes the right rows of positions from to to-1, those of position pos+shift.
func (w *work) write(from, to, shift int) {
	for pos := from; pos < to; pos++ {
		for layer := range w.order.Layout.Layers {
			for v := range 2 {
				putRow(w.row(layer, v, pos), w.rows.at(layer, v, pos+shift))
			}
		}
	}
}

// header writes the header page, as change wants it.
func (w *work) header(filled int, change func(page []byte)) {
	page := w.maps[w.order.Header]
	putUint := func(at, n int, x uint64) {
		for i := range n {
			page[at+i] = byte(x >> (8 * i))
		}
	}
	prompt := handoff.PromptDigest(w.order.Tokens)
	putUint(atVersion, 4, headerVersion)
	copy(page[atLayout:], w.order.Layout.LayoutDigest[:])
	copy(page[atPrompt:], prompt[:])
	copy(page[atTicket:], w.order.Ticket[:])
	putUint(atFilled, 8, uint64(filled))
	copy(page, headerMagic)
	if change != nil {
		change(page)
	}
}

// letGo unmaps and closes everything.
func (w *work) letGo() error {
	var err error
	for i, m := range w.maps {
		if m != nil {
			err = errors.Join(err, unix.Munmap(m))
			w.maps[i] = nil
		}
	}
	for i, file := range w.files {
		if file != nil {
			err = errors.Join(err, file.Close())
			w.files[i] = nil
		}
	}
	if w.rows != nil {
		w.rows.free()
		w.rows = nil
	}
	return err
}

// reply ends the order.
func (w *work) reply(filled int) error {
	return send(w.f.conn, "reply", &handoff.Reply{Ticket: w.order.Ticket, Filled: &filled})
}

// adopt asks for the cells.
func (w *work) adopt(require string) (*answer, error) {
	digest := handoff.PromptDigest(w.prompt)
	return w.f.post(w.f.api, w.slot, "adopt", &control.AdoptRequest{ID: w.share.ID, Digest: &digest, Require: require})
}
