package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// listen answers actions on a socket, whose path it returns.
func listen(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	srv := &http.Server{Handler: h, ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, n.Add(1))
	}}
	served := make(chan struct{})
	go func() { srv.Serve(l); close(served) }()
	t.Cleanup(func() { srv.Close(); <-served })
	return path
}

func newControl(t *testing.T, path string, slots int) *Control {
	c := NewControl(path, slots)
	t.Cleanup(c.Close)
	return c
}

func TestControl(t *testing.T) {
	type exchange struct{ URL, Body string }
	var got exchange
	status, answer := 200, ""
	c := newControl(t, listen(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = exchange{r.Method + " " + r.URL.String(), string(body)}
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}), 3)

	answer = `{"share_id": 9223372036854775807, "provider": "cpu", "pos0": 256, "filled": 511, "layout": {"layers": 3}}`
	share, err := c.Share(t.Context(), 2, `c"pu`, []int32{1, 2, 30000}, 512)
	if err != nil {
		t.Fatal(err)
	}
	want := &Share{ID: json.RawMessage("9223372036854775807"), Provider: "cpu", Pos0: 256}
	if diff := cmp.Diff(want, share); diff != "" {
		t.Errorf("share (-want +got):\n%s", diff)
	}
	if want := (exchange{"POST /slots/2?action=share", `{"provider":"c\"pu","min_tokens":512,"no_wait":true,"tokens":[1,2,30000]}`}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	answer = `{"done": true, "filled": 511, "prefill_ms": 3, "stopped": "it has gone"}`
	progress, err := c.Wait(t.Context(), 2, share, 200*time.Millisecond)
	if err != nil || *progress != (Progress{Done: true, Filled: 511, Stopped: "it has gone"}) {
		t.Errorf("%+v, %v", progress, err)
	}
	if want := (exchange{"POST /slots/2?action=wait", `{"share_id":9223372036854775807,"for_ms":200}`}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	answer = `{"id_slot": 2, "cells": 255, "trust": "leased", "bytes_copied": 0}`
	adopted, err := c.Adopt(t.Context(), 2, share, []int32{1, 2})
	if err != nil || *adopted != (Adopted{Cells: 255, Trust: "leased"}) {
		t.Errorf("%+v, %v", adopted, err)
	}
	// printf '\x01\x00\x00\x00\x02\x00\x00\x00' | sha256sum
	const sum = "34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f"
	if want := (exchange{"POST /slots/2?action=adopt", `{"share_id":9223372036854775807,"digest":"` + sum + `"}`}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	answer = `[{"name": "cpu", "pid": 7, "trust": "leased"}]`
	list, err := c.Providers(t.Context())
	if err != nil || len(list) != 1 || list[0] != (Registered{"cpu", 7}) || got.URL != "GET /providers" {
		t.Errorf("%+v, %v by %s", list, err, got.URL)
	}

	answer = `{}`
	if err := c.Release(t.Context(), 0, share); err != nil {
		t.Error(err)
	}
	if want := (exchange{"POST /slots/0?action=release", `{"share_id":9223372036854775807}`}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestControlRefusals(t *testing.T) {
	status, answer := 0, ""
	path := listen(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, answer)
	})
	c := newControl(t, path, 1)
	for _, tt := range []struct {
		status int
		answer string
		want   Refused
	}{
		{422, `{"error":{"message":"kv type q8_0, provider has f16","type":"x","code":"layout_differs"}}`, Refused{"share", 422, "layout_differs", "kv type q8_0, provider has f16"}},
		{500, `{"error":{"message":"oh"}}`, Refused{"share", 500, "other", "oh"}},
		{502, `<html>`, Refused{"share", 502, "other", "Bad Gateway"}},
		{200, `<html>`, Refused{"share", 200, codeUnreachable, "the decoder's answer is no JSON as expected: invalid character '<' looking for beginning of value"}},
	} {
		status, answer = tt.status, tt.answer
		_, err := c.Share(t.Context(), 0, "cpu", []int32{1}, 1)
		var got *Refused
		if !errors.As(err, &got) || *got != tt.want {
			t.Errorf("%d %s: %+v, want %+v", tt.status, tt.answer, err, tt.want)
		}
	}
	c = newControl(t, path+"-not", 1)
	if _, err := c.Share(t.Context(), 0, "cpu", []int32{1}, 1); codeOf(err) != codeUnreachable {
		t.Errorf("nobody listens: %v", err)
	}
}

// connKey is the key of a connection's number, counted from 1.
type connKey struct{}

// The actions of a slot go over one connection, which no other slot uses, and which ends
// with an action that is cancelled.
func TestControlConnections(t *testing.T) {
	conns := make(chan int64, 10)
	gone := make(chan struct{})
	c := newControl(t, listen(t, func(w http.ResponseWriter, r *http.Request) {
		conns <- r.Context().Value(connKey{}).(int64)
		if r.URL.Query().Get("action") == "release" {
			io.Copy(io.Discard, r.Body) // else net/http does not look whether the client leaves
			<-r.Context().Done()
			close(gone)
			return
		}
		io.WriteString(w, "{}")
	}), 2)
	share := &Share{ID: json.RawMessage("1")}
	adopt := func(slot int) int64 {
		t.Helper()
		if _, err := c.Adopt(t.Context(), slot, share, nil); err != nil {
			t.Fatal(err)
		}
		return <-conns
	}
	if a, b, a2, b2 := adopt(0), adopt(1), adopt(0), adopt(1); a != a2 || b != b2 || a == b {
		t.Errorf("connections %d, %d, then %d, %d", a, b, a2, b2)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Release(ctx, 0, share) }()
	old := <-conns
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled action succeeded")
	}
	<-gone
	if now := adopt(0); now == old {
		t.Errorf("connection %d is still used", now)
	}
}
