package decoder

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"baton/internal/demo"
	"baton/internal/engine"
	"baton/internal/statefile"
)

// startStates returns a decoder and its States with files in dir.
func startStates(t *testing.T, dir string, opt Options) (*Decoder, *States) {
	t.Helper()
	d := start(t, opt)
	store, err := statefile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStates(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, s
}

func codeOf(err error) engine.Code {
	if err == nil {
		return ""
	}
	return engine.AsError(err).Code
}

// in asks for a slot.
func in(slot int, r *engine.Request) *engine.Request {
	r.Slot = slot
	return r
}

// A saved prompt is restored after it was erased, and in another process: the next
// request processes what is new, and its text is that of a request that found nothing.
func TestSaveEraseRestore(t *testing.T) {
	dir := t.TempDir()
	g := golden(t)
	prompt := g[2].Tokens
	if len(prompt) < 200 {
		t.Fatalf("a prompt of %d tokens", len(prompt))
	}
	longer := slices.Concat(prompt, g[0].Tokens[:7])
	cold := ask(t, start(t, Options{Slots: 1}), greedy(longer, 24))

	d, s := startStates(t, dir, Options{Slots: 2})
	first := ask(t, d, in(1, greedy(prompt, 4)))
	saved, err := s.SaveSlot(t.Context(), 1, "talk")
	if err != nil {
		t.Fatal(err)
	}
	if want := len(prompt) + len(first.tokens) - 1; saved.Tokens != want || !saved.Verified {
		t.Errorf("saved %+v, want %d tokens", saved, want)
	}
	n, err := s.EraseSlot(t.Context(), 1)
	if err != nil || n != saved.Tokens {
		t.Errorf("erased %d tokens, %v, want %d", n, err, saved.Tokens)
	}
	if n, err := d.Cached(t.Context(), longer); err != nil || n != 0 {
		t.Fatalf("%d tokens are still cached, %v", n, err)
	}
	if _, err := s.SaveSlot(t.Context(), 1, "nothing"); codeOf(err) != engine.CodeBadRequest || !strings.Contains(err.Error(), "nothing in the cache") {
		t.Errorf("saving an empty slot: %v", err)
	}

	other, s2 := startStates(t, dir, Options{Slots: 1})
	for _, c := range []struct {
		d *Decoder
		s *States
	}{{d, s}, {other, s2}} {
		restored, err := c.s.RestoreSlot(t.Context(), 0, "talk")
		if err != nil {
			t.Fatal(err)
		}
		if restored.Tokens != saved.Tokens || restored.Bytes != saved.Bytes || !restored.Verified || restored.Warning != "" {
			t.Errorf("restored %+v, saved %+v", restored, saved)
		}
		again, err := c.s.SaveSlot(t.Context(), 0, "again") // what was restored can be saved
		if err != nil || again.Tokens != saved.Tokens {
			t.Errorf("saved again: %+v, %v", again, err)
		}
		a := ask(t, c.d, in(0, greedy(longer, 24)))
		if a.Timings.CacheN != len(prompt) || a.Timings.PromptN != 7 {
			t.Errorf("%d tokens cached, %d processed, want %d and 7", a.Timings.CacheN, a.Timings.PromptN, len(prompt))
		}
		if a.text != cold.text || !slices.Equal(a.tokens, cold.tokens) {
			t.Errorf("text %q, want %q", a.text, cold.text)
		}
	}
	one, err1 := os.ReadFile(filepath.Join(dir, "talk"))
	two, err2 := os.ReadFile(filepath.Join(dir, "again"))
	if err1 != nil || err2 != nil || !slices.Equal(one, two) {
		t.Errorf("the file of what was restored differs: %d and %d bytes, %v, %v", len(one), len(two), err1, err2)
	}
}

// Files that are refused leave slots and cache as they were.
func TestRestoreRefuses(t *testing.T) {
	dir := t.TempDir()
	prompt := golden(t)[1].Tokens
	d, s := startStates(t, dir, Options{Slots: 1})
	want := ask(t, d, in(0, greedy(prompt, 8)))
	if _, err := s.SaveSlot(t.Context(), 0, "good"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "good"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(dir, "good.sum"))
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(data)
	flipped[len(data)-3] ^= 4
	otherPrompt := slices.Clone(data) // the cells of one prompt under the tokens of another
	binary.LittleEndian.PutUint32(otherPrompt[12:], uint32(prompt[0]+1))
	binary.LittleEndian.PutUint32(otherPrompt[16:], uint32(prompt[1]+1))
	blocks := d.blocks.Stats().Used
	for _, c := range []struct {
		name      string
		data, sum []byte
		code      engine.Code
	}{
		{"cut", data[:len(data)/2], sum, engine.CodeBadFile},
		{"flipped", flipped, sum, engine.CodeBadFile},
		{"empty", nil, sum, engine.CodeBadFile},
		{"empty without a sum", nil, nil, engine.CodeBadFile},
		{"of another prompt", otherPrompt, sum, engine.CodeBadFile},
		{"missing", nil, nil, engine.CodeNoFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, "bad")
			if c.name != "missing" {
				put(t, file, c.data)
			}
			if c.sum != nil {
				put(t, file+".sum", c.sum)
			}
			_, err := s.RestoreSlot(t.Context(), 0, "bad")
			if codeOf(err) != c.code || !strings.Contains(err.Error(), "bad") {
				t.Errorf("error %v, want %s", err, c.code)
			}
			os.Remove(file)
			os.Remove(file + ".sum")
		})
	}
	for _, name := range []string{"../good", "a/b", "", "good.sum"} {
		_, err := s.RestoreSlot(t.Context(), 0, name)
		_, err2 := s.SaveSlot(t.Context(), 0, name)
		if codeOf(err) != engine.CodeBadRequest || codeOf(err2) != engine.CodeBadRequest {
			t.Errorf("%q: %v, %v", name, err, err2)
		}
	}
	for _, slot := range []int{-1, 1} {
		_, err := s.RestoreSlot(t.Context(), slot, "good")
		_, err2 := s.SaveSlot(t.Context(), slot, "good")
		_, err3 := s.EraseSlot(t.Context(), slot)
		if codeOf(err) != engine.CodeBadRequest || codeOf(err2) != engine.CodeBadRequest || codeOf(err3) != engine.CodeBadRequest {
			t.Errorf("slot %d: %v, %v, %v", slot, err, err2, err3)
		}
	}
	if n := d.blocks.Stats().Used; n != blocks {
		t.Errorf("%d blocks in use, %d before", n, blocks)
	}
	if a := ask(t, d, greedy(prompt, 8)); a.text != want.text {
		t.Errorf("text %q, want %q", a.text, want.text)
	}
}

// A file without a sum is compared with what the model computes for its tokens.
func TestRestoreForeign(t *testing.T) {
	dir := t.TempDir()
	prompt := golden(t)[1].Tokens
	d, s := startStates(t, dir, Options{Slots: 1})
	ask(t, d, in(0, greedy(prompt, 1)))
	if _, err := s.SaveSlot(t.Context(), 0, "a"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "a.sum")); err != nil {
		t.Fatal(err)
	}
	info, err := s.RestoreSlot(t.Context(), 0, "a")
	if err != nil || info.Verified || info.Warning == "" {
		t.Errorf("%+v, %v", info, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range prompt {
		binary.LittleEndian.PutUint32(data[12+4*i:], uint32(prompt[len(prompt)-1-i]))
	}
	put(t, filepath.Join(dir, "a"), data)
	if _, err := s.RestoreSlot(t.Context(), 0, "a"); codeOf(err) != engine.CodeBadFile || !strings.Contains(err.Error(), "layer 0") {
		t.Errorf("cells of other tokens: %v", err)
	}
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBusySlot(t *testing.T) {
	d, s := startStates(t, t.TempDir(), Options{Slots: 1})
	prompt := golden(t)[0].Tokens
	ask(t, d, in(0, greedy(prompt, 1)))
	if _, err := s.SaveSlot(t.Context(), 0, "a"); err != nil {
		t.Fatal(err)
	}
	r := greedy(prompt, -1)
	r.IgnoreEOS = true
	st, err := d.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, saveErr := s.SaveSlot(t.Context(), 0, "a")
	_, restoreErr := s.RestoreSlot(t.Context(), 0, "a")
	_, eraseErr := s.EraseSlot(t.Context(), 0)
	st.Cancel()
	if a := collect(t, st); a.Reason != engine.Cancelled {
		t.Fatalf("the request ended before it was asked about: %s", a.Reason)
	}
	for _, err := range []error{saveErr, restoreErr, eraseErr} {
		if codeOf(err) != engine.CodeSlotBusy {
			t.Errorf("error %v, want a busy slot", err)
		}
	}
}

// Erasing a slot takes nothing from another slot whose prompt began alike.
func TestEraseLeavesOthers(t *testing.T) {
	d, s := startStates(t, t.TempDir(), Options{Slots: 2})
	prompt := golden(t)[2].Tokens
	ask(t, d, in(0, greedy(prompt, 1)))
	if _, err := s.SaveSlot(t.Context(), 0, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RestoreSlot(t.Context(), 1, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EraseSlot(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if a := ask(t, d, in(1, greedy(prompt, 1))); a.Timings.CacheN != len(prompt)-1 {
		t.Errorf("%d tokens are left to the other slot, want %d", a.Timings.CacheN, len(prompt)-1)
	}
}

func TestStatesClosed(t *testing.T) {
	d, s := startStates(t, t.TempDir(), Options{Slots: 1})
	ask(t, d, greedy(golden(t)[0].Tokens, 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.SaveSlot(ctx, 0, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	s.Close()
	if _, err := s.SaveSlot(t.Context(), 0, "a"); codeOf(err) != engine.CodeStopping {
		t.Errorf("error %v, want that it is closed", err)
	}
}

// A file that llama.cpp saved passes the comparison with the model, and the answer goes
// on from it. It runs where BATON_PEER names the cache of `make peer`.
func TestPeerSlotFile(t *testing.T) {
	cache := os.Getenv("BATON_PEER")
	if cache == "" {
		t.Skip("BATON_PEER is not set: run `make peer`")
	}
	dir := t.TempDir()
	g := golden(t)[2]
	path, list := filepath.Join(dir, "demo.gguf"), filepath.Join(dir, "tokens")
	put(t, path, demo.GGUF())
	put(t, list, []byte(strings.Trim(fmt.Sprint(g.Tokens), "[]")))
	out, err := exec.CommandContext(t.Context(), filepath.Join(cache, "llama", "llamapeer"),
		"state-save", path, list, filepath.Join(dir, "llama.bin"), "--reps", "1").CombinedOutput()
	if err != nil {
		t.Fatalf("llamapeer: %v\n%s", err, out)
	}
	d, s := startStates(t, dir, Options{Slots: 1})
	info, err := s.RestoreSlot(t.Context(), 0, "llama.bin")
	if err != nil || info.Verified || info.Tokens != len(g.Tokens) {
		t.Fatalf("%+v, %v", info, err)
	}
	a := ask(t, d, in(0, greedy(g.Tokens, 8)))
	if a.Timings.PromptN != 1 || a.tokens[0] != g.Greedy[0] {
		t.Errorf("%d tokens processed, tokens %d, want 1 and %d", a.Timings.PromptN, a.tokens, g.Greedy[:8])
	}
}
