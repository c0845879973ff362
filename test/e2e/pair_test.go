package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"baton/internal/control"
)

// pair is a decoder and a provider as processes that no server looks after.
type pair struct {
	*server          // the decoder
	provider *server // nil: there is none yet
	trust    string
}

// startLoneDecoder starts `baton decode` for handoffs in a trust mode. Actions share a
// connection, as a share dies with its own.
func startLoneDecoder(t testing.TB, trust string, args ...string) *pair {
	t.Helper()
	path := socketPath(t)
	p := &pair{server: startDecode(t, path, append([]string{"--handoff", trust}, args...)...), trust: trust}
	transport := &http.Transport{MaxConnsPerHost: 1, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	p.client = &http.Client{Transport: transport}
	return p
}

// startProvider starts `baton prefill` for the decoder.
func (p *pair) startProvider(t testing.TB, args ...string) {
	t.Helper()
	args = append([]string{"prefill", "--connect", p.providerSocket(), "--trust", p.trust}, args...)
	p.provider = launch(t, exec.Command(batonBin, args...))
}

func (p *pair) providerSocket() string {
	for i, a := range p.cmd.Args {
		if a == "--socket" {
			return filepath.Join(filepath.Dir(p.cmd.Args[i+1]), "provider.sock")
		}
	}
	panic("a decoder without --socket")
}

// handOver has the provider fill the cells of a prompt, and the decoder's slot 0 adopt
// them. It returns what the decoder said to the share.
func (p *pair) handOver(t testing.TB, tokens []int32) control.ShareAnswer {
	t.Helper()
	share := p.share(t, tokens)
	if share.Filled != len(tokens)-1 {
		t.Fatalf("share: %d cells are filled, want %d: %s", share.Filled, len(tokens)-1, share.Stopped)
	}
	adopt := p.mustPost(t, "/slots/0?action=adopt", map[string]any{"share_id": share.ID, "tokens": tokens, "require": "all"})
	if adopt.num("filled") != len(tokens)-1 || adopt.num("bytes_copied") != 0 || adopt.str("trust") != p.trust {
		t.Fatalf("adopt: %v, want %d cells, %s, no byte copied", adopt, len(tokens)-1, p.trust)
	}
	return share
}

func (p *pair) share(t testing.TB, tokens []int32) (a control.ShareAnswer) {
	t.Helper()
	for end := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		resp, err := p.send(t.Context(), "POST", "/slots/0?action=share", &control.ShareRequest{Provider: "cpu", Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusOK {
			if err := json.Unmarshal(body, &a); err != nil {
				t.Fatal(err)
			}
			return a
		}
		// It may not have registered yet.
		if !strings.Contains(string(body), "provider_unreachable") || time.Now().After(end) {
			t.Fatalf("share: %s: %s", resp.Status, body)
		}
	}
}

// answer is slot 0's greedy answer to a prompt.
func (p *pair) answer(t testing.TB, tokens []int32, n int) object {
	t.Helper()
	return p.mustPost(t, "/completion", map[string]any{
		"prompt": tokens, "id_slot": 0, "n_predict": n, "temperature": 0, "ignore_eos": true, "n_probs": 5, "return_tokens": true,
	})
}

// pid is the decoder's.
func (p *pair) pid() int { return p.cmd.Process.Pid }

// vma is a mapping of a process, as /proc/PID/smaps tells.
type vma struct {
	start, end, offset uint64
	perms, path        string
	inode              uint64
	bytes              map[string]int64 // by name: Rss, Pss, Private_Dirty, ...
}

func (m *vma) writable() bool { return strings.Contains(m.perms, "w") }

// kv reports whether the mapping is a block of the cache.
func (m *vma) kv() bool { return strings.HasPrefix(m.path, "/memfd:baton-kv") }

// mappings are those of a process that runs.
func mappings(pid int) (list []vma, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) >= 5 && strings.Contains(f[0], "-") {
			var m vma
			if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &m.start, &m.end, &m.perms, &m.offset, new(string), &m.inode); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			if len(f) > 5 {
				m.path = f[5]
			}
			m.bytes = map[string]int64{}
			list = append(list, m)
			continue
		}
		if len(f) == 3 && f[2] == "kB" && len(list) > 0 {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			list[len(list)-1].bytes[strings.TrimSuffix(f[0], ":")] = n << 10
		}
	}
	return list, nil
}
