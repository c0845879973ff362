package kv

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"baton/internal/shm"
)

func TestPoolRefuses(t *testing.T) {
	checkLeaks(t)
	l := tiny(t)
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"nothing":      {Options{}, "not enough for one block"},
		"negative":     {Options{MaxBlocks: -1}, "pool of -1 blocks"},
		"few bytes":    {Options{MaxBytes: int64(l.BlockBytes) - 1}, "2097151 bytes: not enough for one block of 2097152"},
		"minus bytes":  {Options{MaxBytes: -1, MaxBlocks: 4}, "not enough"},
		"beyond sense": {Options{MaxBlocks: math.MaxInt32 - spareFiles}, "pool of"},
	} {
		if p, err := NewPool(l, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", name, p, err, c.want)
		}
	}
	// Every pool of the last kind is refused by one of two limits.
	_, err := NewPool(l, Options{MaxBlocks: math.MaxInt32 - spareFiles})
	var files *shm.FileLimitError
	if !errors.As(err, &files) && !strings.Contains(err.Error(), "control group") {
		t.Error(err)
	}
}

func TestPoolMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		blocks  int
		limit   int64
		limited bool
		ok      bool
	}{{10, 20 << 20, true, true}, {11, 20 << 20, true, false}, {11, 0, false, true}, {1, 0, true, false}} {
		err := checkMemory(c.blocks, 2<<20, c.limit, c.limited)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if c.blocks == 11 && c.limited && !strings.Contains(err.Error(), "11 blocks needs 22 MiB, the control group of this process allows 20 MiB") {
			t.Error(err)
		}
	}
}

func TestPoolLimitInBytes(t *testing.T) {
	l := tiny(t)
	for _, c := range []struct {
		o    Options
		want int
	}{
		{Options{MaxBytes: 3*int64(l.BlockBytes) + 5}, 3},
		{Options{MaxBytes: 3 * int64(l.BlockBytes), MaxBlocks: 2}, 2},
		{Options{MaxBytes: 2 * int64(l.BlockBytes), MaxBlocks: 3}, 2},
	} {
		if got := newPool(t, l, c.o).Stats().Limit; got != c.want {
			t.Errorf("%+v: %d blocks, want %d", c.o, got, c.want)
		}
	}
}

func TestNoRoom(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, mustLayout(t, Config{Layers: 28, KVHeads: 8, HeadDim: 128}), Options{MaxBlocks: 2})
	a, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Alloc()
	if !errors.Is(err, ErrNoRoom) {
		t.Fatalf("third block of two: %v", err)
	}
	const want = "kv: no room: 2 of 2 blocks in use (56 of 56 MiB), want 1 more: wait for a running request to end, or start with a larger cache"
	if err.Error() != want {
		t.Errorf("%q\nwant %q", err, want)
	}
	s := p.NewSequence()
	if err := s.Append(1); !errors.Is(err, ErrNoRoom) || s.Len() != 0 {
		t.Errorf("append without room: %v, length %d", err, s.Len())
	}
	b.Release()
	if err := s.Reserve(257); !errors.Is(err, ErrNoRoom) || p.Stats().Used != 1 {
		t.Errorf("reserving two blocks of one: %v, %+v", err, p.Stats())
	}
	if err := s.Append(1); err != nil {
		t.Error(err)
	}
	s.Free()
	a.Release()
}

// The last freed block is the first to be used again: its pages are warm.
func TestPoolReuses(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 3})
	var blocks []*Block
	for range 3 {
		b, err := p.Alloc()
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		b.Freeze()
		b.Release()
	}
	b, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	if b != blocks[2] || b.frozen {
		t.Error("not the block that was freed last, thawed")
	}
	b.Release()
	if st := p.Stats(); st.Made != 3 || st.Reused != 1 || st.Blocks != 3 || st.Free != 3 || st.Bytes != 6<<20 || st.LimitBytes != 6<<20 {
		t.Errorf("%+v", st)
	}
}

func TestBlockMemory(t *testing.T) {
	checkLeaks(t)
	l := tiny(t)
	p := newPool(t, l, Options{MaxBlocks: 1})
	b, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	// The views lie where the layout says, seen through another mapping.
	for i := range l.Layers {
		if len(b.K(i)) != 32 || len(b.V(i)) != 32 {
			t.Fatalf("layer %d: %d and %d elements, want 8 cells of 4", i, len(b.K(i)), len(b.V(i)))
		}
		b.K(i)[0], b.K(i)[31] = 0x0101, 0x0202
		b.V(i)[0], b.V(i)[31] = 0x0303, 0x0404
	}
	m, err := b.Object().Map(shm.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	data := m.Bytes()
	for i := range l.Layers {
		for at, want := range map[int]byte{l.KOffset[i]: 1, l.KOffset[i] + 62: 2, l.VOffset[i]: 3, l.VOffset[i] + 62: 4} {
			if data[at] != want || data[at+1] != want {
				t.Errorf("layer %d: bytes at %d are %d %d, want %d", i, at, data[at], data[at+1], want)
			}
		}
	}
	if err := m.Unmap(); err != nil {
		t.Error(err)
	}
	if b.Layout() != l || p.Layout() != l || b.Object().Size() != l.BlockBytes {
		t.Error("layout or size differ")
	}
}

func TestPoolClose(t *testing.T) {
	checkLeaks(t)
	p, err := NewPool(tiny(t), Options{MaxBlocks: 4, Ready: 2})
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "1 blocks are in use") {
		t.Errorf("close with a block in use: %v", err)
	}
	b.K(0)[0] = 1 // still there
	b.Release()
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := p.Alloc(); err == nil || errors.Is(err, ErrNoRoom) {
		t.Errorf("alloc after close: %v", err)
	}
}

// When the system has no memory for a block, the error says so and nothing is lost.
func TestNewBlockFails(t *testing.T) {
	checkLeaks(t)
	l := tiny(t)
	p := newPool(t, l, Options{MaxBlocks: 3})
	first, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	first.Release()
	good := l.BlockBytes
	l.BlockBytes = -1 // what memfd refuses
	if _, err := p.alloc(2); err == nil || errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "kv: new block: shm: ") {
		t.Errorf("%v", err)
	}
	l.BlockBytes, l.DataBytes = good, good+1 // what populating refuses
	if _, err := p.alloc(2); err == nil || !strings.Contains(err.Error(), "populate") {
		t.Errorf("%v", err)
	}
	l.DataBytes = good
	if st := p.Stats(); st.Used != 0 || st.Free != 1 || st.Blocks != 1 {
		t.Errorf("%+v", st)
	}
	b, err := p.alloc(3)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	for _, b := range b {
		p.dropHolder(b)
	}
	p.mu.Unlock()
}

// await polls for what the background goroutine does.
func await(t *testing.T, p *Pool, what string, done func(Stats) bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(p.Stats()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %+v", what, p.Stats())
		}
	}
}

func TestPoolKeepsReady(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 4, Ready: 2})
	await(t, p, "two at the start", func(s Stats) bool { return s.Free == 2 })
	var got []*Block
	for i := range 4 {
		b, err := p.Alloc()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b)
		want := min(2, 4-(i+1))
		await(t, p, "refill", func(s Stats) bool { return s.Free == want })
	}
	if st := p.Stats(); st.Blocks != 4 {
		t.Errorf("%+v", st)
	}
	for _, b := range got {
		b.Release()
	}
}

func TestPoolCollapses(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 2, Ready: 1, Collapse: true})
	b, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	b.K(0)[3] = 42
	b.Release()
	await(t, p, "collapse", func(Stats) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return b.whole
	})
	again, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	if again != b || b.K(0)[3] != 42 {
		t.Error("collapsing changed the contents")
	}
	again.Release()
}

// Stats and Release come from other goroutines while the step loop works; with -race
// this shows that they may.
func TestPoolConcurrentUse(t *testing.T) {
	checkLeaks(t)
	p := newPool(t, tiny(t), Options{MaxBlocks: 16, Ready: 2, Collapse: true})
	x := NewIndex(p)
	stop := make(chan struct{})
	release := make(chan *Block, 4)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if st := p.Stats(); st.Used+st.Cached+st.Free > st.Blocks || st.Blocks > st.Limit {
					t.Errorf("%+v", st)
				}
				x.Stats()
			}
		}
	})
	wg.Go(func() {
		for b := range release {
			b.Release()
		}
	})
	for i := range 200 {
		b, err := p.Alloc()
		if err != nil {
			t.Fatal(err)
		}
		release <- b
		prompt := tokens(int32(i%7), 20)
		s, _ := x.Attach(prompt, 19)
		mustAppend(t, s, prompt[s.Len():]...)
		checkRows(t, s)
		x.Insert(s)
		s.Free()
	}
	close(release)
	close(stop)
	wg.Wait()
}

// A count that goes out of step is a bug of ours: it panics while checks are on, and is
// counted, without an effect, while they are off.
func TestFault(t *testing.T) {
	checkLeaks(t)
	p, err := NewPool(tiny(t), Options{MaxBlocks: 2})
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		b.Release()
	}()
	p.verify = false
	b.Release()
	p.mu.Lock()
	p.dropHolder(b)
	p.dropNode(b)
	p.mu.Unlock()
	if st := p.Stats(); st.Faults != 4 || st.Free != 1 || st.Used != 0 || st.Cached != 0 {
		t.Errorf("%+v", st)
	}
	if err := p.Verify(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
