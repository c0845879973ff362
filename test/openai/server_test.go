package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const (
	key       = "test-key"
	slowLimit = 60 * time.Second // for anything on a busy machine
)

// baseURL is where the server that all tests share answers.
var baseURL string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "baton-openai-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	stop, err := serve(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return m.Run()
}

// serve starts the binary that BATON_BIN names, or a fresh build, with the demo model
// and a key.
func serve(dir string) (stop func(), err error) {
	bin := os.Getenv("BATON_BIN")
	if bin == "" {
		bin = filepath.Join(dir, "baton")
		build := exec.Command("go", "build", "-o", bin, "./cmd/baton")
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building baton: %w\n%s", err, out)
		}
	}
	keys := filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, []byte(key+"\n"), 0o600); err != nil {
		return nil, err
	}
	var out output
	cmd := exec.Command(bin, "serve", "--host", "127.0.0.1", "--port", "0", "--api-key-file", keys)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
		_ = cmd.Wait()                          // how it ends is tested elsewhere
	}
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	for end := time.Now().Add(slowLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		url := address.FindString(out.String())
		if url == "" {
			continue
		}
		resp, err := http.Get(url + "/health")
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			baseURL = url
			return stop, nil
		}
	}
	stop()
	return nil, fmt.Errorf("baton serve is not healthy after %v; its output:\n%s", slowLimit, out.String())
}

// output collects what the server writes while it is read from.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// client is one that asks once: a retry would hide an error.
func client(apiKey string) *openai.Client {
	c := openai.NewClient(option.WithBaseURL(baseURL+"/v1/"), option.WithAPIKey(apiKey), option.WithMaxRetries(0), option.WithRequestTimeout(slowLimit))
	return &c
}

// golden is one prompt of the demo model and what an independent float32 reference
// makes of it.
type golden struct {
	Name   string
	Prompt string
	Tokens []int32
	Answer string `json:"answer_text"`
}

func goldens(t *testing.T) map[string]golden {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "internal", "demo", "model", "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Prompts []golden }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	m := map[string]golden{}
	for _, g := range file.Prompts {
		m[g.Name] = g
	}
	return m
}
