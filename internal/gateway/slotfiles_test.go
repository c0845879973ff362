package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"baton/internal/engine"
)

func TestSlotFiles(t *testing.T) {
	var got []string
	status, answer := 200, ""
	path := listen(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, fmt.Sprint(r.Method, " ", r.URL, " ", string(body)))
		w.WriteHeader(status)
		io.WriteString(w, answer)
	})
	e := start(t, Options{Decoder: newFakeDecoder(2)})
	f := e.SlotFiles(newControl(t, path, 2))

	answer = `{"id_slot":1,"filename":"a","n_saved":1745,"n_written":14309796,"timings":{"save_ms":1.5}}`
	saved, err := f.SaveSlot(t.Context(), 1, "a")
	if diff := cmp.Diff(engine.SlotFile{Tokens: 1745, Bytes: 14309796, Verified: true, Took: 1500 * time.Microsecond}, saved); err != nil || diff != "" {
		t.Errorf("save: %v (-want +got):\n%s", err, diff)
	}
	answer = `{"id_slot":0,"filename":"b","n_restored":3,"n_read":9,"verified":false,"warning":"w","bytes_copied":7,"timings":{"restore_ms":2}}`
	restored, err := f.RestoreSlot(t.Context(), 0, "b")
	if diff := cmp.Diff(engine.SlotFile{Tokens: 3, Bytes: 9, Copied: 7, Warning: "w", Took: 2 * time.Millisecond}, restored); err != nil || diff != "" {
		t.Errorf("restore: %v (-want +got):\n%s", err, diff)
	}
	answer = `{"id_slot":0,"n_erased":12}`
	if n, err := f.EraseSlot(t.Context(), 0); err != nil || n != 12 {
		t.Errorf("erase: %d, %v", n, err)
	}
	want := []string{
		`POST /slots/1?action=save {"filename":"a"}`, `POST /slots/0?action=restore {"filename":"b"}`, `POST /slots/0?action=erase {"filename":""}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}

	for _, c := range []struct {
		status int
		code   string
		want   engine.Code
	}{
		{400, "invalid_value", engine.CodeBadRequest}, {404, "state_not_found", engine.CodeNoFile}, {409, "slot_busy", engine.CodeSlotBusy},
		{422, "state_unusable", engine.CodeBadFile}, {500, "internal", engine.CodeInternal}, {503, "no_room", engine.CodeNoRoom},
	} {
		status, answer = c.status, fmt.Sprintf(`{"error":{"message":"the reason","code":%q}}`, c.code)
		_, err := f.RestoreSlot(t.Context(), 0, "b")
		if got := engine.AsError(err); got.Code != c.want || got.Message != "the reason" {
			t.Errorf("%d %s: %+v, want %s", c.status, c.code, got, c.want)
		}
	}
	if _, err := f.EraseSlot(t.Context(), 2); engine.AsError(err).Code != engine.CodeBadRequest {
		t.Errorf("a slot that is not: %v", err)
	}
	gone := e.SlotFiles(newControl(t, path+"nowhere", 2))
	if _, err := gone.EraseSlot(t.Context(), 0); engine.AsError(err).Code != engine.CodeAway {
		t.Errorf("a decoder that is not: %v", err)
	}
}

// An action waits for the request that has the slot, as long as its caller does.
func TestSlotFilesWait(t *testing.T) {
	d := newFakeDecoder(1).stepwise()
	e := start(t, Options{Decoder: d})
	f := e.SlotFiles(newControl(t, listen(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"n_erased":1}`) }), 1))
	st := generate(t, e, request("a", 1))
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := f.EraseSlot(ctx, 0)
		left <- err
	}()
	done := make(chan error, 1)
	go func() {
		_, err := f.EraseSlot(t.Context(), 0)
		done <- err
	}()
	eventually(t, "both wait", func() bool { _, _, waiting := e.slots.snapshot(); return waiting == 2 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller who left got %v", err)
	}
	select {
	case err := <-done:
		t.Fatalf("erased during a request: %v", err)
	default:
	}
	d.step <- struct{}{}
	finish(t, st)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
