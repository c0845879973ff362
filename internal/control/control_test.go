package control_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"baton/internal/control"
	"baton/internal/decoder"
	"baton/internal/handoff"
	"baton/internal/load"
)

// startControl serves the actions of a decoder of the demo model.
func startControl(t *testing.T) (*httptest.Server, *load.Bundle) {
	t.Helper()
	b, err := load.Open("")
	if err != nil {
		t.Fatal(err)
	}
	d, err := decoder.New(b.Model, b.Vocab, decoder.Options{Slots: 2})
	if err != nil {
		t.Fatal(err)
	}
	table, err := d.NewTable(handoff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := control.NewHandler()
	h.SetTable(table, d.Cached)
	mux := http.NewServeMux()
	mux.Handle("POST /slots/{id}", h)
	s := httptest.NewUnstartedServer(mux)
	s.Config.ConnContext, s.Config.ConnState = h.ConnContext, h.ConnState
	s.Start()
	t.Cleanup(func() {
		s.Close()
		if err := table.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		b.Close()
	})
	return s, b
}

func TestRefusals(t *testing.T) {
	s, _ := startControl(t)
	long := "[" + strings.Repeat("1,", 2600) + "1]"
	for _, c := range []struct {
		name, path, body string
		status           int
		code, says       string
	}{
		{"no action", "/slots/0", `{}`, 400, "bad_request", "action"},
		{"unknown action", "/slots/0?action=steal", `{}`, 400, "bad_request", "steal"},
		{"slot is no number", "/slots/x?action=adopt", `{}`, 400, "bad_request", "x"},
		{"slot that is not", "/slots/7?action=share", `{"provider":"cpu","tokens":[1,2,3]}`, 404, "slot_unknown", "7"},
		{"no JSON", "/slots/0?action=share", `tokens`, 400, "bad_request", "no such request"},
		{"unknown field", "/slots/0?action=share", `{"tokens":[1,2],"trust_me":true}`, 400, "bad_request", "trust_me"},
		{"two objects", "/slots/0?action=share", `{"tokens":[1,2],"provider":"cpu"}{}`, 400, "bad_request", "follows"},
		{"no tokens", "/slots/0?action=share", `{"provider":"cpu","tokens":[]}`, 400, "bad_request", "token"},
		{"token out of the vocabulary", "/slots/0?action=share", `{"provider":"cpu","tokens":[1,4096,3]}`, 400, "bad_request", "4096"},
		{"longer than the context", "/slots/0?action=share", `{"provider":"cpu","tokens":` + long + `}`, 400, "bad_request", "2601"},
		{"no provider at all", "/slots/0?action=share", `{"tokens":[1,2,3]}`, 502, "provider_unreachable", "none"},
		{"no such provider", "/slots/0?action=share", `{"provider":"npu","tokens":[1,2,3]}`, 502, "provider_unreachable", "npu"},
		{"bare adopt", "/slots/0?action=adopt", `{}`, 400, "bad_request", ""},
		{"adopt without a digest", "/slots/0?action=adopt", `{"share_id":1}`, 400, "bad_request", ""},
		{"guessed id", "/slots/0?action=adopt", `{"share_id":12345,"tokens":[1,2,3]}`, 409, "share_unknown", ""},
		{"bad require", "/slots/0?action=adopt", `{"share_id":1,"tokens":[1,2],"require":"some"}`, 400, "bad_request", "some"},
		{"wait for nothing", "/slots/0?action=wait", `{"share_id":5,"for_ms":1}`, 409, "share_unknown", ""},
		{"release of nothing", "/slots/0?action=release", `{"share_id":5}`, 409, "share_unknown", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, err := http.Post(s.URL+c.path, "application/json", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var body struct {
				Error struct{ Message, Code, Do string }
			}
			if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.status || body.Error.Code != c.code || !strings.Contains(body.Error.Message, c.says) {
				t.Errorf("got %d %+v, want %d %s with %q", resp.StatusCode, body.Error, c.status, c.code, c.says)
			}
		})
	}
}

// Too few new tokens are not worth a handoff; that is no error.
func TestShortPromptsStayLocal(t *testing.T) {
	s, _ := startControl(t)
	resp, err := http.Post(s.URL+"/slots/0?action=share", "application/json", strings.NewReader(`{"provider":"npu","min_tokens":10,"tokens":[1,2,3]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a control.ShareAnswer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || resp.StatusCode != 200 || a.Route != "local" {
		t.Errorf("status %d, %+v, %v", resp.StatusCode, a, err)
	}
}
