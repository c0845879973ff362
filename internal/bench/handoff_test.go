package bench

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"baton/internal/handoff"
	"baton/internal/kv"
)

func TestLlamaTimes(t *testing.T) {
	// What llamapeer printed.
	const out = `prefill 250 tokens: 1.310 s (190.84 tok/s)
save 0: 28676700 bytes in 10.13 ms (2.83 GB/s), then fsync 22.01 ms
save 1: 28676700 bytes in 6.00 ms (4.78 GB/s)
in memory 0: 28676696 bytes, get_data 2.30 ms (12.47 GB/s), set_data 2.30 ms (12.47 GB/s)
original: next-token argmax 17 logit 1.5 checksum 2.0
load 0: 28676700 bytes, 250 tokens in 7.40 ms (3.88 GB/s), last position 249
load 1: 28676700 bytes, 250 tokens in 3.80 ms (7.55 GB/s), last position 249
`
	for word, want := range map[string][]float64{"save": {10.13, 6}, "load": {7.4, 3.8}, "sync": nil} {
		if diff := cmp.Diff(want, llamaTimes(out, word)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", word, diff)
		}
	}
}

func TestFirstEngineMap(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		bytes int64
		want  float64
	}{{0, 0}, {324 * mib, 20.3}, {648 * mib, 40.6}, {28672 * mib / 10, 150.4}} {
		if got := firstEngineMapMS(tt.bytes); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%d bytes: %g ms, want %g", tt.bytes, got, tt.want)
		}
	}
	if a, b := firstEngineMapMS(2867*mib), firstEngineMapMS(4096*mib); b <= a {
		t.Errorf("more takes less: %g and %g ms", a, b)
	}
}

func TestHandoffSummary(t *testing.T) {
	r := HandoffResult{Model: "m", Trust: handoff.Leased, Tokens: 251, Cells: 250, Bytes: 648 << 20, Blocks: 1, Reps: 3, Others: 0.5}
	r.summarize(map[string][]float64{
		stepHandoff: {0.5, 0.4, 0.6}, stepPeerLoad: {49, 50, 51}, stepRow: {11, 12, 10}, stepLocal: {10, 10, 10}, stepAdopt: {0.3}, stepMap: {8.12},
	})
	got := map[string]HandoffRatio{}
	for _, x := range r.Ratios {
		got[x.Name] = x
	}
	for _, want := range []HandoffRatio{
		{Name: "llama.cpp's restore / handoff", Value: 100, Met: true},
		{Name: "row to token / first, local", Value: 1.1, Met: true},
		{Name: "map / the first engine's", Value: 0.2, Met: false},
		{Name: "adopt, ms", Value: 0.3, Met: true},
	} {
		if g := got[want.Name]; math.Abs(g.Value-want.Value) > 1e-9 || g.Met != want.Met {
			t.Errorf("%s: %v, %v, want %v, %v", want.Name, g.Value, g.Met, want.Value, want.Met)
		}
	}
	if _, ok := got["Baton's restore / handoff"]; ok {
		t.Error("a ratio of what was not measured")
	}
	var out strings.Builder
	if err := WriteHandoffs(&out, []HandoffResult{r}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"250 cells of 648.0 MiB", "leased", "0.500", "0.400-0.600", "provisional"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestCopyRows(t *testing.T) {
	l, err := kv.NewLayout(kv.Config{Layers: 2, KVHeads: 1, HeadDim: 32, CellsPerBlock: 16})
	if err != nil {
		t.Fatal(err)
	}
	p, err := kv.NewPool(l, kv.Options{MaxBlocks: 12})
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	sequence := func() (*kv.Sequence, []kv.Run) {
		s := p.NewSequence()
		if err := s.Append(make([]int32, n)...); err != nil {
			t.Fatal(err)
		}
		return s, s.Runs(0, n, nil)
	}
	a, from := sequence()
	b, to := sequence()
	value := func(layer, pos, v int) uint16 { return uint16(layer<<12 | v<<8 | pos + 1) }
	row := func(runs []kv.Run, layer, pos int) (k, v []uint16) {
		for _, r := range runs {
			if pos < r.Len {
				return r.K(layer)[pos*l.RowElems:][:l.RowElems], r.V(layer)[pos*l.RowElems:][:l.RowElems]
			}
			pos -= r.Len
		}
		t.Fatal("no such row")
		return nil, nil
	}
	for layer := range l.Layers {
		for pos := range n {
			k, v := row(from, layer, pos)
			for i := range k {
				k[i], v[i] = value(layer, pos, 0), value(layer, pos, 1)
			}
		}
	}
	// Runs that are divided otherwise.
	divided := append([]kv.Run{{Block: from[0].Block, Cell: from[0].Cell, Len: 5}, {Block: from[0].Block, Cell: from[0].Cell + 5, Len: from[0].Len - 5}}, from[1:]...)
	copyRows(slices.Clone(to), divided, l.Layers)
	for layer := range l.Layers {
		for pos := range n {
			k, v := row(to, layer, pos)
			if k[0] != value(layer, pos, 0) || v[l.RowElems-1] != value(layer, pos, 1) {
				t.Fatalf("layer %d, position %d: %#x and %#x, want %#x and %#x", layer, pos, k[0], v[l.RowElems-1], value(layer, pos, 0), value(layer, pos, 1))
			}
		}
	}
	a.Free()
	b.Free()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestGaps(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms ...int) (list []time.Time) {
		for _, m := range ms {
			list = append(list, start.Add(time.Duration(m)*time.Millisecond))
		}
		return list
	}
	// The gaps open at 25 and at 100 count, those before and behind do not.
	got := gapsBetween(at(0, 10, 20, 40, 90, 120, 130), start.Add(25*time.Millisecond), start.Add(100*time.Millisecond))
	if diff := cmp.Diff([]float64{20, 50, 30}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, tt := range []struct {
		x       []float64
		q, want float64
	}{{hundred, 0.99, 99}, {hundred, 0.5, 50}, {hundred, 1, 100}, {[]float64{7}, 0.99, 7}, {[]float64{1, 2}, 0.5, 1}, {nil, 0.99, 0}} {
		if got := percentile(tt.x, tt.q); got != tt.want {
			t.Errorf("%g of %d values: %g, want %g", tt.q, len(tt.x), got, tt.want)
		}
	}
}

func TestPaceReport(t *testing.T) {
	idle, local, provider := PaceResult{Model: "m", Tokens: 900, Case: paceIdle}, PaceResult{Tokens: 900, Case: paceLocal}, PaceResult{Tokens: 900, Case: paceProvider}
	idle.summarize([]float64{2, 2, 4}, 1)
	local.summarize([]float64{30, 40}, 1)
	provider.DecoderCPU, provider.ProviderCPU = 2, 1
	provider.summarize([]float64{2, 3, 8}, 2)
	var out strings.Builder
	if err := WritePace(&out, []PaceResult{idle, local, provider}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"provider / local: 0.20", "provider / idle: 2.00", "1.00", "0.50"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
