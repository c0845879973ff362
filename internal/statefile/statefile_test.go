package statefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"baton/internal/kv"
)

func TestMain(m *testing.M) {
	os.Setenv("BATON_VERIFY", "1") // the pool checks its invariants
	goleak.VerifyTestMain(m)
}

const (
	testVocab = 1000
	testModel = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	elsewhere = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
)

// newPool makes a pool of tiny cells: 2 layers, rows of 8 elements.
func newPool(t testing.TB, cellsPerBlock int) *kv.Pool {
	t.Helper()
	l, err := kv.NewLayout(kv.Config{Layers: 2, KVHeads: 2, HeadDim: 4, CellsPerBlock: cellsPerBlock})
	if err != nil {
		t.Fatal(err)
	}
	p, err := kv.NewPool(l, kv.Options{MaxBlocks: 32})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// newSequence makes a sequence of n tokens whose rows are random.
func newSequence(t testing.TB, p *kv.Pool, n int, seed uint64) *kv.Sequence {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	s := p.NewSequence()
	t.Cleanup(s.Free)
	for range n {
		if err := s.Append(int32(r.IntN(testVocab))); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range s.Runs(0, n, nil) {
		for layer := range p.Layout().Layers {
			for _, rows := range [][]uint16{run.K(layer), run.V(layer)} {
				for i := range rows {
					rows[i] = uint16(r.Uint32())
				}
			}
		}
	}
	return s
}

func stateOf(p *kv.Pool, s *kv.Sequence) State {
	return State{Layout: p.Layout(), Tokens: s.Tokens(), Runs: s.Runs(0, s.Len(), nil)}
}

// dump is the cells of a sequence: by layer, the K rows and the V rows of all tokens.
func dump(p *kv.Pool, s *kv.Sequence) (k, v [][]uint16) {
	for layer := range p.Layout().Layers {
		var kr, vr []uint16
		for _, run := range s.Runs(0, s.Len(), nil) {
			kr, vr = append(kr, run.K(layer)...), append(vr, run.V(layer)...)
		}
		k, v = append(k, kr), append(v, vr)
	}
	return k, v
}

func sameCells(t *testing.T, p *kv.Pool, got *kv.Sequence, q *kv.Pool, want *kv.Sequence) {
	t.Helper()
	if diff := cmp.Diff(want.Tokens(), got.Tokens()); diff != "" {
		t.Errorf("tokens differ (-want +got):\n%s", diff)
	}
	gk, gv := dump(p, got)
	wk, wv := dump(q, want)
	if diff := cmp.Diff(wk, gk); diff != "" {
		t.Errorf("K rows differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wv, gv); diff != "" {
		t.Errorf("V rows differ (-want +got):\n%s", diff)
	}
}

func newStore(t testing.TB) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	return openStore(t, dir), dir
}

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// mustSave saves a sequence under a name.
func mustSave(t testing.TB, st *Store, name string, p *kv.Pool, s *kv.Sequence) Info {
	t.Helper()
	info, err := st.Save(t.Context(), name, testModel, stateOf(p, s))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// restore restores a file into a new sequence.
func restore(t testing.TB, st *Store, name string, p *kv.Pool) (*kv.Sequence, Info, error) {
	t.Helper()
	s := p.NewSequence()
	t.Cleanup(s.Free)
	info, err := st.Restore(t.Context(), name, fitOf(p), placeIn(s))
	return s, info, err
}

func fitOf(p *kv.Pool) Fit {
	return Fit{Layout: p.Layout(), Vocab: testVocab, MaxTokens: 64, Model: testModel}
}

func placeIn(s *kv.Sequence) func([]int32) ([]kv.Run, error) {
	return func(tokens []int32) ([]kv.Run, error) {
		if err := s.Append(tokens...); err != nil {
			return nil, err
		}
		return s.Runs(0, s.Len(), nil), nil
	}
}

// variant says how the reference encoder below writes a file.
type variant struct {
	streams int   // in all; 0: 1
	stream  int   // the one with the cells
	order   []int // positions in the order of the cells; nil: ascending
	packed  bool  // llama-server's list of tokens
	vTrans  bool
	seqID   int32
}

// encode writes a state file as STATE v3 of llama.cpp has it, field by field.
func (c variant) encode(p *kv.Pool, s *kv.Sequence) []byte {
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.LittleEndian, v) // to a buffer, of fixed sizes
		}
	}
	n := s.Len()
	order := c.order
	if order == nil {
		for i := range n {
			order = append(order, i)
		}
	}
	put([]byte("qsgg"), uint32(3))
	if c.packed {
		put(uint32(n+4), int32(-1), uint32(1), uint32(n), s.Tokens(), uint32(0))
	} else {
		put(uint32(n), s.Tokens())
	}
	streams := max(c.streams, 1)
	put(uint32(streams))
	k, v := dump(p, s)
	e := p.Layout().RowElems
	for stream := range streams {
		if stream != c.stream {
			put(uint32(0))
			continue
		}
		put(uint32(n))
		for _, pos := range order {
			put(int32(pos), uint32(1), c.seqID)
		}
		trans := uint32(0)
		if c.vTrans {
			trans = 1
		}
		put(trans, uint32(len(k)))
		for _, rows := range k {
			put(int32(1), uint64(2*e))
			for _, pos := range order {
				put(rows[pos*e : (pos+1)*e])
			}
		}
		for _, rows := range v {
			if !c.vTrans {
				put(int32(1), uint64(2*e))
				for _, pos := range order {
					put(rows[pos*e : (pos+1)*e])
				}
				continue
			}
			put(int32(1), uint32(2), uint32(e))
			for i := range e {
				for _, pos := range order {
					put(rows[pos*e+i])
				}
			}
		}
	}
	return b.Bytes()
}

func TestSaveWritesTheFormat(t *testing.T) {
	for _, n := range []int{1, 7, 8, 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			p := newPool(t, 8)
			s := newSequence(t, p, n, 1)
			st, dir := newStore(t)
			info := mustSave(t, st, "a", p, s)
			got, err := os.ReadFile(filepath.Join(dir, "a"))
			if err != nil {
				t.Fatal(err)
			}
			want := variant{}.encode(p, s)
			if !bytes.Equal(got, want) {
				t.Errorf("file:\n%x\nwant:\n%x", got, want)
			}
			if info.Tokens != n || info.Bytes != int64(len(want)) || info.Copied != int64(n*2*2*8*2) || !info.Verified {
				t.Errorf("info %+v", info)
			}
			sum, err := os.ReadFile(filepath.Join(dir, "a.sum"))
			if err != nil {
				t.Fatal(err)
			}
			wantSum := fmt.Sprintf("baton state sum 1\n%x %d %d %s\n", sha256.Sum256(want), len(want), n, testModel)
			if string(sum) != wantSum {
				t.Errorf("sum %q, want %q", sum, wantSum)
			}
			if names := list(t, dir); !slices.Equal(names, []string{"a", "a.sum"}) {
				t.Errorf("directory has %q", names)
			}
			f, err := os.Stat(filepath.Join(dir, "a"))
			if err != nil || f.Mode() != 0o600 {
				t.Errorf("mode %v, %v", f.Mode(), err)
			}
		})
	}
}

func list(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A restored sequence has the cells of the saved one, also where blocks are of another
// size.
func TestRoundTrip(t *testing.T) {
	p := newPool(t, 8)
	for _, n := range []int{1, 8, 30} {
		s := newSequence(t, p, n, uint64(n))
		st, _ := newStore(t)
		mustSave(t, st, "a", p, s)
		for _, cells := range []int{4, 8, 32} {
			q := newPool(t, cells)
			got, info, err := restore(t, st, "a", q)
			if err != nil {
				t.Fatal(err)
			}
			sameCells(t, q, got, p, s)
			if !info.Verified || info.Warning != "" || info.Tokens != n || info.Copied != rowBytes(p.Layout(), n) {
				t.Errorf("info %+v", info)
			}
		}
	}
}

// Every form that llama.cpp writes is restored, though nobody vouches for it.
func TestRestoreForeign(t *testing.T) {
	p := newPool(t, 8)
	s := newSequence(t, p, 20, 1)
	shuffled := rand.New(rand.NewPCG(5, 5)).Perm(20)
	wrapped := slices.Concat(seq(12, 20), seq(0, 12))
	for name, c := range map[string]variant{
		"plain":             {seqID: 3},
		"packed":            {packed: true},
		"streams":           {streams: 4, stream: 2},
		"last stream":       {streams: 3, stream: 2},
		"wrapped":           {order: wrapped},
		"shuffled":          {order: shuffled},
		"v_trans":           {vTrans: true},
		"v_trans, shuffled": {vTrans: true, order: shuffled, packed: true, streams: 2},
	} {
		t.Run(name, func(t *testing.T) {
			st, dir := newStore(t)
			put(t, dir, "a", c.encode(p, s))
			q := newPool(t, 8)
			got, info, err := restore(t, st, "a", q)
			if err != nil {
				t.Fatal(err)
			}
			sameCells(t, q, got, p, s)
			want := rowBytes(p.Layout(), 20)
			if c.vTrans {
				want += want / 2
			}
			if info.Verified || !strings.Contains(info.Warning, "no checksum") || info.Copied != want {
				t.Errorf("info %+v, want %d bytes moved", info, want)
			}
		})
	}
}

func seq(from, to int) (list []int) {
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}

func put(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file or sum of which one bit is flipped, or the end is missing, is refused, and the
// sequences of the cache are as they were.
func TestDamage(t *testing.T) {
	p := newPool(t, 8)
	live := newSequence(t, p, 5, 1)
	st, dir := newStore(t)
	mustSave(t, st, "a", p, live)
	before, beforeV := dump(p, live)
	blocks := p.Stats().Used
	try := func(what string) {
		t.Helper()
		s := p.NewSequence()
		_, err := st.Restore(t.Context(), "a", fitOf(p), placeIn(s))
		s.Free()
		if e := (*Error)(nil); !errors.As(err, &e) || e.Name != "a" {
			t.Errorf("%s: error %v, want one about the file", what, err)
		}
	}
	for _, name := range []string{"a", "a.sum"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for i := range data {
			put(t, dir, name, data[:i])
			try(fmt.Sprintf("%s cut to %d bytes", name, i))
			for _, bit := range []byte{1, 0x80} {
				changed := slices.Clone(data)
				changed[i] ^= bit
				put(t, dir, name, changed)
				try(fmt.Sprintf("%s with byte %d flipped", name, i))
			}
		}
		put(t, dir, name, append(slices.Clone(data), 0))
		try(name + " with a byte more")
		put(t, dir, name, data)
	}
	k, v := dump(p, live)
	if !cmp.Equal(k, before) || !cmp.Equal(v, beforeV) || p.Stats().Used != blocks {
		t.Error("the live sequence has changed")
	}
	if _, _, err := restore(t, st, "a", p); err != nil {
		t.Errorf("the undamaged file: %v", err)
	}
}

// Without a sum, whatever the format itself says is checked, by name.
func TestRefusals(t *testing.T) {
	p := newPool(t, 8)
	s := newSequence(t, p, 5, 1)
	// Offsets in a file of 5 plain tokens.
	const (
		tokens   = 12
		nStream  = tokens + 4*5
		nCells   = nStream + 4
		cells    = nCells + 4
		vTrans   = cells + 12*5
		nLayer   = vTrans + 4
		firstK   = nLayer + 4
		secondK  = firstK + 12 + 5*16
		firstV   = secondK + 12 + 5*16
		endOfRow = firstV + 2*(12+5*16)
	)
	plain, packed, trans := variant{}, variant{packed: true}, variant{vTrans: true}
	word := func(at int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[at:], v)
			return b
		}
	}
	for _, c := range []struct {
		name   string
		from   variant
		change func([]byte) []byte
		kind   Kind
		field  string
	}{
		{"empty", plain, func([]byte) []byte { return nil }, Damaged, "magic"},
		{"magic", plain, word(0, 0x6767736e), Damaged, "magic"},
		{"version", plain, word(4, 2), Damaged, "version"},
		{"no tokens", plain, word(8, 0), Damaged, "n_tokens"},
		{"too many tokens", plain, word(8, 65), TooLong, "n_tokens"},
		{"2^32 tokens", plain, word(8, 1<<32-1), TooLong, "n_tokens"},
		{"negative token", plain, word(tokens+4, 1<<32-2), Unfit, "token 1"},
		{"token of another vocabulary", plain, word(tokens+8, testVocab), Unfit, "token 2"},
		{"packed version", packed, word(tokens+4, 2), Damaged, "packed tokens: version"},
		{"packed count", packed, word(tokens+8, 6), Damaged, "packed tokens: count"},
		{"packed media", packed, word(tokens+12+4*5, 1), Unfit, "packed tokens: media count"},
		{"packed short", plain, word(tokens, 1<<32-1), Damaged, "packed tokens: version"},
		{"no stream", plain, word(nStream, 0), Damaged, "n_stream"},
		{"many streams", plain, word(nStream, 1<<32-1), Damaged, "n_stream"},
		{"a stream more", plain, word(nStream, 2), Damaged, "cell_count of another stream"},
		{"cells of another count", plain, word(nCells, 4), Damaged, "cell_count"},
		{"no cells", plain, word(nCells, 0), Damaged, "cell_count"},
		{"position twice", plain, word(cells+12, 0), Damaged, "cell 1: pos"},
		{"position too high", plain, word(cells+24, 5), Damaged, "cell 2: pos"},
		{"position negative", plain, word(cells, 1<<32-1), Damaged, "cell 0: pos"},
		{"shared cell", plain, word(cells+4, 2), Damaged, "cell 0: n_seq"},
		{"v_trans", plain, word(vTrans, 2), Damaged, "v_trans"},
		{"v_trans of a plain file", plain, word(vTrans, 1), Unfit, "v block of layer 0: el_size"},
		{"layers", plain, word(nLayer, 3), Unfit, "n_layer"},
		{"k type", plain, word(firstK, 8), Unfit, "k block of layer 0: type"},
		{"k row size", plain, word(firstK+4, 32), Unfit, "k block of layer 0: row_size"},
		{"k row size beyond 32 bits", plain, word(firstK+8, 1), Unfit, "k block of layer 0: row_size"},
		{"k type of the second layer", plain, word(secondK, 0), Unfit, "k block of layer 1: type"},
		{"v type", plain, word(firstV, 2), Unfit, "v block of layer 0: type"},
		{"transposed element size", trans, word(firstV+4, 4), Unfit, "v block of layer 0: el_size"},
		{"transposed width", trans, word(firstV+8, 9), Unfit, "v block of layer 0: width"},
		{"cut in the last row", plain, func(b []byte) []byte { return b[:len(b)-1] }, Damaged, "rows"},
		{"cut in a header", plain, func(b []byte) []byte { return b[:firstV+5] }, Damaged, "v block of layer 0"},
		{"trailing bytes", plain, func(b []byte) []byte { return append(b, 0, 0) }, Damaged, "file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, dir := newStore(t)
			data := c.from.encode(p, s)
			if !c.from.packed && !c.from.vTrans && len(data) != endOfRow {
				t.Fatalf("the file has %d bytes, the offsets are for %d", len(data), endOfRow)
			}
			put(t, dir, "a", c.change(data))
			_, err := st.Restore(t.Context(), "a", fitOf(p), func([]int32) ([]kv.Run, error) {
				t.Error("cells were asked for")
				return nil, errors.New("none")
			})
			var e *Error
			if !errors.As(err, &e) || e.Kind != c.kind || e.Field != c.field {
				t.Errorf("error %v, want %v about %q", err, c.kind, c.field)
			}
		})
	}
}
