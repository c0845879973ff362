package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"baton/internal/engine"
	"baton/internal/server"
	"baton/internal/server/servertest"
)

// fakeFiles answers slot actions, and notes them.
type fakeFiles struct {
	err  error
	seen []string
}

func (f *fakeFiles) SaveSlot(_ context.Context, slot int, name string) (engine.SlotFile, error) {
	f.seen = append(f.seen, fmt.Sprint("save ", slot, " ", name))
	return engine.SlotFile{Tokens: 1745, Bytes: 14309796, Verified: true, Took: 1500 * time.Microsecond}, f.err
}

func (f *fakeFiles) RestoreSlot(_ context.Context, slot int, name string) (engine.SlotFile, error) {
	f.seen = append(f.seen, fmt.Sprint("restore ", slot, " ", name))
	return engine.SlotFile{Tokens: 1745, Bytes: 14309796, Copied: 14309000, Warning: "no checksum", Took: 2 * time.Millisecond}, f.err
}

func (f *fakeFiles) EraseSlot(_ context.Context, slot int) (int, error) {
	f.seen = append(f.seen, fmt.Sprint("erase ", slot))
	return 1745, f.err
}

func startFiles(t *testing.T, cfg server.Config, f engine.SlotFiles) *started {
	t.Helper()
	s := server.New(cfg)
	e := &servertest.Engine{}
	s.SetBackend(server.Backend{Engine: e, Tokenizer: servertest.Tokenizer{}, SlotFiles: f})
	ts := httptest.NewServer(s)
	client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		ts.Close()
	})
	return &started{s, ts.URL, client, e}
}

// The answers are llama-server's, and say more where it says nothing.
func TestSlotActions(t *testing.T) {
	f := &fakeFiles{}
	s := startFiles(t, server.Config{}, f)
	for _, c := range []struct{ path, body, want string }{
		{"/slots/1?action=save", `{"filename": "a.bin"}`,
			`{"id_slot":1,"filename":"a.bin","n_saved":1745,"n_written":14309796,"timings":{"save_ms":1.5}}`},
		{"/slots/0?action=restore", `{"filename": "a.bin"}`,
			`{"id_slot":0,"filename":"a.bin","n_restored":1745,"n_read":14309796,"verified":false,"warning":"no checksum","bytes_copied":14309000,"timings":{"restore_ms":2}}`},
		{"/slots/0?action=erase", ``, `{"id_slot":0,"n_erased":1745}`},
	} {
		resp := s.post(t, c.path, c.body)
		got := readAll(t, resp)
		want(t, resp.StatusCode, got, 200)
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(c.want), &b) != nil || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
	if got, want := fmt.Sprint(f.seen), "[save 1 a.bin restore 0 a.bin erase 0]"; got != want {
		t.Errorf("actions %s, want %s", got, want)
	}
}

func TestSlotActionsRefused(t *testing.T) {
	f := &fakeFiles{}
	s := startFiles(t, server.Config{}, f)
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/slots/0", `{"filename": "a"}`, 400, `"param":"action"`},
		{"/slots/0?action=share", `{"provider": "cpu", "tokens": [1, 2]}`, 400, "expected save, restore or erase"},
		{"/slots/0?action=adopt", `{}`, 400, "expected save, restore or erase"},
		{"/slots/2?action=save", `{"filename": "a"}`, 400, "expected 0 to 1"},
		{"/slots/-1?action=erase", ``, 400, "id_slot"},
		{"/slots/x?action=erase", ``, 400, "id_slot"},
		{"/slots/0?action=save", `{}`, 400, `"param":"filename"`},
		{"/slots/0?action=save", `{"filename": 7}`, 400, `"param":"filename"`},
		{"/slots/0?action=restore", `filename`, 400, "invalid_json"},
	} {
		resp := s.post(t, c.path, c.body)
		want(t, resp.StatusCode, readAll(t, resp), c.status, c.says)
	}
	if len(f.seen) > 0 {
		t.Errorf("actions %q", f.seen)
	}
	for _, c := range []struct {
		code   engine.Code
		status int
	}{
		{engine.CodeBadRequest, 400}, {engine.CodeNoFile, 404}, {engine.CodeSlotBusy, 409}, {engine.CodeBadFile, 422},
		{engine.CodeInternal, 500}, {engine.CodeNoRoom, 503}, {engine.CodeStopping, 503},
	} {
		f.err = &engine.Error{Code: c.code, Message: "the reason"}
		for _, action := range []string{"save", "restore", "erase"} {
			resp := s.post(t, "/slots/0?action="+action, `{"filename": "a"}`)
			want(t, resp.StatusCode, readAll(t, resp), c.status, "the reason")
		}
	}
}

// Without a directory there are no slot actions, and with keys they need one.
func TestSlotActionsGuarded(t *testing.T) {
	s := startFiles(t, server.Config{}, nil)
	resp := s.post(t, "/slots/0?action=save", `{"filename": "a"}`)
	want(t, resp.StatusCode, readAll(t, resp), 501, "--slot-save-path")

	f := &fakeFiles{}
	s = startFiles(t, server.Config{Keys: []string{"secret"}}, f)
	resp = s.post(t, "/slots/0?action=erase", "")
	want(t, resp.StatusCode, readAll(t, resp), 401)
	if len(f.seen) > 0 {
		t.Errorf("actions %q", f.seen)
	}
}
