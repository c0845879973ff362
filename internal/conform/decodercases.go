package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"baton/internal/control"
	"baton/internal/handoff"
)

// promptLength is that of most prompts: short, and more than one micro-batch of nobody.
const promptLength = 9

// decoderTests are what a decoder has to do, and then what it has to refuse, a test or
// more for every row of the table of refusals.
func decoderTests() []decoderTest {
	tests := []decoderTest{
		{"welcomes a provider: its layout and parameters are those of the model", func(*fakeProvider) error { return nil }},
		{"hands out memory that holds no old rows", (*fakeProvider).testClean},
		{"adopts what was filled, and copies nothing", (*fakeProvider).testAdopt},
		{"hands out what it has, read only, and adopts the rest", (*fakeProvider).testPrefix},
		{"adopts what a provider has filled that stopped early", (*fakeProvider).testShort},
		{"adopts what a provider has filled that went away", (*fakeProvider).testGone},
		{"processes one token after an adopt", (*fakeProvider).testGenerate},
		{"does not register what is no provider: another protocol, no trust mode, a name that is taken", (*fakeProvider).testStrangers},
	}
	for _, b := range misbehaviours {
		tests = append(tests, decoderTest{fmt.Sprintf("refuses (%s) cells %s", b.want, b.what), b.run})
	}
	for _, r := range badRequests {
		tests = append(tests, decoderTest{fmt.Sprintf("refuses (%s) %s", r.want, r.what), r.run})
	}
	return append(tests,
		decoderTest{"works on after all that", (*fakeProvider).testAdopt},
		decoderTest{"refuses (no_room) a share when there is no room", skip("depends on --share-max and the size of the cache")},
		decoderTest{"refuses (sharing_off) when started without sharing", skip("it was started with")},
		decoderTest{"refuses (model_not_shareable) a model with recurrent state", skip("this model has none")},
	)
}

func skip(why string) func(*fakeProvider) error {
	return func(*fakeProvider) error { return skipped(why) }
}

// testClean checks that the rows that are to be filled are zero or marked: the first
// element of a K row is a NaN then. The header page is all zero.
func (f *fakeProvider) testClean() error {
	for range 2 { // the second time the blocks may be used ones
		w, err := f.begin(0, promptLength)
		if err != nil {
			return err
		}
		for pos := w.order.Pos0; pos < len(w.order.Tokens); pos++ {
			for layer := range w.order.Layout.Layers {
				row := halves(w.row(layer, 0, pos))
				if nan := row[0]&0x7c00 == 0x7c00 && row[0]&0x3ff != 0; !nan && !zero(w.row(layer, 0, pos)) {
					err = fmt.Errorf("%s is neither zero nor starts with a NaN", rowName(layer, 0, pos))
				}
			}
		}
		if !zero(w.maps[w.order.Header]) {
			err = errors.New("the header page is not all zero")
		}
		if err := errors.Join(err, w.finish("", nil)); err != nil {
			return err
		}
	}
	return nil
}

func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// finish fills everything as it should be and adopts it into into, which may be nil.
func (w *work) finish(require string, into *control.AdoptAnswer) error {
	w.write(w.order.Pos0, len(w.order.Tokens), 0)
	w.header(len(w.order.Tokens), nil)
	if err := errors.Join(w.letGo(), w.reply(len(w.order.Tokens))); err != nil {
		return err
	}
	a, err := w.adopt(require)
	if err != nil {
		return err
	}
	if into == nil {
		into = new(control.AdoptAnswer)
	}
	if err := a.accepted(into); err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	return nil
}

func (f *fakeProvider) testAdopt() error {
	w, err := f.begin(0, promptLength)
	if err != nil {
		return err
	}
	var a control.AdoptAnswer
	if err := w.finish("all", &a); err != nil {
		return err
	}
	if a.Filled != promptLength-1 || a.Cells != a.Filled-w.order.Pos0 || a.BytesCopied != 0 {
		return fmt.Errorf("adopt: %d cells, %d filled, %d bytes copied, want %d, %d and 0", a.Cells, a.Filled, a.BytesCopied, promptLength-1-w.order.Pos0, promptLength-1)
	}
	return nil
}

// testPrefix makes a prompt longer that was adopted before.
func (f *fakeProvider) testPrefix() error {
	first, err := f.begin(0, promptLength)
	if err != nil {
		return err
	}
	if err := first.finish("all", nil); err != nil {
		return err
	}
	longer := append(append([]int32{}, first.prompt...), f.ref.prompt(5, 4)...)
	w, err := f.beginWith(0, longer)
	if err != nil {
		return err
	}
	if w.order.Pos0 != promptLength-1 {
		return errors.Join(fmt.Errorf("pos0 is %d, want the %d cells that it has", w.order.Pos0, promptLength-1), w.letGo())
	}
	for _, r := range w.order.Regions {
		if r.Mode != handoff.ReadOnly {
			continue
		}
		if _, err := unix.Mmap(int(w.files[r.FD].Fd()), 0, w.order.Layout.BlockBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			return errors.New("cells to be read can be mapped to be written")
		}
		fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", w.files[r.FD].Fd()), unix.O_RDWR, 0)
		if err == nil {
			_, merr := unix.Mmap(fd, 0, w.order.Layout.BlockBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if cerr := unix.Close(fd); merr == nil || cerr != nil {
				return errors.New("cells to be read can be opened again and mapped to be written: foreign providers get sealed ones")
			}
		}
	}
	for pos := range w.order.Pos0 {
		for layer := range w.order.Layout.Layers {
			for v := range 2 {
				if e := differ(halves(w.row(layer, v, pos)), w.rows.at(layer, v, pos)); !(e <= f.Tolerance) {
					return errors.Join(fmt.Errorf("%s of the prefix has a relative error of %.3g", rowName(layer, v, pos), e), w.letGo())
				}
			}
		}
	}
	return w.finish("all", nil)
}

func (f *fakeProvider) testShort() error { return f.half((*work).reply) }

func (f *fakeProvider) testGone() error {
	return f.half(func(*work, int) error {
		err := f.conn.Close()
		f.conn = nil
		return err
	})
}

// half fills half a prompt, ends with it, and wants it adopted.
func (f *fakeProvider) half(end func(*work, int) error) error {
	w, err := f.begin(0, promptLength)
	if err != nil {
		return err
	}
	filled := len(w.order.Tokens) / 2
	w.write(0, filled, 0)
	w.header(filled, nil)
	if err := errors.Join(w.letGo(), end(w, filled)); err != nil {
		return err
	}
	a, err := w.adopt("")
	if err != nil {
		return err
	}
	var adopted control.AdoptAnswer
	if err := a.accepted(&adopted); err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	if adopted.Filled != filled {
		return fmt.Errorf("adopt: %d cells are filled, want %d", adopted.Filled, filled)
	}
	return nil
}

// testGenerate asks for a token after an adopt, over llama-server's API.
func (f *fakeProvider) testGenerate() error {
	w, err := f.begin(0, promptLength)
	if err != nil {
		return err
	}
	if err := w.finish("all", nil); err != nil {
		return err
	}
	a, err := f.request(f.api, "/completion", map[string]any{"prompt": w.prompt, "n_predict": 1, "id_slot": 0, "cache_prompt": true})
	if err != nil {
		return err
	}
	if a.status == http.StatusNotFound {
		return skipped("it has no /completion on its control socket")
	}
	var c struct {
		Timings struct {
			PromptN *int `json:"prompt_n"`
		} `json:"timings"`
	}
	if err := a.accepted(&c); err != nil {
		return err
	}
	if c.Timings.PromptN == nil || *c.Timings.PromptN != 1 {
		return fmt.Errorf("timings.prompt_n is not 1: %.300s", a.body)
	}
	return nil
}

// testStrangers says hello in ways that are wrong.
func (f *fakeProvider) testStrangers() error {
	for _, change := range []func(*handoff.Hello){
		func(h *handoff.Hello) { h.Protocol, h.Name = 99, "stranger" },
		func(h *handoff.Hello) { h.Trust, h.Name = []handoff.Trust{}, "stranger" },
		func(*handoff.Hello) {}, // the name is taken
	} {
		c, err := f.dial()
		if err != nil {
			return err
		}
		h := f.hello()
		change(h)
		err = send(c, "hello", h)
		if err == nil {
			var kind string
			kind, _, _, err = receiveAny(c, 10*time.Second)
			if err == nil && kind != "reject" {
				err = fmt.Errorf("hello %+v is answered by %s, want reject", h, kind)
			} else if err == nil || errors.Is(err, errClosed) || errors.Is(err, unix.ECONNRESET) {
				err = nil
			}
		}
		if err := errors.Join(err, c.Close()); err != nil {
			return err
		}
	}
	return nil
}

// misbehaviour is a way to fill cells that must not be adopted.
type misbehaviour struct {
	what string
	want handoff.Code
	do   func(w *work) (filled int) // before everything is let go
	// keep keeps something of the memory; what it returns lets it go.
	keep    func(w *work) (func() error, error)
	require string
}

// all is how many cells an order ends with.
func (w *work) all() int { return len(w.order.Tokens) }

// fill writes the right rows, and a header page that is changed.
func fill(change func(w *work, page []byte)) func(w *work) int {
	return func(w *work) int {
		w.write(w.order.Pos0, w.all(), 0)
		w.header(w.all(), func(page []byte) {
			if change != nil {
				change(w, page)
			}
		})
		return w.all()
	}
}

func flip(at int) func(*work, []byte) { return func(_ *work, page []byte) { page[at] ^= 1 } }

var misbehaviours = []misbehaviour{
	{what: "of which a mapping is kept", want: handoff.StillWritable, do: fill(nil), keep: func(w *work) (func() error, error) {
		m := w.maps[w.order.Regions[0].FD]
		w.maps[w.order.Regions[0].FD] = nil
		return func() error { return unix.Munmap(m) }, nil
	}},
	{what: "of which a descriptor is kept", want: handoff.StillWritable, do: fill(nil), keep: func(w *work) (func() error, error) {
		fd, err := unix.FcntlInt(w.files[w.order.Regions[0].FD].Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		// A mapping counts in every trust mode, a descriptor in some.
		m, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return func() error { return errors.Join(unix.Munmap(m), unix.Close(fd)) }, err
	}},
	{what: "without a header page", want: handoff.HeaderMissing, do: func(w *work) int {
		w.write(w.order.Pos0, w.all(), 0)
		return w.all()
	}},
	{what: "with another magic", want: handoff.HeaderMissing, do: fill(flip(0))},
	{what: "with a header of another version", want: handoff.HeaderMissing, do: fill(flip(atVersion))},
	{what: "with another share's ticket", want: handoff.TicketDiffers, do: fill(flip(atTicket))},
	{what: "of another layout", want: handoff.LayoutDiffers, do: fill(flip(atLayout))},
	{what: "of another prompt", want: handoff.PromptDiffers, do: fill(flip(atPrompt))},
	{what: "that are not all filled, when all are required", want: handoff.ShortFill, require: "all", do: func(w *work) int {
		w.write(0, w.all()/2, 0)
		w.header(w.all()/2, nil)
		return w.all() / 2
	}},
	{what: "of which half is not written", want: handoff.ContentDiffers, do: func(w *work) int {
		w.write(0, w.all()/2, 0)
		w.header(w.all(), nil)
		return w.all()
	}},
	{what: "with the right rows at wrong positions", want: handoff.ContentDiffers, do: func(w *work) int {
		w.write(0, w.all()-1, 1)
		w.write(w.all()-1, w.all(), -1)
		w.header(w.all(), nil)
		return w.all()
	}},
	{what: "with a row of noise", want: handoff.ContentDiffers, do: func(w *work) int {
		w.write(0, w.all(), 0)
		for i, row := 0, w.row(0, 0, w.all()/2); i < len(row); i += 2 {
			row[i], row[i+1] = byte(i*37), 0x38
		}
		w.header(w.all(), nil)
		return w.all()
	}},
	{what: "that are more than ordered", want: handoff.ContentDiffers, do: func(w *work) int {
		fill(nil)(w)
		w.maps[w.order.Header][atFilled]++
		return w.all() + 1
	}},
}

func (b misbehaviour) run(f *fakeProvider) error {
	w, err := f.begin(0, promptLength)
	if err != nil {
		return err
	}
	filled := b.do(w)
	release := func() error { return nil }
	if b.keep != nil {
		if release, err = b.keep(w); err != nil {
			return err
		}
	}
	if err := errors.Join(w.letGo(), w.reply(filled)); err != nil {
		return errors.Join(err, release())
	}
	a, err := w.adopt(b.require)
	if err := errors.Join(err, release()); err != nil {
		return err
	}
	return a.refused(b.want)
}

// badRequest is a request that must be refused, whatever the cells hold.
type badRequest struct {
	what string
	want handoff.Code
	do   func(f *fakeProvider) (*answer, error)
}

func (r badRequest) run(f *fakeProvider) error {
	a, err := r.do(f)
	if err != nil {
		return err
	}
	return a.refused(r.want)
}

// shareOf asks for a share that is expected to be refused.
func (f *fakeProvider) shareOf(slot int, change func(*control.ShareRequest)) (*answer, error) {
	q := &control.ShareRequest{Provider: providerName, Tokens: f.ref.prompt(7, promptLength)}
	change(q)
	return f.post(f.api, slot, "share", q)
}

// adoptOf asks for an adopt that is expected to be refused.
func (f *fakeProvider) adoptOf(slot int, q *control.AdoptRequest) (*answer, error) {
	if q.Digest == nil && q.Tokens == nil {
		d := handoff.PromptDigest([]int32{1, 2, 3})
		q.Digest = &d
	}
	return f.post(f.api, slot, "adopt", q)
}

// filled makes a share that is filled and waits for its adopt.
func (f *fakeProvider) filled() (*work, error) {
	w, err := f.begin(0, promptLength)
	if err != nil {
		return nil, err
	}
	n := fill(nil)(w)
	return w, errors.Join(w.letGo(), w.reply(n))
}

// afterFilled does something with a share that is filled.
func afterFilled(do func(f *fakeProvider, w *work) (*answer, error)) func(f *fakeProvider) (*answer, error) {
	return func(f *fakeProvider) (*answer, error) {
		w, err := f.filled()
		if err != nil {
			return nil, err
		}
		return do(f, w)
	}
}

var badRequests = []badRequest{
	{"an adopt without an id", handoff.BadRequest, func(f *fakeProvider) (*answer, error) { return f.adoptOf(0, &control.AdoptRequest{}) }},
	{"a share with a token that the model has not", handoff.BadRequest, func(f *fakeProvider) (*answer, error) {
		return f.shareOf(0, func(q *control.ShareRequest) { q.Tokens[2] = int32(f.ref.vocab) })
	}},
	{"a share of one token", handoff.BadRequest, func(f *fakeProvider) (*answer, error) {
		return f.shareOf(0, func(q *control.ShareRequest) { q.Tokens = q.Tokens[:1] })
	}},
	{"a provider's socket outside the run directory", handoff.BadRequest, func(f *fakeProvider) (*answer, error) {
		return f.shareOf(0, func(q *control.ShareRequest) { q.Provider, q.Socket = "", "/tmp/provider.sock" })
	}},
	{"a slot that there is not", handoff.SlotUnknown, func(f *fakeProvider) (*answer, error) {
		return f.shareOf(1<<20, func(*control.ShareRequest) {})
	}},
	{"a provider that there is not", handoff.ProviderGone, func(f *fakeProvider) (*answer, error) {
		return f.shareOf(0, func(q *control.ShareRequest) { q.Provider = "nobody" })
	}},
	{"an adopt of a guessed id", handoff.ShareUnknown, func(f *fakeProvider) (*answer, error) {
		return f.adoptOf(0, &control.AdoptRequest{ID: 4711})
	}},
	{"an adopt for another slot", handoff.ShareOfOtherSlot, afterFilled(func(f *fakeProvider, w *work) (*answer, error) {
		a, err := f.adoptOf(1, &control.AdoptRequest{ID: w.share.ID})
		if err == nil && a.status == http.StatusNotFound {
			err = skipped("it has one slot only")
		}
		if _, rerr := f.post(f.api, 0, "release", map[string]any{"share_id": w.share.ID}); rerr != nil {
			err = errors.Join(err, rerr)
		}
		return a, err
	})},
	{"an adopt for another prompt", handoff.PromptDiffers, afterFilled(func(f *fakeProvider, w *work) (*answer, error) {
		return f.adoptOf(0, &control.AdoptRequest{ID: w.share.ID})
	})},
	{"a second adopt", handoff.ShareUsed, afterFilled(func(_ *fakeProvider, w *work) (*answer, error) {
		a, err := w.adopt("")
		if err == nil {
			err = a.accepted(new(control.AdoptAnswer))
		}
		if err != nil {
			return nil, err
		}
		return w.adopt("")
	})},
	{"an adopt after a failed one", handoff.ShareUsed, afterFilled(func(f *fakeProvider, w *work) (*answer, error) {
		a, err := f.adoptOf(0, &control.AdoptRequest{ID: w.share.ID})
		if err == nil {
			err = a.refused(handoff.PromptDiffers)
		}
		if err != nil {
			return nil, err
		}
		return w.adopt("")
	})},
	{"an adopt of what was released", handoff.ShareUnknown, afterFilled(func(f *fakeProvider, w *work) (*answer, error) {
		if _, err := f.post(f.api, 0, "release", map[string]any{"share_id": w.share.ID}); err != nil {
			return nil, err
		}
		return w.adopt("")
	})},
	{"a second share for a slot", handoff.AlreadySharing, afterFilled(func(f *fakeProvider, w *work) (*answer, error) {
		a, err := f.shareOf(0, func(*control.ShareRequest) {})
		if _, rerr := f.post(f.api, 0, "release", map[string]any{"share_id": w.share.ID}); rerr != nil {
			err = errors.Join(err, rerr)
		}
		return a, err
	})},
	{"an adopt after the connection that asked for the share is closed", handoff.ShareExpired, afterFilled(func(f *fakeProvider, w *work) (*answer, error) {
		f.api.CloseIdleConnections()
		time.Sleep(300 * time.Millisecond) // for the decoder to notice
		return w.adopt("")
	})},
	{"a share for a slot that is busy", handoff.SlotBusy, (*fakeProvider).shareBusy},
}

// shareBusy asks for a share for a slot in which a request runs.
func (f *fakeProvider) shareBusy() (*answer, error) {
	ctx, cancel := context.WithCancel(f.ctx)
	busy := *f
	busy.ctx, busy.api = ctx, f.newClient()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = busy.request(busy.api, "/completion", map[string]any{
			"prompt": f.ref.prompt(8, promptLength), "n_predict": 100000, "ignore_eos": true, "id_slot": 0,
		})
	}()
	defer func() {
		cancel()
		<-ended // cancelled: what it answers does not matter
		busy.api.CloseIdleConnections()
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if is, err := f.isBusy(); err != nil || !is {
				return
			}
		}
	}()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		is, err := f.isBusy()
		if err != nil {
			return nil, err
		}
		if is {
			return f.shareOf(0, func(*control.ShareRequest) {})
		}
	}
	return nil, skipped("it has no /completion on its control socket, or is very fast")
}

// isBusy reports whether a request runs in slot 0.
func (f *fakeProvider) isBusy() (bool, error) {
	r, err := http.NewRequestWithContext(f.ctx, http.MethodGet, "http://decoder/slots", nil)
	if err != nil {
		return false, err
	}
	res, err := f.api.Do(r)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	var slots []struct {
		ID   int  `json:"id"`
		Busy bool `json:"is_processing"`
	}
	if err := json.NewDecoder(res.Body).Decode(&slots); err != nil {
		return false, skipped("it has no /slots on its control socket")
	}
	for _, s := range slots {
		if s.ID == 0 {
			return s.Busy, nil
		}
	}
	return false, nil
}
