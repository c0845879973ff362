package handoff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"baton/internal/kv"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("HANDOFF_TEST_ROLE"); role != "" {
		if err := runRole(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("BATON_VERIFY", "1")
	goleak.VerifyTestMain(m)
}

// The test's model: a row follows from layer, position and token, above layer 0 also
// from all tokens before.

const (
	testVocab   = 1000
	testContext = 200
	testLayers  = 3
	testElems   = 8
	testCells   = 16
	testBatch   = 8 // tokens a micro-batch
)

var testParams = map[string]string{"n_ctx": "200", "model": "test"}

func testLayout() *kv.Layout {
	l, err := kv.NewLayout(kv.Config{Layers: testLayers, KVHeads: 2, HeadDim: testElems / 2, CellsPerBlock: testCells, Extra: 8})
	if err != nil {
		panic(err)
	}
	return l
}

// fillRow writes one row; all elements are between 0.125 and 0.5.
func fillRow(dst []uint16, layer, v, pos int, token int32, history uint64) {
	x := uint64(layer*2+v)<<40 ^ uint64(pos)<<20 ^ uint64(token)
	if layer > 0 {
		x ^= history
	}
	for j := range dst {
		x = (x ^ x>>29 ^ uint64(j)) * 0xbf58476d1ce4e5b9
		dst[j] = 0x3000 | uint16(x>>48)&0x7ff
	}
}

func keyRows(_ context.Context, tokens []int32, positions []int, dst []uint16) error {
	n := len(dst) / len(tokens)
	for i := range tokens {
		fillRow(dst[i*n:(i+1)*n], 0, 0, positions[i], tokens[i], 0)
	}
	return nil
}

// history is the hash of a sequence of tokens.
func history(tokens []int32) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, t := range tokens {
		h = (h ^ uint64(t)) * 0x100000001b3
	}
	return h
}

// fillCells writes the rows of positions from to to-1 of tokens into runs, which start
// at position from.
func fillCells(runs []kv.Run, tokens []int32, from, to int) {
	pos := from
	for _, r := range runs {
		n := r.Block.Layout().RowElems
		for c := 0; c < r.Len && pos < to; c++ {
			h := history(tokens[:pos+1])
			for l := range r.Block.Layout().Layers {
				fillRow(r.K(l)[c*n:(c+1)*n], l, 0, pos, tokens[pos], h)
				fillRow(r.V(l)[c*n:(c+1)*n], l, 1, pos, tokens[pos], h)
			}
			pos++
		}
	}
}

// checkCells compares the rows of the first n tokens with what they must be.
func checkCells(runs []kv.Run, tokens []int32, n int) error {
	pos := 0
	want := make([]uint16, testElems)
	for _, r := range runs {
		for c := range r.Len {
			h := history(tokens[:pos+1])
			for l := range testLayers {
				for v, rows := range [][]uint16{r.K(l), r.V(l)} {
					fillRow(want, l, v, pos, tokens[pos], h)
					if got := rows[c*testElems : (c+1)*testElems]; !slices.Equal(got, want) {
						return fmt.Errorf("position %d, layer %d, tensor %d: %x, want %x", pos, l, v, got, want)
					}
				}
			}
			pos++
		}
	}
	if pos != n {
		return fmt.Errorf("%d cells, want %d", pos, n)
	}
	return nil
}

// prefill is an honest provider's work. It reads the prefix, as attention would.
func prefill(ctx context.Context, j *Job) error {
	if err := checkCells(j.Runs(0, j.Pos0(), nil), j.Tokens(), j.Pos0()); err != nil {
		return fmt.Errorf("the prefix: %w", err)
	}
	for pos := j.Pos0(); pos < len(j.Tokens()); {
		if ctx.Err() != nil {
			return nil // what is filled is filled
		}
		n := min(testBatch, len(j.Tokens())-pos)
		fillCells(j.Runs(pos, pos+n, nil), j.Tokens(), pos, pos+n)
		if err := j.Advance(pos + n); err != nil {
			return err
		}
		pos += n
	}
	return nil
}

func accept(*Welcome) (*kv.Layout, map[string]string, error) { return testLayout(), testParams, nil }

func honest(name string) ProviderOptions {
	return ProviderOptions{
		Name: name, ReadsPrefix: true, Trust: []Trust{Leased, Sealed, Attached}, Accept: accept, Prefill: prefill,
	}
}

// prompt is n tokens that begin like those of every other prompt of the same seed.
func prompt(seed int32, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = (seed*131 + int32(i)*7) % testVocab
	}
	return tokens
}

// rig is a decoder: a step loop, slots, a pool and a table.
type rig struct {
	t     testing.TB
	pool  *kv.Pool
	index *kv.Index
	table *Table
	dir   string
	calls chan func()
	stop  chan struct{}

	// Of the step loop.
	slots map[int]*kv.Sequence
	busy  map[int]bool
	lost  []*kv.Block
}

// newRig makes a decoder, and checks at the end that nothing of it is left.
func newRig(t testing.TB, change func(*Options)) *rig {
	t.Helper()
	return newRigWith(t, kv.Options{MaxBlocks: 40}, change)
}

func newRigWith(t testing.TB, po kv.Options, change func(*Options)) *rig {
	t.Helper()
	fds, maps := leftovers(t)
	pool, err := kv.NewPool(testLayout(), po)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, pool: pool, index: kv.NewIndex(pool), calls: make(chan func()), stop: make(chan struct{}),
		slots: map[int]*kv.Sequence{}, busy: map[int]bool{}, dir: t.TempDir(),
	}
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Pool: pool, Index: r.index, OnLoop: r.onLoop, KeyRows: keyRows, Params: testParams,
		SlotBusy: func(slot int) bool { return r.busy[slot] },
		Attach: func(slot int, s *kv.Sequence) error {
			r.clear(slot)
			r.slots[slot] = s
			return nil
		},
		LeaseBroken: func(b *kv.Block) { r.lost = append(r.lost, b) },
		Slots:       4, Context: testContext, Vocab: testVocab, LetGo: 150 * time.Millisecond, RunDir: root,
	}
	if change != nil {
		change(&o)
	}
	if r.table, err = NewTable(o); err != nil {
		t.Fatal(err)
	}
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			select {
			case f := <-r.calls:
				f()
			case <-r.stop:
				return
			}
		}
	})
	t.Cleanup(func() {
		if err := r.table.Close(); err != nil {
			t.Error(err)
		}
		r.do(func() {
			for slot := range r.slots {
				r.clear(slot)
			}
			r.index.Clear()
			if err := pool.Verify(); err != nil {
				t.Error(err)
			}
		})
		close(r.stop)
		loop.Wait()
		if st := pool.Stats(); st.Faults != 0 {
			t.Errorf("%d faults", st.Faults)
		}
		if err := errors.Join(pool.Close(), root.Close()); err != nil {
			t.Error(err)
		}
		// A process that was just killed may have descriptors in flight.
		eventually(t, "nothing is left open or mapped", func() bool {
			f, m := leftovers(t)
			return f <= fds && m == maps
		})
	})
	return r
}

// leftovers counts open descriptors and mapped memory files.
func leftovers(t testing.TB) (fds, maps int) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries), bytes.Count(data, []byte("/memfd:baton-"))
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Errorf("not within 5 s: %s", what)
}

func (r *rig) onLoop(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case r.calls <- func() { f(); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.stop:
		return errors.New("the loop has stopped")
	}
}

func (r *rig) do(f func()) {
	r.t.Helper()
	if err := r.onLoop(context.Background(), f); err != nil {
		r.t.Fatal(err)
	}
}

// clear empties a slot, on the step loop.
func (r *rig) clear(slot int) {
	if s := r.slots[slot]; s != nil {
		s.Free()
		delete(r.slots, slot)
	}
}

// clean gives everything up that slots and the index hold.
func (r *rig) clean() {
	r.t.Helper()
	r.do(func() {
		for slot := range r.slots {
			r.clear(slot)
		}
		r.index.Clear()
	})
}

// provide runs a provider in this process.
func (r *rig) provide(o ProviderOptions, policy Policy) *Provider {
	r.t.Helper()
	ours, theirs := socketpair(r.t)
	ended := make(chan error, 1)
	go func() { ended <- Provide(context.Background(), theirs, o) }()
	p, err := r.table.Register(context.Background(), ours, policy)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		p.disconnect()
		<-ended
	})
	return p
}

func socketpair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// testCommand is this program in one of its roles.
func testCommand(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "HANDOFF_TEST_ROLE="+role)
	return cmd
}

func credential(id uint32) *syscall.Credential { return &syscall.Credential{Uid: id, Gid: id} }

// spawn runs a provider in a process of its own, which connects to a socket in the run
// directory.
func (r *rig) spawn(role, failpoints string, policy Policy) (*Provider, *exec.Cmd) {
	r.t.Helper()
	path := filepath.Join(r.dir, "decoder.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		r.t.Fatal(err)
	}
	defer l.Close()
	cmd := testCommand(role)
	cmd.Env = append(cmd.Env, "HANDOFF_TEST_SOCKET="+path, failpointsEnv+"="+failpoints)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // it and its children, if they are still there
		_ = cmd.Wait()
		if r.t.Failed() && stderr.Len() > 0 {
			r.t.Logf("%s: %s", role, stderr.String())
		}
	})
	if err := l.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	c, err := l.AcceptUnix()
	if err != nil {
		r.t.Fatalf("%s does not connect: %v", role, err)
	}
	p, err := r.table.Register(context.Background(), c, policy)
	if err != nil {
		r.t.Fatal(err)
	}
	return p, cmd
}

func (r *rig) share(p *Provider, slot int, tokens []int32) *Share {
	r.t.Helper()
	s, err := r.table.Share(context.Background(), &Request{Slot: slot, Provider: p.Name(), Tokens: tokens})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) wait(s *Share) Outcome {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	o, err := r.table.Wait(ctx, s.Slot, s.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

func (r *rig) adopt(s *Share, tokens []int32) (*Adopted, error) {
	d := PromptDigest(tokens)
	return r.table.Adopt(context.Background(), &AdoptRequest{Slot: s.Slot, ID: s.ID, Digest: &d})
}

// handoff is a whole one, checked to the last cell.
func (r *rig) handoff(p *Provider, slot int, tokens []int32) *Adopted {
	r.t.Helper()
	s := r.share(p, slot, tokens)
	if o := r.wait(s); o.Err != nil || o.Filled != len(tokens)-1 {
		r.t.Fatalf("%+v", o)
	}
	a, err := r.adopt(s, tokens)
	if err != nil {
		r.t.Fatal(err)
	}
	if a.Filled != len(tokens)-1 || a.Cells != a.Filled || a.Pos0 != s.Pos0 {
		r.t.Fatalf("adopted %+v of %d tokens, shared %+v", a, len(tokens), s)
	}
	r.checkSlot(slot, tokens, a.Filled)
	return a
}

// checkSlot checks that a slot has the cells of the first n tokens.
func (r *rig) checkSlot(slot int, tokens []int32, n int) {
	r.t.Helper()
	r.do(func() {
		s := r.slots[slot]
		if s == nil || !slices.Equal(s.Tokens(), tokens[:n]) {
			r.t.Errorf("slot %d does not hold the first %d tokens", slot, n)
			return
		}
		if err := checkCells(s.Runs(0, n, nil), tokens, n); err != nil {
			r.t.Errorf("slot %d: %v", slot, err)
		}
	})
}

// decode has the slot compute the rest of its prompt and n tokens more, as a decoder
// does, and puts them into the index. It returns all tokens.
func (r *rig) decode(slot int, tokens []int32, n int) []int32 {
	r.t.Helper()
	all := slices.Clone(tokens)
	for i := range n {
		all = append(all, int32(i*13+len(tokens))%testVocab)
	}
	r.do(func() {
		s := r.slots[slot]
		from := s.Len()
		if err := s.Append(all[from:]...); err != nil {
			r.t.Error(err)
			return
		}
		fillCells(s.Runs(from, len(all), nil), all, from, len(all))
		if err := checkCells(s.Runs(0, len(all), nil), all, len(all)); err != nil {
			r.t.Error(err)
		}
		r.index.Insert(s)
	})
	return all
}

// isolated waits until no blocks are in quarantine any more.
func (r *rig) isolated() {
	r.t.Helper()
	eventually(r.t, "the quarantine is empty", func() bool { return r.table.Stats().Quarantined == 0 })
}

// code is the code of a refusal.
func code(err error) Code {
	var r *Refusal
	if !errors.As(err, &r) {
		return Code(fmt.Sprintf("no refusal: %v", err))
	}
	return r.Code
}
