package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"baton/internal/gguf"
	"baton/internal/kernel"
	"baton/internal/kv"
	"baton/internal/load"
	"baton/internal/model"
)

// microBatch is the tokens a step that a prompt is cut into, the server's default.
const microBatch = 512

// Worker is Baton's engine as a process of a measurement: a model, a pool of threads
// and KV blocks, no scheduler and no sampler, like the program it is compared with.
type Worker struct {
	bundle *load.Bundle
	pool   *kernel.Pool
	blocks *kv.Pool
	runner *model.Runner

	depth   int            // cells that each of held has
	held    []*kv.Sequence // what runs begin with
	weights [][]byte       // what one generated token reads, in pieces
	rng     uint64

	chunks []model.Chunk // of the running test
	ids    []int32
}

// WorkerOptions configure a Worker.
type WorkerOptions struct {
	Path    string // GGUF file; empty: the built-in model
	Threads int
	Ctx     int // the most cells of a sequence
	Seqs    int // the most sequences at once
}

// NewWorker loads a model. Close frees it.
func NewWorker(o WorkerOptions) (*Worker, error) {
	b, err := load.Open(o.Path)
	if err != nil {
		return nil, err
	}
	w := &Worker{bundle: b, rng: 0x9e3779b97f4a7c15}
	m := b.Model
	layout, err := kv.NewLayout(kv.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim})
	if err == nil {
		// What a run adds may begin in the middle of a held block, in one of its own.
		w.blocks, err = kv.NewPool(layout, kv.Options{MaxBlocks: (layout.BlocksFor(o.Ctx) + 2) * max(o.Seqs, 1)})
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	w.pool = kernel.NewPool(o.Threads)
	w.runner = model.NewRunner(m, w.pool, microBatch)
	w.weights = readPieces(b.File)
	return w, nil
}

// Close frees everything.
func (w *Worker) Close() error {
	w.drop()
	w.pool.Close()
	return errors.Join(w.blocks.Close(), w.bundle.Close())
}

func (w *Worker) drop() {
	for _, s := range w.held {
		s.Free()
	}
	w.held = w.held[:0]
}

// Serve answers commands until in ends.
func (w *Worker) Serve(in io.Reader, out io.Writer) error {
	size := 0
	for _, p := range w.weights {
		size += len(p)
	}
	fmt.Fprintf(out, "ready name=baton kernels=%s weights=%d cell=%d\n", kernel.Active(), size, w.blocks.Layout().CellBytes())
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		reply, err := w.answer(lines.Text())
		if err != nil {
			reply = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Fprintln(out, reply); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (w *Worker) answer(line string) (string, error) {
	if arg, ok := strings.CutPrefix(line, "read "); ok {
		depth, err := strconv.Atoi(arg)
		if err != nil {
			return "", fmt.Errorf("bench: command %q: %w", line, err)
		}
		bytes, d, err := w.Read(depth)
		return fmt.Sprintf("ok seconds=%.9f bytes=%d", d.Seconds(), bytes), err
	}
	t, err := parseTest(line)
	if err != nil {
		return "", err
	}
	d, allocs, err := w.Run(t)
	return fmt.Sprintf("ok seconds=%.9f allocs=%d", d.Seconds(), allocs), err
}

// Run runs a test once. It returns the time that the test's tokens took, without the
// cells before them, and the number of allocations meanwhile.
func (w *Worker) Run(t Test) (d time.Duration, allocs uint64, err error) {
	if err := w.fill(t.Depth, t.Seqs); err != nil {
		return 0, 0, err
	}
	seqs := make([]*kv.Sequence, t.Seqs)
	for i := range seqs {
		seqs[i] = w.held[i].Fork(t.Depth)
		defer seqs[i].Free()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	if t.Kind == "pp" {
		err = w.prompt(seqs[0], t.N)
	} else {
		err = w.generate(seqs, t.N)
	}
	d = time.Since(start)
	runtime.ReadMemStats(&after)
	return d, after.Mallocs - before.Mallocs, err
}

// fill makes n sequences of depth cells, unless they are there.
func (w *Worker) fill(depth, n int) error {
	if w.depth != depth {
		w.drop()
		w.depth = depth
	}
	for len(w.held) < n {
		s := w.blocks.NewSequence()
		w.held = append(w.held, s)
		if err := w.prompt(s, depth); err != nil {
			w.drop()
			return err
		}
	}
	return nil
}

// prompt appends n random tokens to s and computes the logits of the last.
func (w *Worker) prompt(s *kv.Sequence, n int) error {
	for n > 0 {
		k := min(n, w.runner.Max())
		n -= k
		w.chunks, w.ids = w.chunks[:0], w.ids[:0]
		if err := w.add(s, k, n == 0); err != nil {
			return err
		}
		if _, err := w.runner.Forward(w.chunks); err != nil {
			return err
		}
	}
	return nil
}

// generate appends n random tokens to every sequence, one a step.
func (w *Worker) generate(seqs []*kv.Sequence, n int) error {
	for range n {
		w.ids = w.ids[:0]
		w.chunks = w.chunks[:0]
		for _, s := range seqs {
			if err := w.add(s, 1, true); err != nil {
				return err
			}
		}
		if _, err := w.runner.Forward(w.chunks); err != nil {
			return err
		}
	}
	return nil
}

// add enters k random tokens of s into the next step.
func (w *Worker) add(s *kv.Sequence, k int, logits bool) error {
	first := len(w.ids)
	for range k {
		// xorshift64 (Marsaglia, 2003)
		w.rng ^= w.rng << 13
		w.rng ^= w.rng >> 7
		w.rng ^= w.rng << 17
		w.ids = append(w.ids, int32(w.rng>>33)%int32(w.bundle.Model.Vocab))
	}
	pos := s.Len()
	if err := s.Append(w.ids[first:]...); err != nil {
		return err
	}
	// The runs' memory stays with the chunk's place in the step.
	i := len(w.chunks)
	var runs []kv.Run
	if i < cap(w.chunks) {
		runs = w.chunks[:i+1][i].Runs[:0]
	}
	w.chunks = append(w.chunks, model.Chunk{Tokens: w.ids[first:len(w.ids):len(w.ids)], Pos0: pos, Runs: s.Runs(0, s.Len(), runs), Logits: logits})
	return nil
}

// Read reads once, with plain loads on all threads, what the generation of a token at
// that depth reads: the weights, and the K and V rows of the cells.
func (w *Worker) Read(depth int) (bytes int, d time.Duration, err error) {
	if err := w.fill(depth, 1); err != nil {
		return 0, 0, err
	}
	pieces := slices.Clone(w.weights)
	for _, r := range w.held[0].Runs(0, depth, nil) {
		for layer := range w.bundle.Model.Layers {
			pieces = append(pieces, bytesOf(r.K(layer)), bytesOf(r.V(layer)))
		}
	}
	start := time.Now()
	err = w.pool.Run(len(pieces), func(i, _ int) { kernel.ReadSum(pieces[i]) })
	d = time.Since(start)
	for _, p := range pieces {
		bytes += len(p)
	}
	return bytes, d, err
}

func bytesOf(x []uint16) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))
}

// readPieces is every tensor that a generated token reads, in pieces of some
// microseconds. Of an embedding that is not the output matrix too it reads one row.
func readPieces(f *gguf.File) (pieces [][]byte) {
	const most = 256 << 10
	_, untied := f.Tensor("output.weight")
	for _, t := range f.Tensors() {
		if untied && t.Name == "token_embd.weight" {
			continue
		}
		for d := t.Data; len(d) > 0; d = d[min(most, len(d)):] {
			pieces = append(pieces, d[:min(most, len(d))])
		}
	}
	return pieces
}
