package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"baton/internal/gguf"
	"baton/internal/gguf/gguftest"
	"baton/internal/handoff"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/load"
	"baton/internal/model"
	"baton/internal/quant"
)

// What these tests look at lies outside the two processes: the kernel's account of their
// memory. Nothing that Baton says about itself counts.

// frames are the numbers of the page frames behind pages of a process, 0 for none
// (Linux' Documentation/admin-guide/mm/pagemap.rst). Only root sees them.
func frames(t *testing.T, pid int, from, to uint64) []uint64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := uint64(os.Getpagesize())
	entries := make([]byte, (to-from)/page*8)
	if _, err := f.ReadAt(entries, int64(from/page*8)); err != nil {
		t.Fatal(err)
	}
	list := make([]uint64, len(entries)/8)
	for i := range list {
		const present, frame = 1 << 63, 1<<55 - 1
		if e := binary.LittleEndian.Uint64(entries[i*8:]); e&present != 0 {
			list[i] = e & frame
		}
	}
	return list
}

// The decoder attends to the very page frames that the provider has written to: there is
// one memory, mapped twice.
func TestSamePageFrames(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root is told the numbers of page frames")
	}
	p := startLoneDecoder(t, "attached")
	p.startProvider(t) // keeps its mapping
	prompt := goldenPrompts(t)[3]
	if len(prompt.Tokens) < 1000 {
		t.Fatalf("a prompt of %d tokens, want a long one", len(prompt.Tokens))
	}
	share := p.handOver(t, prompt.Tokens)
	if o := p.answer(t, prompt.Tokens, 4); o.num("timings", "prompt_n") != 1 {
		t.Fatalf("the decoder processed the prompt: %v", o["timings"])
	}
	l := share.Layout
	size := uint64(l.VOffsets[l.Layers-1] + l.Cells*l.VRowBytes) // up to the end of the last row

	decoder, err := mappings(p.pid())
	if err != nil {
		t.Fatal(err)
	}
	provider, err := mappings(p.provider.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	adopted, page := 0, uint64(os.Getpagesize())
	for _, w := range provider {
		if !w.kv() {
			continue
		}
		var r []vma
		for _, m := range decoder {
			if m.inode == w.inode && m.path == w.path {
				r = append(r, m)
			}
		}
		// One mapping in the decoder, so that is what attention reads.
		if len(r) != 1 || r[0].writable() || !w.writable() || r[0].offset != 0 || w.offset != 0 {
			t.Fatalf("a block is mapped in the provider as %+v, in the decoder as %+v; want one each, writable there only", w, r)
		}
		adopted++
		pages := (size + page - 1) / page * page
		theirs := frames(t, p.provider.cmd.Process.Pid, w.start, w.start+pages)
		ours := frames(t, p.pid(), r[0].start, r[0].start+pages)
		if len(theirs) == 0 || slices.Contains(theirs, 0) {
			t.Errorf("block %d: the provider has no page in some places", w.inode)
		}
		if !slices.Equal(theirs, ours) {
			t.Errorf("block %d: the frames of its %d pages differ", w.inode, len(theirs))
		}
	}
	if adopted == 0 || adopted != len(share.Regions) {
		t.Errorf("%d blocks are mapped in both processes, %d were shared", adopted, len(share.Regions))
	}
	t.Logf("%d blocks of %d pages", adopted, size/page)
}

// wideModel is a model whose cells are large, 256 KiB, and whose weights are small.
func wideModel(t *testing.T) string {
	t.Helper()
	const layers, heads, headDim, embd, ff, ctx = 16, 32, 128, 32, 64, 4096
	tiny, err := gguf.Parse(gguftest.Bytes(gguftest.Tiny()), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	b := gguf.NewBuilder()
	for _, key := range tiny.Keys() {
		if v, ok := tiny.Value(key); ok {
			b.Set(key, v)
		}
	}
	for key, v := range map[string]uint32{
		"block_count": layers, "context_length": ctx, "attention.head_count": heads, "attention.head_count_kv": heads,
		"attention.key_length": headDim, "attention.value_length": headDim, "rope.dimension_count": headDim,
	} {
		b.SetUint32("llama."+key, v)
	}
	rng := rand.New(rand.NewPCG(1, 3))
	add := func(name string, dims ...uint64) {
		data := make([]byte, 0, 4*gguf.Tensor{Dims: dims}.Elems())
		for range cap(data) / 4 {
			x := float32(rng.NormFloat64() / math.Sqrt(float64(dims[0])))
			if len(dims) == 1 {
				x = 1 // the norms
			}
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		b.AddTensor(name, quant.F32, dims, data)
	}
	add("token_embd.weight", embd, gguftest.TinyVocab)
	for i := range layers {
		blk := fmt.Sprintf("blk.%d.", i)
		add(blk+"attn_norm.weight", embd)
		add(blk+"attn_q.weight", embd, heads*headDim)
		add(blk+"attn_k.weight", embd, heads*headDim)
		add(blk+"attn_v.weight", embd, heads*headDim)
		add(blk+"attn_output.weight", heads*headDim, embd)
		add(blk+"ffn_norm.weight", embd)
		add(blk+"ffn_gate.weight", embd, ff)
		add(blk+"ffn_up.weight", embd, ff)
		add(blk+"ffn_down.weight", ff, embd)
	}
	add("output_norm.weight", embd)
	path := filepath.Join(t.TempDir(), "wide.gguf")
	if err := os.WriteFile(path, gguftest.Bytes(b), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// All that the decoder can write to is smaller than the cells that were handed to it,
// before, during and after a handoff: there is no place where a copy of them could be.
func TestNoRoomForACopy(t *testing.T) {
	path := wideModel(t)
	const n, cell = 800, 16 * 2 * 32 * 128 * 2
	p := startLoneDecoder(t, "leased", "-m", path, "-c", "1024", "-np", "1", "-ub", "64")
	p.startProvider(t, "-m", path)
	prompt := make([]int32, n)
	for i := range prompt {
		prompt[i] = int32(i * 7 % 256)
	}

	var most, shared int64
	var samples int
	var failed error
	stop := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		for {
			list, err := mappings(p.pid())
			if err != nil {
				failed = err
				return
			}
			var can, cannot int64
			for _, m := range list {
				switch {
				case m.writable():
					can += m.bytes["Rss"]
				case m.kv():
					cannot += m.bytes["Rss"]
				default: // what it has written to and can no more
					can += m.bytes["Private_Dirty"] + m.bytes["Shared_Dirty"]
				}
			}
			most, shared, samples = max(most, can), max(shared, cannot), samples+1
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond): // reading it holds the decoder up
			}
		}
	})
	p.handOver(t, prompt)
	o := p.answer(t, prompt, 16)
	close(stop)
	sampling.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	if o.num("timings", "prompt_n") != 1 {
		t.Fatalf("the decoder processed the prompt: %v", o["timings"])
	}
	const handed = (n - 1) * cell
	t.Logf("%d MiB of cells; writable at most %d MiB, read only blocks %d MiB; %d samples", handed>>20, most>>20, shared>>20, samples)
	if most >= handed {
		t.Errorf("the decoder had %d bytes of writable memory, the cells are %d: a copy of them could be there", most, handed)
	}
	if shared < handed {
		t.Errorf("the decoder had %d bytes of read-only blocks, the cells are %d: they must be somewhere", shared, handed)
	}
	if samples < 5 {
		t.Errorf("only %d samples", samples)
	}
}

// In attached mode the provider's mapping stays. A row that is changed through it after
// the cells were adopted changes the logits: attention reads that memory.
func TestAttachedRowsAreRead(t *testing.T) {
	p := startLoneDecoder(t, "attached", "-np", "1")
	rows := attachProvider(t, p)
	prompt := goldenPrompts(t)[2].Tokens
	p.handOver(t, prompt)
	logits := func() string {
		o := p.answer(t, prompt, 1)
		if o.num("timings", "prompt_n") != 1 {
			t.Fatalf("the decoder processed the prompt: %v", o["timings"])
		}
		b, err := json.Marshal(o["completion_probabilities"])
		if err != nil || len(b) < 20 {
			t.Fatalf("no probabilities: %s, %v", b, err)
		}
		return string(b)
	}
	before := logits()
	if again := logits(); again != before {
		t.Fatalf("the same request twice: %s and %s", before, again)
	}
	run := rows()[len(rows())-1]
	width := run.Block.Layout().RowElems
	row := run.V(3)[(run.Len-1)*width:][:width]
	kept := slices.Clone(row)
	for i := range row {
		row[i] = 0x4400 // 4.0 in f16
	}
	if changed := logits(); changed == before {
		t.Error("a row was changed, the logits are as before")
	}
	copy(row, kept)
	if after := logits(); after != before {
		t.Errorf("the row was changed back: %s, before %s", after, before)
	}
}

// attachProvider makes this process a provider of the decoder that keeps its mappings.
// The function returned gives the cells of the last order.
func attachProvider(t *testing.T, p *pair) (rows func() []kv.Run) {
	t.Helper()
	b, err := load.Open("")
	if err != nil {
		t.Fatal(err)
	}
	params, err := b.Model.HandoffParams()
	if err != nil {
		t.Fatal(err)
	}
	layout, err := kv.NewLayout(kv.Config{Layers: b.Model.Layers, KVHeads: b.Model.KVHeads, HeadDim: b.Model.HeadDim})
	if err != nil {
		t.Fatal(err)
	}
	pool := kernel.NewPool(1)
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.providerSocket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var mu sync.Mutex
	var last []kv.Run
	go func() {
		ended <- handoff.Provide(ctx, c, handoff.ProviderOptions{
			Name: "cpu", Trust: []handoff.Trust{handoff.Attached},
			Accept: func(*handoff.Welcome) (*kv.Layout, map[string]string, error) { return layout, params, nil },
			Prefill: func(_ context.Context, j *handoff.Job) error {
				tokens := j.Tokens()
				mu.Lock()
				last = j.Runs(0, len(tokens), nil)
				mu.Unlock()
				runner := model.NewRunner(b.Model, pool, len(tokens))
				if _, err := runner.Forward([]model.Chunk{{Tokens: tokens, Runs: j.Runs(0, len(tokens), nil)}}); err != nil {
					return err
				}
				return j.Advance(len(tokens))
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("provider: %v", err)
		}
		pool.Close()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return func() []kv.Run {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// Decoder and provider have the weights once: together they take hardly more memory than
// one of them, cells aside.
func TestWeightsOnce(t *testing.T) {
	// A copy, as other processes that have the file would be charged for a part of it.
	whole, err := os.ReadFile(rigModel(t, "q06-Q4_K_M.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	prompt := make([]int32, 200)
	for i := range prompt {
		prompt[i] = int32(1000 + i*37%5000)
	}
	p := startLoneDecoder(t, "leased", "-m", path, "-c", "2048", "-np", "1")
	p.answer(t, prompt, 4) // touches all weights
	alone := pss(t, p.pid())
	p.startProvider(t, "-m", path)
	prompt[0]++ // not in the cache
	p.handOver(t, prompt)
	p.answer(t, prompt, 4)
	decoder, provider := pss(t, p.pid()), pss(t, p.provider.cmd.Process.Pid)
	t.Logf("alone %d MiB, together %d + %d MiB: %.3f", alone>>20, decoder>>20, provider>>20, float64(decoder+provider)/float64(alone))
	if float64(decoder+provider) > 1.15*float64(alone) {
		t.Errorf("decoder and provider take %d and %d bytes, a decoder alone %d: more than 1.15 times", decoder, provider, alone)
	}
}

// pss is the proportional set size of a process, the cache's blocks aside: of a page that
// k processes have, each is charged the k-th part.
func pss(t *testing.T, pid int) (n int64) {
	t.Helper()
	list, err := mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if !m.kv() {
			n += m.bytes["Pss"]
		}
	}
	return n
}

// rigModel is one of the models that peers/llama/bench.sh makes. Without it the test is
// skipped.
func rigModel(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("PEER")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Skip(err)
		}
		dir = filepath.Join(home, ".cache", "baton-peer")
	}
	path := filepath.Join(dir, "models", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("needs the model that peers/llama/bench.sh makes: %v", err)
	}
	return path
}
