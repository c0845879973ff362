package handoff

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"baton/internal/kv"
	"baton/internal/shm"
)

// runRole is the main function of a process that a test starts.
func runRole(role string) error {
	if role == "hold" {
		return hold()
	}
	c, err := net.Dial("unix", os.Getenv("HANDOFF_TEST_SOCKET"))
	if err != nil {
		return err
	}
	o := honest(role)
	switch role {
	case "keeps-child":
		o.Prefill = keepsChild
	case "slow":
		o.Prefill = func(ctx context.Context, j *Job) error {
			if err := j.Advance(j.Pos0()); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}
	}
	return Provide(context.Background(), c.(*net.UnixConn), o)
}

// A conversation of three turns, in every trust mode: each turn's new tokens are filled
// by the provider, which reads what was there, and the rest by the decoder.
func TestConversation(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy Policy
	}{
		{"leased", Policy{Trust: Leased}},
		{"sealed", Policy{Trust: Sealed, Foreign: true}},
		{"attached", Policy{Trust: Attached}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			p, _ := r.spawn("cpu", "", c.policy)
			for round := range 3 { // on recycled blocks, too
				tokens := prompt(int32(round), 53)
				for turn := range 3 {
					a := r.handoff(p, 1, tokens)
					if turn > 0 && a.Pos0 == 0 {
						t.Errorf("round %d, turn %d: nothing was reused: %+v", round, turn, a)
					}
					tokens = r.decode(1, tokens, 9)
					tokens = append(tokens, prompt(int32(100+turn), 21)...)
				}
				r.clean()
				r.isolated()
			}
			st := r.pool.Stats()
			if c.policy.Trust != Sealed && st.Made > uint64(st.Limit) {
				t.Errorf("%d blocks were made: they are not used again", st.Made)
			}
			if got := r.table.Stats(); got.Adopted != 9 || got.Shares != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// What a foreign provider reads is sealed, so that it cannot be changed through the
// descriptor.
func TestForeignPrefixIsSealed(t *testing.T) {
	r := newRig(t, nil)
	p := r.provide(honest("npu"), Policy{Trust: Sealed, Foreign: true})
	tokens := prompt(1, 40)
	r.do(func() { // three blocks of the decoder's own, the last not full
		s := r.pool.NewSequence()
		if err := s.Append(tokens...); err != nil {
			t.Fatal(err)
		}
		fillCells(s.Runs(0, 40, nil), tokens, 0, 40)
		r.index.Insert(s)
		r.slots[0] = s
	})
	s := r.share(p, 1, append(tokens, prompt(2, 30)...))
	if s.Pos0 != 32 {
		t.Errorf("pos0 is %d, want 32: the short block is still being filled", s.Pos0)
	}
	r.wait(s)
	r.do(func() {
		for i, run := range r.slots[0].Runs(0, 40, nil) {
			if run.Block.Sealed() != (i < 2) {
				t.Errorf("block %d: sealed is %v", i, run.Block.Sealed())
			}
		}
	})
	if _, err := r.adopt(s, append(tokens, prompt(2, 30)...)); err != nil {
		t.Error(err)
	}
}

// Two slots go on from one system prompt, in the same blocks.
func TestSharedPrefix(t *testing.T) {
	r := newRig(t, nil)
	p := r.provide(honest("cpu"), Policy{})
	system := prompt(1, 65)
	r.handoff(p, 0, system)
	all := r.decode(0, system, 0)
	for slot := 1; slot < 4; slot++ {
		a := r.handoff(p, slot, append(slices.Clone(all), prompt(int32(10+slot), 20)...))
		if a.Pos0 != 64 && a.Pos0 != 65 {
			t.Errorf("slot %d: %d cells reused, want those of the system prompt", slot, a.Pos0)
		}
	}
	r.do(func() {
		first := r.slots[1].Runs(0, 64, nil)
		for slot := 2; slot < 4; slot++ {
			if got := r.slots[slot].Runs(0, 64, nil); !slices.Equal(got, first) {
				t.Errorf("slot %d has cells of its own for the system prompt", slot)
			}
		}
	})
}

func TestProviderWithoutPrefix(t *testing.T) {
	r := newRig(t, nil)
	o := honest("npu")
	o.ReadsPrefix = false
	p := r.provide(o, Policy{Trust: Sealed, Foreign: true})
	tokens := prompt(1, 40)
	r.handoff(p, 0, tokens)
	tokens = append(r.decode(0, tokens, 3), prompt(2, 9)...)
	if a := r.handoff(p, 0, tokens); a.Pos0 != 0 {
		t.Errorf("pos0 is %d for a provider that reads no prefix", a.Pos0)
	}
}

// A provider that stops early: what is there is adopted, unless all is required.
func TestPartial(t *testing.T) {
	r := newRig(t, nil)
	o := honest("early")
	o.Prefill = func(_ context.Context, j *Job) error {
		fillCells(j.Runs(0, 24, nil), j.Tokens(), 0, 24)
		return j.Advance(24)
	}
	p := r.provide(o, Policy{})
	tokens := prompt(1, 70)
	s := r.share(p, 0, tokens)
	if o := r.wait(s); o.Err != nil || o.Filled != 24 {
		t.Fatalf("%+v", o)
	}
	a, err := r.adopt(s, tokens)
	if err != nil || a.Filled != 24 || a.Cells != 69 || a.Blocks != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	r.checkSlot(0, tokens, 24)
	r.decode(0, tokens, 4)
	if q := r.table.Stats().Quarantined; q != 0 {
		t.Errorf("%d blocks in quarantine", q)
	}

	s = r.share(p, 1, tokens2())
	r.wait(s)
	_, err = r.table.Adopt(context.Background(), &AdoptRequest{Slot: 1, ID: s.ID, Tokens: tokens2(), All: true})
	if code(err) != ShortFill {
		t.Errorf("all required: %v", err)
	}
}

func tokens2() []int32 { return prompt(9, 70) }

// The client that asked is gone: the provider stops at once, and the blocks come back.
func TestOwnerGone(t *testing.T) {
	r := newRig(t, nil)
	stopped := make(chan struct{})
	o := honest("cpu")
	o.Prefill = func(ctx context.Context, j *Job) error {
		<-ctx.Done()
		close(stopped)
		return nil
	}
	p := r.provide(o, Policy{})
	owner := make(chan struct{})
	s, err := r.table.Share(context.Background(), &Request{Slot: 0, Provider: "cpu", Tokens: prompt(1, 50), Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	close(owner)
	<-stopped
	r.isolated()
	if _, err := r.adopt(s, prompt(1, 50)); code(err) != ShareExpired {
		t.Errorf("adopt after the owner left: %v", err)
	}
	eventually(t, "the provider is free", func() bool { return !p.Busy() })
	if st := r.pool.Stats(); st.Used != 0 {
		t.Errorf("%+v", st)
	}
}

func TestRelease(t *testing.T) {
	r := newRig(t, nil)
	p, _ := r.spawn("slow", "", Policy{})
	s := r.share(p, 2, prompt(1, 50))
	if n, err := r.table.Progress(2, s.ID); err != nil || n != 0 {
		t.Errorf("progress %d, %v", n, err)
	}
	waited := make(chan error)
	go func() {
		_, err := r.table.Wait(context.Background(), 2, s.ID)
		waited <- err
	}()
	if err := r.table.Release(2, s.ID); err != nil {
		t.Fatal(err)
	}
	// The waiting one is told either that the provider has stopped or that there is
	// nothing to wait for, whichever comes first.
	if err := <-waited; err != nil && code(err) != ShareUnknown {
		t.Error(err)
	}
	if err := r.table.Release(2, s.ID); code(err) != ShareUnknown {
		t.Errorf("released twice: %v", err)
	}
	r.isolated()
	eventually(t, "the provider is free", func() bool { return !p.Busy() })
}

// Orders wait for their turn, and blocks are not held meanwhile.
func TestTurns(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxShares = 4 })
	p := r.provide(honest("cpu"), Policy{})
	var group sync.WaitGroup
	for slot := range 4 {
		group.Go(func() {
			for i := range 5 {
				tokens := prompt(int32(10*slot+i), 60)
				s, err := r.table.Share(context.Background(), &Request{Slot: slot, Provider: "cpu", Tokens: tokens})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := r.table.Wait(context.Background(), slot, s.ID); err != nil {
					t.Error(err)
				}
				if _, err := r.adopt(s, tokens); err != nil {
					t.Error(err)
				}
				r.checkSlot(slot, tokens, 59)
			}
		})
	}
	group.Wait()
	eventually(t, "the provider is free", func() bool { return !p.Busy() })
}

// A share that makes no progress is given up, and so is one that takes too long.
func TestDeadlines(t *testing.T) {
	for _, c := range []struct {
		name          string
		stall, budget time.Duration
		progress      bool
	}{
		{"no progress", 50 * time.Millisecond, 0, false},
		{"no progress, enough budget", 50 * time.Millisecond, time.Hour, false},
		{"too long", time.Hour, 50 * time.Millisecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Stall = c.stall })
			o := honest("cpu")
			o.Prefill = func(ctx context.Context, j *Job) error {
				if err := j.Advance(1); err != nil {
					return err
				}
				for n := 2; c.progress && n < len(j.Tokens()) && ctx.Err() == nil; n++ {
					if err := j.Advance(n); err != nil {
						return err
					}
					time.Sleep(time.Millisecond)
				}
				<-ctx.Done()
				return nil
			}
			r.provide(o, Policy{})
			s, err := r.table.Share(context.Background(), &Request{Slot: 0, Provider: "cpu", Tokens: prompt(1, 150), Budget: c.budget})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is given up", func() bool { return r.table.Stats().Shares == 0 })
			if _, err := r.adopt(s, prompt(1, 150)); code(err) != ShareExpired {
				t.Errorf("adopted: %v", err)
			}
			r.isolated()
		})
	}
}

// What counts is the time since filled changed.
func TestProgressDefersDeadline(t *testing.T) {
	o, err := shm.Create("test", HeaderSize, shm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	page, err := o.Map(shm.ReadWrite)
	if err := errors.Join(err, o.Close()); err != nil {
		t.Fatal(err)
	}
	defer page.Unmap()
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	s := &share{page: page, state: filling, moved: start, tokens: prompt(1, 10), deadline: at(100)}
	table := &Table{opt: Options{Stall: 30 * time.Second}, shares: map[ID]*share{1: s}}
	for _, c := range []struct{ at, filled, wait int }{
		{0, 0, 7}, {20, 0, 7}, {25, 0, 5}, {29, 1, 7}, {58, 1, 1}, {58, 2, 7}, {80, 3, 7}, {98, 4, 2},
	} {
		storeFilled(page.Bytes(), uint64(c.filled))
		// It looks at least every 7.5 s, and when the time is over.
		if wait := table.expire(at(c.at)); int(wait/time.Second) != c.wait {
			t.Errorf("at %d s with %d filled: looks again in %v, want %d s", c.at, c.filled, wait, c.wait)
		}
	}
}

// Somebody opens the memory of cells in use for writing: they are given up.
func TestBrokenLease(t *testing.T) {
	r := newRig(t, nil)
	p := r.provide(honest("cpu"), Policy{})
	tokens := prompt(1, 50)
	r.handoff(p, 0, tokens)
	r.decode(0, tokens, 0)
	var b *kv.Block
	r.do(func() { b = r.slots[0].Runs(16, 17, nil)[0].Block })
	if f, err := b.WriterFile(); err == nil {
		f.Close()
		t.Fatal("a leased block can be opened for writing at once")
	}
	r.table.checkLeases()
	r.do(func() {
		if !slices.Equal(r.lost, []*kv.Block{b}) {
			t.Errorf("reported are %v", r.lost)
		}
		if m := r.index.Lookup(tokens, 49); m.Tokens != 16 {
			t.Errorf("%d tokens are still found, want those before the block", m.Tokens)
		}
	})
	made := r.pool.Stats().Blocks
	r.clean()
	r.handoff(p, 0, prompt(2, 150))
	if st := r.pool.Stats(); st.Blocks < made {
		t.Errorf("%+v", st)
	}
}

// Two adopts of one id at the same time: one of them wins.
func TestRacingAdopts(t *testing.T) {
	r := newRig(t, nil)
	p := r.provide(honest("cpu"), Policy{})
	for i := range 20 {
		tokens := prompt(int32(i), 40)
		s := r.share(p, 0, tokens)
		r.wait(s)
		var group sync.WaitGroup
		errs := make([]error, 4)
		for j := range errs {
			group.Go(func() { _, errs[j] = r.adopt(s, tokens) })
		}
		group.Wait()
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case code(err) != ShareUsed:
				t.Error(err)
			}
		}
		if won != 1 {
			t.Fatalf("%d of %d adopts succeeded", won, len(errs))
		}
		r.checkSlot(0, tokens, 39)
	}
}

func TestNames(t *testing.T) {
	r := newRig(t, nil)
	p := r.provide(honest("cpu"), Policy{})
	ours, theirs := socketpair(t)
	refused := make(chan error)
	go func() { refused <- Provide(context.Background(), theirs, honest("cpu")) }()
	if _, err := r.table.Register(context.Background(), ours, Policy{}); err == nil {
		t.Error("two providers of one name are registered")
	}
	if err := <-refused; err == nil {
		t.Error("the second one was not told")
	}
	p.disconnect()
	eventually(t, "it is struck off", func() bool { return len(r.table.Providers()) == 0 })
	r.provide(honest("cpu"), Policy{})
	if list := r.table.Providers(); len(list) != 1 || list[0].Name() != "cpu" {
		t.Errorf("%v", list)
	}
}

func TestRegisterRefuses(t *testing.T) {
	r := newRig(t, nil)
	for name, c := range map[string]struct {
		change func(*ProviderOptions)
		policy Policy
	}{
		"trust":                {func(o *ProviderOptions) { o.Trust = []Trust{Sealed} }, Policy{Trust: Leased}},
		"name":                 {func(o *ProviderOptions) { o.Name = "a/b" }, Policy{}},
		"no trust":             {func(o *ProviderOptions) { o.Trust = nil }, Policy{}},
		"attached, no process": {func(*ProviderOptions) {}, Policy{Trust: Attached}},
	} {
		o := honest("cpu")
		c.change(&o)
		ours, theirs := socketpair(t)
		ended := make(chan error)
		go func() { ended <- Provide(context.Background(), theirs, o) }()
		if _, err := r.table.Register(context.Background(), ours, c.policy); err == nil {
			t.Errorf("%s: registered", name)
		}
		if err := <-ended; err == nil {
			t.Errorf("%s: the provider was not told", name)
		}
	}
	// Nothing comes, and the decoder does not wait for it.
	ours, theirs := socketpair(t)
	defer theirs.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := r.table.Register(ctx, ours, Policy{}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("no hello: %v", err)
	}
}

func TestServe(t *testing.T) {
	r := newRig(t, nil)
	path := r.dir + "/providers.sock"
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() {
		served <- r.table.Serve(context.Background(), l, func(h Hello) (Policy, error) {
			if h.Name == "unwanted" {
				return Policy{}, errors.New("not today")
			}
			return Policy{}, nil
		})
	}()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for _, name := range []string{"cpu", "unwanted"} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- Provide(ctx, c.(*net.UnixConn), honest(name)) }()
	}
	if err := <-ended; err == nil {
		t.Error("the unwanted one was not told")
	}
	eventually(t, "the wanted one is registered", func() bool { return len(r.table.Providers()) == 1 })
	r.handoff(r.table.Providers()[0], 0, prompt(1, 30))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	eventually(t, "it is struck off", func() bool { return len(r.table.Providers()) == 0 })
	l.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Two providers fill the same prompt for two slots at the same time.
func TestTwoProviders(t *testing.T) {
	r := newRig(t, nil)
	tokens := prompt(1, 120)
	var group sync.WaitGroup
	for slot, name := range []string{"cpu", "npu"} {
		p := r.provide(honest(name), Policy{Trust: Trust(slot), Foreign: slot == 1})
		group.Go(func() { r.handoff(p, slot, tokens) })
	}
	group.Wait()
	r.do(func() {
		if r.slots[0].Runs(0, 1, nil)[0].Block == r.slots[1].Runs(0, 1, nil)[0].Block {
			t.Error("two shares were filled in one block")
		}
	})
}

// An attached provider gets each block's descriptor once.
func TestAttachedKeepsMapping(t *testing.T) {
	r := newRigWith(t, kv.Options{MaxBlocks: 4}, nil)
	p, cmd := r.spawn("cpu", "", Policy{Trust: Attached})
	descriptors := func(seed int32) (n int) {
		tokens := prompt(seed, 60)
		s := r.share(p, 0, tokens)
		r.wait(s)
		if _, err := r.adopt(s, tokens); err != nil {
			t.Fatal(err)
		}
		r.checkSlot(0, tokens, 59)
		for _, region := range s.Regions {
			if region.FD >= 0 {
				n++
			}
		}
		r.clean()
		return n
	}
	if first, second := descriptors(1), descriptors(2); first != 4 || second != 0 {
		t.Errorf("%d and then %d descriptors were sent, want 4 and none", first, second)
	}
	// Others get the blocks only when the provider's process is gone.
	other := r.provide(honest("npu"), Policy{})
	if _, err := r.table.Share(context.Background(), &Request{Provider: other.Name(), Tokens: prompt(3, 60)}); code(err) != NoRoom {
		t.Errorf("blocks that somebody else can write to are shared: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
	eventually(t, "the blocks are nobody's", func() bool {
		s, err := r.table.Share(context.Background(), &Request{Provider: other.Name(), Tokens: prompt(3, 60)})
		if err != nil {
			return false
		}
		r.wait(s)
		_, err = r.adopt(s, prompt(3, 60))
		return err == nil
	})
	r.checkSlot(0, prompt(3, 60), 59)
}

// The deadlines of one exchange do not reach into the next one.
func TestIdle(t *testing.T) {
	defer func(h, s, c time.Duration) { helloTimeout, sendTimeout, cancelGrace = h, s, c }(helloTimeout, sendTimeout, cancelGrace)
	limit := 300 * time.Millisecond
	helloTimeout, sendTimeout, cancelGrace = limit, limit, limit
	r := newRig(t, nil)
	o := honest("cpu")
	o.Prefill = func(ctx context.Context, j *Job) error {
		if len(j.Tokens()) == 49 {
			<-ctx.Done() // until it is cancelled
		}
		return prefill(ctx, j)
	}
	p := r.provide(o, Policy{})
	for i := range 2 {
		r.handoff(p, 0, prompt(int32(i), 40))
		s := r.share(p, 1, prompt(int32(i), 50))
		if err := r.table.Release(1, s.ID); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has stopped", func() bool { return !p.Busy() })
		time.Sleep(limit + 50*time.Millisecond)
	}
	r.handoff(p, 0, prompt(3, 60))
}

func TestProcess(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Skipf("no process to look at: %v", err)
	}
	p, err := OpenProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if p.Gone() {
		t.Error("gone at the start")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	if !p.Gone() {
		t.Error("not gone when killed")
	}
	_ = cmd.Wait()
	if err := p.Kill(); err != nil {
		t.Errorf("killed twice: %v", err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := OpenProcess(cmd.Process.Pid); err == nil {
		t.Error("a process that has been waited for is opened")
	}
}
