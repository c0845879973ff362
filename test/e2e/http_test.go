package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const answerLimit = 5 * time.Minute // for one answer, also without fast kernels on a busy machine

// object is a decoded JSON object, read by path: at("usage", "completion_tokens").
type object map[string]any

func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// num is the number at path, or -1 where there is none.
func (o object) num(path ...string) int {
	if f, ok := o.at(path...).(float64); ok {
		return int(f)
	}
	return -1
}

func (o object) str(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

// choice is the first element of choices.
func (o object) choice() object {
	if cs, ok := o["choices"].([]any); ok && len(cs) > 0 {
		if c, ok := cs[0].(map[string]any); ok {
			return c
		}
	}
	return nil
}

// send makes a request with a JSON body (a string or bytes go as they are) and returns
// the answer unread. The caller closes its body.
func (s *server) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case []byte:
		r = bytes.NewReader(b)
	default:
		enc, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(enc)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, r)
	if err != nil {
		return nil, err
	}
	if r != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return s.client.Do(req)
}

// post returns the status and the decoded answer, which must be a JSON object.
func (s *server) post(t testing.TB, path string, body any) (int, object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	resp, err := s.send(ctx, "POST", path, body)
	if err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatalf("POST %s: %s with a body that is no JSON object: %q", path, resp.Status, raw)
	}
	return resp.StatusCode, o
}

// mustPost is post for a request that has to succeed.
func (s *server) mustPost(t testing.TB, path string, body any) object {
	t.Helper()
	code, o := s.post(t, path, body)
	if code != http.StatusOK {
		t.Fatalf("POST %s: status %d, want 200: %v", path, code, o)
	}
	return o
}

// events reads a server-sent event stream to its end: the decoded data of each event,
// and whether "[DONE]" closed it.
func events(r io.Reader) (evs []object, done bool, err error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var o object
		if err := json.Unmarshal([]byte(data), &o); err != nil {
			return evs, done, err
		}
		evs = append(evs, o)
	}
	return evs, done, sc.Err()
}

// stream posts body and reads the events of the answer.
func (s *server) stream(t testing.TB, path string, body any) []object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	resp, err := s.send(ctx, "POST", path, body)
	if err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(ct, "text/event-stream") {
		raw, _ := io.ReadAll(resp.Body)
		t.Fatalf("POST %s: %s, content type %q, want an event stream: %s", path, resp.Status, ct, raw)
	}
	evs, done, err := events(resp.Body)
	if err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
	if !done {
		t.Errorf("POST %s: the stream of %d events does not end with [DONE]", path, len(evs))
	}
	return evs
}

// text joins the pieces of a streamed chat or completion.
func text(evs []object) string {
	var b strings.Builder
	for _, e := range evs {
		c := e.choice()
		b.WriteString(c.str("delta", "content"))
		b.WriteString(c.str("text"))
	}
	return b.String()
}
