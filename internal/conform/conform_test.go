package conform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"baton/internal/control"
	"baton/internal/decoder"
	"baton/internal/demo"
	"baton/internal/gguf"
	"baton/internal/handoff"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/model"
	"baton/internal/vocab"
)

// The test runs this program as a provider, good or bad.
const roleEnv = "CONFORM_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := runRole(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func load() (*model.Model, *vocab.Vocab, error) {
	f, err := gguf.Parse(demo.GGUF(), "demo")
	if err != nil {
		return nil, nil, err
	}
	m, err := model.Load(f)
	if err != nil {
		return nil, nil, err
	}
	v, err := vocab.New(f)
	return m, v, err
}

// runRole is a provider at descriptor 3.
func runRole(role string) error {
	m, _, err := load()
	if err != nil {
		return err
	}
	layout, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim})
	if err != nil {
		return err
	}
	params, err := m.HandoffParams()
	if err != nil {
		return err
	}
	c, err := net.FileConn(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	pool := kernel.NewPool(1)
	defer pool.Close()
	w := &worker{role: role, runner: model.NewRunner(m, pool, 8), layout: layout}
	return handoff.Provide(context.Background(), c.(*net.UnixConn), handoff.ProviderOptions{
		Name: "test", ReadsPrefix: role != "no-prefix", Trust: []handoff.Trust{handoff.Sealed},
		Accept: func(welcome *handoff.Welcome) (*kv.Layout, map[string]string, error) {
			if role == "other-model" {
				params["model"] = "something else"
			}
			return layout, params, nil
		},
		Prefill: w.prefill,
	})
}

// worker fills cells, in a way that its role names.
type worker struct {
	role   string
	runner *model.Runner
	layout *kv.Layout
}

func (w *worker) prefill(ctx context.Context, j *handoff.Job) error {
	tokens := j.Tokens()
	for from := j.Pos0(); from < len(tokens); {
		if ctx.Err() != nil && w.role != "stubborn" {
			return nil
		}
		to := min(from+w.runner.Max(), len(tokens))
		if w.role == "early" {
			if err := j.Advance(to); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
		if _, err := w.runner.Forward([]model.Chunk{{Tokens: tokens[from:to], Pos0: from, Runs: j.Runs(0, to, nil)}}); err != nil {
			return err
		}
		if w.role == "stubborn" { // longer than two seconds for the 300 tokens of a test
			time.Sleep(75 * time.Millisecond)
		}
		w.spoil(j.Runs(from, to, nil))
		if err := j.Advance(to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// spoil does what is wrong with the cells that were filled last.
func (w *worker) spoil(runs []kv.Run) {
	r := runs[len(runs)-1]
	top := w.layout.Layers - 1
	n := w.layout.RowElems
	switch w.role {
	case "beyond": // the row after the last one, of the last tensor
		if at := (r.Cell + r.Len) * n; at < len(r.Block.V(top)) {
			r.Block.V(top)[at] = 1
		}
	case "before":
		if r.Cell > 0 {
			r.Block.K(2)[r.Cell*n-1] = 1
		}
	case "noise": // in the last layer, which no decoder can check
		for i := range r.V(top)[:n] {
			r.V(top)[i] ^= 0x0200
		}
	case "lazy":
		for i := range r.K(3)[:n] {
			r.K(3)[i] = guardByte<<8 | guardByte
		}
	}
}

func testProvider(t *testing.T, role string) (*Report, string) {
	t.Helper()
	m, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(roleEnv, role)
	var out strings.Builder
	r, err := Provider(t.Context(), Options{Model: m, Out: &out, Timeout: 20 * time.Second}, []string{"/proc/self/exe"})
	if err != nil {
		t.Fatal(err)
	}
	return r, out.String()
}

// A provider that keeps to the contract passes everything, and every way of breaking it
// fails the test that is for it, with a line that says what was found.
func TestProviders(t *testing.T) {
	for _, c := range []struct {
		role   string
		failed int // at least
		want   []string
	}{
		{"good", 0, []string{"9 passed, 0 failed, 0 skipped"}},
		{"no-prefix", 0, []string{"skip  attends to a prefix", "8 passed, 0 failed, 1 skipped"}},
		{"beyond", 3, []string{"FAIL  fills the cells that it is told to", "in the V row of cell 10, layer 5, that is not to be filled"}},
		{"before", 1, []string{"FAIL  fills the cells that it is told to", "in the K row of cell 2, layer 2"}},
		{"noise", 3, []string{"relative error", "layer 5"}},
		{"lazy", 3, []string{"layer 3 is not written"}},
		{"early", 1, []string{"in the header page, but the K row of position"}},
		{"stubborn", 1, []string{"FAIL  takes more than 250 descriptors", "after the cancel"}},
		{"other-model", 3, []string{"it replies with an error"}},
	} {
		t.Run(c.role, func(t *testing.T) {
			r, out := testProvider(t, c.role)
			if r.Failed < c.failed || c.failed == 0 && !r.OK() {
				t.Errorf("%d tests failed, want at least %d:\n%s", r.Failed, c.failed, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("nothing says %q:\n%s", want, out)
				}
			}
		})
	}
}

// A program that is no provider fails everything, quickly.
func TestNoProvider(t *testing.T) {
	m, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r, err := Provider(t.Context(), Options{Model: m, Out: &out}, []string{"/bin/sh", "-c", "echo no device >&2; exit 4"})
	if err != nil {
		t.Fatal(err)
	}
	if r.OK() || r.Passed > 0 || !strings.Contains(out.String(), "exit status 4): no device") {
		t.Errorf("%s", out.String())
	}
}

// What is still mapped or open is noticed.
func TestReleased(t *testing.T) {
	t.Parallel() // it waits
	m, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	layout, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim})
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBlock(layout)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	file, err := writer(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.released(); err == nil {
		t.Error("a descriptor is open, and it is not noticed")
	}
	if err := errors.Join(file.Close(), b.released()); err != nil {
		t.Error(err)
	}
}

// serveDecoder is a decoder at a control socket.
func serveDecoder(t *testing.T, o handoff.Options) (socket string) {
	t.Helper()
	m, v, err := load()
	if err != nil {
		t.Fatal(err)
	}
	d, err := decoder.New(m, v, decoder.Options{Slots: 2, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	table, err := d.NewTable(o)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	listen := func(name string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	providers, actions := listen("provider.sock"), listen("decoder.sock")
	h := control.NewHandler()
	h.SetTable(table, d.Cached)
	mux := http.NewServeMux()
	mux.Handle("POST /slots/{id}", h)
	srv := &http.Server{Handler: mux, ConnContext: h.ConnContext, ConnState: h.ConnState}
	ended := make(chan error, 2)
	go func() { ended <- srv.Serve(actions) }()
	go func() {
		ended <- table.Serve(context.Background(), providers, func(handoff.Hello) (handoff.Policy, error) {
			return handoff.Policy{Trust: handoff.Sealed, Foreign: true}, nil
		})
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := errors.Join(srv.Close(), providers.Close(), table.Close(), d.Close(ctx)); err != nil {
			t.Error(err)
		}
		<-ended
		<-ended
	})
	return filepath.Join(dir, "decoder.sock")
}

func testDecoder(t *testing.T, o handoff.Options) (*Report, string) {
	t.Helper()
	m, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r, err := Decoder(t.Context(), Options{Model: m, Out: &out, Timeout: 20 * time.Second}, serveDecoder(t, o))
	if err != nil {
		t.Fatal(err)
	}
	return r, out.String()
}

// Our decoder does everything that it should. This one has no API but the actions, so
// two tests do not apply.
func TestDecoder(t *testing.T) {
	r, out := testDecoder(t, handoff.Options{LetGo: 100 * time.Millisecond})
	if !r.OK() || r.Skipped != 5 {
		t.Errorf("%s", out)
	}
}

// A decoder that believes every row is found out.
func TestCredulousDecoder(t *testing.T) {
	r, out := testDecoder(t, handoff.Options{LetGo: 100 * time.Millisecond, Tolerance: 1e9})
	if r.OK() || !strings.Contains(out, "FAIL  refuses (content_differs) cells with a row of noise") {
		t.Errorf("%s", out)
	}
}
