package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"baton/internal/server"
	"baton/internal/server/servertest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started is a server over a fake engine, with a client of its own.
type started struct {
	*server.Server
	url    string
	client *http.Client
	engine *servertest.Engine
}

// start serves e until the test ends.
func start(t *testing.T, cfg server.Config, e *servertest.Engine) *started {
	t.Helper()
	if cfg.Version == "" {
		cfg.Version = "baton-test"
	}
	s := server.New(cfg)
	if e != nil {
		s.SetBackend(server.Backend{Engine: e, Tokenizer: servertest.Tokenizer{}, Template: servertest.Template{}})
	}
	ts := httptest.NewServer(s)
	client := &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Minute}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		ts.Close()
	})
	return &started{s, ts.URL, client, e}
}

func TestHostile(t *testing.T) {
	s := start(t, server.Config{}, &servertest.Engine{Reply: "Hello"})
	cases := servertest.Hostile()
	if len(cases) < 60 {
		t.Errorf("only %d cases", len(cases))
	}
	servertest.Run(t, s.client, s.url, nil, cases)
	t.Logf("%d cases", len(cases))
}
