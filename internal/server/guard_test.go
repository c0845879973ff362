package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"baton/internal/api"
	"baton/internal/server"
	"baton/internal/server/servertest"

	"github.com/google/go-cmp/cmp"
)

// bosTemplate writes the BOS token, as many real templates do.
type bosTemplate struct{ servertest.Template }

func (bosTemplate) Render(json.RawMessage, json.RawMessage, bool) ([]api.Part, error) {
	return []api.Part{{Text: "<s>", Special: true}, {Text: "h"}}, nil
}

type panicTemplate struct{ servertest.Template }

func (panicTemplate) Render(json.RawMessage, json.RawMessage, bool) ([]api.Part, error) {
	panic("boom")
}

func TestKeys(t *testing.T) {
	s := start(t, server.Config{Keys: []string{"alpha", "beta"}}, &servertest.Engine{Reply: "x"})
	ask := func(method, path string, header ...string) (*http.Response, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(`{"prompt": "x"}`))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp, readAll(t, resp)
	}
	for _, good := range [][]string{
		{"Authorization", "Bearer alpha"}, {"Authorization", "bearer beta"}, {"X-Api-Key", "beta"}, {"Authorization", "Bearer  alpha "},
	} {
		resp, b := ask("POST", "/v1/completions", good...)
		want(t, resp.StatusCode, b, 200)
	}
	for _, bad := range [][]string{
		nil, {"Authorization", "Bearer"}, {"Authorization", "Bearer "}, {"Authorization", "Bearer gamma"}, {"Authorization", "Basic alpha"},
		{"Authorization", "alpha"}, {"X-Api-Key", "alph"}, {"X-Api-Key", "alphaa"}, {"X-Api-Key", ""},
		{"X-Api-Key", "alpha", "Authorization", "Bearer gamma"},
	} {
		resp, b := ask("POST", "/v1/completions", bad...)
		want(t, resp.StatusCode, b, 401, "API key", "authentication_error")
		if resp.Header.Get("WWW-Authenticate") == "" {
			t.Error("no WWW-Authenticate")
		}
	}
	// Deny by default: everything but health wants the key, what does not exist too.
	for _, path := range []string{"/", "/metrics", "/slots", "/props", "/models", "/v1/models", "/nothing", "/health/", "/v1/health/x", "/HEALTH", "//health"} {
		resp, b := ask("GET", path)
		want(t, resp.StatusCode, b, 401)
	}
	for _, path := range []string{"/health", "/v1/health"} {
		resp, b := ask("GET", path)
		want(t, resp.StatusCode, b, 200)
	}
}

func TestOrigins(t *testing.T) {
	tests := []struct {
		name   string
		cfg    server.Config
		origin string
		ok     bool
	}{
		{"no browser", server.Config{}, "", true},
		{"local page", server.Config{}, "http://localhost:3000", true},
		{"local page by address", server.Config{}, "http://127.0.0.1:8080", true},
		{"local page by IPv6", server.Config{}, "http://[::1]:8080", true},
		{"foreign page", server.Config{}, "https://evil.example", false},
		{"look-alike", server.Config{}, "http://localhost.evil.example", false},
		{"address look-alike", server.Config{}, "http://127.0.0.1.evil.example", false},
		{"file", server.Config{}, "null", false},
		{"nonsense", server.Config{}, "http://%zz", false},
		{"foreign page, allowed", server.Config{AllowOrigins: []string{"https://ui.example"}}, "https://ui.example", true},
		{"another page", server.Config{AllowOrigins: []string{"https://ui.example"}}, "http://localhost", false},
		{"all", server.Config{AllowOrigins: []string{"*"}}, "https://any.example", true},
		{"with keys", server.Config{Keys: []string{"k"}}, "https://any.example", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, tt.cfg, &servertest.Engine{Reply: "x"})
			for _, method := range []string{"GET", "OPTIONS"} {
				req, _ := http.NewRequestWithContext(t.Context(), method, s.url+"/v1/models", nil)
				if tt.origin != "" {
					req.Header.Set("Origin", tt.origin)
				}
				req.Header.Set("X-Api-Key", "k")
				req.Header.Set("Access-Control-Request-Headers", "authorization, x-stainless-os")
				resp, err := s.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				status, allowed := 403, ""
				if tt.ok {
					status, allowed = map[string]int{"GET": 200, "OPTIONS": 204}[method], tt.origin
				}
				if resp.StatusCode != status || resp.Header.Get("Access-Control-Allow-Origin") != allowed {
					t.Errorf("%s: %d, allowed %q", method, resp.StatusCode, resp.Header.Get("Access-Control-Allow-Origin"))
				}
				if method == "OPTIONS" && allowed != "" && resp.Header.Get("Access-Control-Allow-Headers") != "authorization, x-stainless-os" {
					t.Errorf("headers: %q", resp.Header.Get("Access-Control-Allow-Headers"))
				}
			}
		})
	}
}

func TestHeadAndRequestID(t *testing.T) {
	s := start(t, server.Config{}, &servertest.Engine{Reply: "x"})
	for given, kept := range map[string]bool{"abc-1.2_3": true, "": false, "a b": false, strings.Repeat("x", 65): false, "\u00e9": false} {
		req, _ := http.NewRequestWithContext(t.Context(), "HEAD", s.url+"/health", nil)
		if given != "" {
			req.Header.Set("X-Request-Id", given)
		}
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		id := resp.Header.Get("X-Request-Id")
		if resp.StatusCode != 200 || id == "" || (id == given) != kept {
			t.Errorf("%q: %d, id %q", given, resp.StatusCode, id)
		}
	}
}

func TestModelNames(t *testing.T) {
	s := start(t, server.Config{Aliases: []string{"small", "demo"}}, &servertest.Engine{Reply: "x", Name: "org/fake"})
	for _, name := range []string{"small", "demo", "org/fake", ""} {
		b := readAll(t, s.post(t, "/v1/completions", `{"prompt": "x", "model": "`+name+`"}`))
		want(t, 200, b, 200, `"model":"small"`, `"choices"`)
	}
	status, b := s.get(t, "/v1/models/org/fake")
	want(t, status, b, 200, `"id":"small"`, `"aliases":["demo","org/fake"]`, `"n_vocab":260`, `"n_ctx_train":4096`, `"n_params":1000`, `"size":4000`)
	resp := s.post(t, "/v1/completions", `{"prompt": "x", "model": "big"}`)
	want(t, resp.StatusCode, readAll(t, resp), 404, "small, demo, org/fake", "model_not_found")
}

func TestProps(t *testing.T) {
	s := start(t, server.Config{}, &servertest.Engine{})
	status, b := s.get(t, "/props")
	// The hash is `printf chatml | sha256sum`.
	want(t, status, b, 200, `"total_slots":2`, `"chat_template":"chatml"`, `"n_ctx":512`, `"kernels":"none"`, `"build_info":"baton-test"`,
		`"chat_template_sha256":"1e53ec5bf20c1dc9cea38577f9081373e97694037ff51ab6efb47721d8ea76b0"`, `"default_generation_settings":{"id":0,"n_ctx":512,`, `"temperature":0.8`)
}

func TestExposure(t *testing.T) {
	for host, ok := range map[string]bool{"127.0.0.1": true, "127.8.9.1": true, "::1": true, "localhost": true, "LOCALHOST": true,
		"0.0.0.0": false, "::": false, "": false, "192.168.1.5": false, "example.org": false, "localhost.example.org": false} {
		if err := server.CheckExposure(host, nil); (err == nil) != ok {
			t.Errorf("%q without a key: %v", host, err)
		}
		if err := server.CheckExposure(host, []string{"k"}); err != nil {
			t.Errorf("%q with a key: %v", host, err)
		}
	}
}

func TestReadKeys(t *testing.T) {
	keys, err := server.ReadKeys(strings.NewReader("# ours\n\n  alpha \r\nbeta"))
	if diff := cmp.Diff([]string{"alpha", "beta"}, keys); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	for _, bad := range []string{"", "# nothing\n", "two words", "caf\u00e9", "a\x00b"} {
		if keys, err := server.ReadKeys(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: %q and no error", bad, keys)
		}
	}
}
