package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// slotRequest asks for a greedy answer to token ids in slot 0.
func slotRequest(ids []int32, n int) map[string]any {
	return map[string]any{"prompt": ids, "n_predict": n, "temperature": 0, "id_slot": 0, "cache_prompt": true}
}

// slotPrompts is a long prompt, and the same with a question behind it, as token ids.
func slotPrompts(t *testing.T, s *server) (prompt, longer []int32) {
	t.Helper()
	text := strings.Repeat("The locker of Maria Lopez holds a brass compass. ", 70)
	prompt = ids(s.mustPost(t, "/tokenize", map[string]any{"content": text})["tokens"])
	if len(prompt) < 700 {
		t.Fatalf("a prompt of %d tokens, want a long one", len(prompt))
	}
	question := ids(s.mustPost(t, "/tokenize", map[string]any{"content": "The locker of"})["tokens"])
	return prompt, slices.Concat(prompt, question)
}

// T1: a prompt that was saved, erased and restored is not processed again, also by a
// server that was started anew, and the text that follows is that of a cold server.
func TestSlotFiles(t *testing.T) {
	cold := startServer(t)
	prompt, longer := slotPrompts(t, cold)
	want := cold.mustPost(t, "/completion", slotRequest(longer, 24)).str("content")
	cold.stop(t)

	dir := t.TempDir()
	name := map[string]any{"filename": "maria.bin"}
	s := startServer(t, "--slot-save-path", dir)
	s.mustPost(t, "/completion", slotRequest(prompt, 1))
	saved := s.mustPost(t, "/slots/0?action=save", name)
	if saved.num("n_saved") != len(prompt) || saved.num("n_written") < 1<<20 {
		t.Errorf("saved: %v, want %d tokens", saved, len(prompt))
	}
	if erased := s.mustPost(t, "/slots/0?action=erase", nil); erased.num("n_erased") != len(prompt) {
		t.Errorf("erased: %v, want %d tokens", erased, len(prompt))
	}
	for _, again := range []bool{false, true} {
		if again {
			s.stop(t)
			s = startServer(t, "--slot-save-path", dir)
		}
		restored := s.mustPost(t, "/slots/0?action=restore", name)
		if restored.num("n_restored") != len(prompt) || restored.num("n_read") != saved.num("n_written") || restored.at("verified") != true {
			t.Errorf("restored: %v, saved: %v", restored, saved)
		}
		o := s.mustPost(t, "/completion", slotRequest(longer, 24))
		if n := o.num("timings", "prompt_n"); n > len(longer)-len(prompt)+1 {
			t.Errorf("%d tokens were processed, %d are new", n, len(longer)-len(prompt))
		}
		if got := o.str("content"); got != want {
			t.Errorf("text %q, want %q", got, want)
		}
	}
}

// T4: a file that is cut, changed or empty is refused, and the server goes on as if
// nobody had asked.
func TestSlotFilesDamaged(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, "--slot-save-path", dir)
	prompt, longer := slotPrompts(t, s)
	s.mustPost(t, "/completion", slotRequest(prompt, 1))
	s.mustPost(t, "/slots/0?action=save", map[string]any{"filename": "a"})
	path := filepath.Join(dir, "a")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(data)
	flipped[len(flipped)/2] ^= 1
	for what, damaged := range map[string][]byte{"cut": data[:len(data)-7], "flipped": flipped, "empty": {}} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if status, body := s.post(t, "/slots/0?action=restore", map[string]any{"filename": "a"}); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %v", what, status, body)
		}
	}
	s.alive(t)
	got := s.mustPost(t, "/completion", slotRequest(longer, 24)).str("content")
	s.stop(t)
	fresh := startServer(t)
	if want := fresh.mustPost(t, "/completion", slotRequest(longer, 24)).str("content"); got != want {
		t.Errorf("text %q, want that of a fresh server: %q", got, want)
	}
}

// T5: names that are paths, and links out of the directory, are refused, and nothing
// outside changes.
func TestSlotFileNames(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "slots")
	outside := filepath.Join(parent, "outside")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outside, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--slot-save-path", dir)
	s.mustPost(t, "/completion", slotRequest([]int32{10, 11, 12}, 1))
	for _, name := range []string{"../x", "../outside", "a/b", outside, "a\x00b", strings.Repeat("a", 300), "link", "", ".", "ä", "a.sum"} {
		for _, action := range []string{"save", "restore"} {
			if status, body := s.post(t, "/slots/0?action="+action, map[string]any{"filename": name}); status != http.StatusBadRequest {
				t.Errorf("%s %q: %d %v", action, name, status, body)
			}
		}
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "untouched" {
		t.Errorf("the file outside: %q, %v", data, err)
	}
	for path, want := range map[string]int{parent: 2, dir: 1} {
		entries, err := os.ReadDir(path)
		if err != nil || len(entries) != want {
			t.Errorf("%s has %v, %v", path, entries, err)
		}
	}
	s.alive(t)
	if status, _ := startServer(t).post(t, "/slots/0?action=save", map[string]any{"filename": "a"}); status != http.StatusNotImplemented {
		t.Errorf("without a directory: %d", status)
	}
}

// The decoder alone has the actions, too, and on its control socket beside those that
// hand out memory.
func TestSlotFilesOfDecode(t *testing.T) {
	dir := t.TempDir()
	s := startDecode(t, socketPath(t), "--slot-save-path", dir)
	s.mustPost(t, "/completion", slotRequest([]int32{10, 11, 12, 13}, 1))
	if saved := s.mustPost(t, "/slots/0?action=save", map[string]any{"filename": "a"}); saved.num("n_saved") != 4 {
		t.Errorf("saved: %v", saved)
	}
	if restored := s.mustPost(t, "/slots/1?action=restore", map[string]any{"filename": "a"}); restored.num("n_restored") != 4 {
		t.Errorf("restored: %v", restored)
	}
	if status, body := s.post(t, "/slots/0?action=adopt", map[string]any{}); status != http.StatusBadRequest || !strings.Contains(body.str("error", "message"), "share") {
		t.Errorf("adopt: %d %v", status, body)
	}
}
