package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serverWith starts `baton serve` with further environment variables.
func serverWith(t testing.TB, env []string, args ...string) *server {
	t.Helper()
	cmd := exec.Command(batonBin, append([]string{"serve", "--port", "0"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	s := launch(t, cmd)
	var err error
	if s.url, err = waitHealthy(s.out.String, s.exited); err != nil {
		t.Fatalf("baton serve %q: %v; its output:\n%s", args, err, s.out)
	}
	return s
}

// providerReady waits until prompts can be handed over, for the nth time.
func (s *server) providerReady(t testing.TB, n int) {
	t.Helper()
	for end := time.Now().Add(startLimit); strings.Count(s.out.String(), "prompts can be handed over") < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the provider is not ready for the %d. time:\n%s", n, s.out)
		}
	}
}

// greedy is the answer to a prompt, in a number of tokens.
func (s *server) greedy(t testing.TB, prompt string, tokens int) object {
	t.Helper()
	return s.mustPost(t, "/completion", map[string]any{"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": true})
}

// document is a text of about four times as many tokens as it has sentences times three,
// that no other number shares a prefix with.
func document(n, sentences int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d. ", n)
	for i := range sentences {
		fmt.Fprintf(&b, "The %s went down to the river and saw the %s. ",
			[]string{"fox", "owl", "old king", "youngest son"}[i%4], []string{"moon", "boat", "bridge"}[(i+n)%3])
	}
	return b.String()
}

// The text after a prompt is the reference's, to the letter, by whichever route its cells
// came into the cache, and the decoder has processed one token of it.
func TestHandedOverText(t *testing.T) {
	local := startServer(t, "--prefill", "none")
	for _, mode := range []string{"leased", "sealed", "attached", "file"} {
		t.Run(mode, func(t *testing.T) {
			s := startServer(t, "--handoff", mode, "--prefill-min-tokens", "100")
			route, trust := "shared", mode
			if mode == "file" {
				route, trust = "file", ""
			} else {
				s.providerReady(t, 1)
			}
			check := func(o object, want string) {
				t.Helper()
				if got := o.str("content"); got != want {
					t.Errorf("text %q, want %q", got, want)
				}
				n := o.num("tokens_evaluated")
				if o.str("timings", "route") != route || o.str("timings", "trust") != trust || o.num("timings", "prompt_n") != 1 ||
					o.num("timings", "cells")+o.num("timings", "cache_n") != n-1 || (o.num("timings", "bytes_copied") == 0) != (mode != "file") {
					t.Errorf("%d tokens: timings %v", n, o["timings"])
				}
			}
			for _, g := range goldenPrompts(t) {
				if len(g.Tokens) > 200 { // computed in float32 by an independent program
					check(s.mustPost(t, "/completion", map[string]any{"prompt": g.Text, "n_predict": 32, "temperature": 0}), g.Answer)
				}
			}
			for i, sentences := range []int{20, 75, 160} {
				prompt := document(i, sentences)
				check(s.greedy(t, prompt, 32), local.greedy(t, prompt, 32).str("content"))
			}
			if out := s.out.String(); strings.Count(out, `msg="handoff: `) != 5 || strings.Contains(out, " 0 bytes copied") != (mode != "file") {
				t.Errorf("not one line a handoff:\n%s", out)
			}
		})
	}
}

// Tokens that a provider has processed are not counted as reused, although the decoder finds
// their cells in its cache.
func TestHandedOverTokensAreCounted(t *testing.T) {
	s := startServer(t, "--prefill-min-tokens", "100")
	s.providerReady(t, 1)
	n := 0
	for range 2 { // the second time all but the last token is reused, and nothing handed over
		o := s.greedy(t, document(0, 75), 1)
		n = o.num("tokens_evaluated")
	}
	var missing []string
	for end := time.Now().Add(startLimit); ; time.Sleep(5 * time.Millisecond) { // the decoder's counts may be a step old
		missing = nil
		page := get(t, s, "/metrics")
		for name, want := range map[string]int{
			`baton_prompt_tokens_total{source="provider"}`:           n - 1,
			`baton_prompt_tokens_total{source="processed"}`:          2,
			`baton_prompt_tokens_total{source="cached"}`:             n - 1,
			`llamacpp:prompt_tokens_total`:                           n + 1,
			`vllm:prompt_tokens_total{model_name="Demo 13M"}`:        n + 1,
			`vllm:prefix_cache_hits_total{model_name="Demo 13M"}`:    n - 1,
			`vllm:prefix_cache_queries_total{model_name="Demo 13M"}`: 2 * n,
		} {
			if line := fmt.Sprintf("\n%s %d\n", name, want); !strings.Contains(page, line) {
				missing = append(missing, line)
			}
		}
		if len(missing) == 0 || time.Now().After(end) {
			break
		}
	}
	if len(missing) > 0 {
		t.Errorf("%d tokens: no lines %q in /metrics", n, missing)
	}
}

// The turns of a conversation are handed over from where the cache ends.
func TestConversation(t *testing.T) {
	local, s := startServer(t, "--prefill", "none"), startServer(t, "--prefill-min-tokens", "100")
	s.providerReady(t, 1)
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var chat []message
	before := 0
	for turn, sentences := range []int{100, 25, 25} {
		chat = append(chat, message{"user", document(turn, sentences) + "What did the fox see?"})
		body := map[string]any{"messages": chat, "max_tokens": 16, "temperature": 0}
		o, want := s.mustPost(t, "/v1/chat/completions", body), local.mustPost(t, "/v1/chat/completions", body)
		got := o.choice().str("message", "content")
		if got != want.choice().str("message", "content") {
			t.Errorf("turn %d: %q, want %q", turn, got, want.choice().str("message", "content"))
		}
		n, cells, cached := o.num("usage", "prompt_tokens"), o.num("timings", "cells"), o.num("timings", "cache_n")
		if o.str("timings", "route") != "shared" || o.num("timings", "prompt_n") != 1 || cells+cached != n-1 || cached < before {
			t.Errorf("turn %d: %d tokens after %d: timings %v", turn, n, before, o["timings"])
		}
		if o.num("usage", "prompt_tokens_details", "cached_tokens") != cached {
			t.Errorf("turn %d: usage %v, cached were %d", turn, o["usage"], cached)
		}
		before = n - 1
		chat = append(chat, message{"assistant", got})
	}
}

// A provider that dies at any step of a handoff costs no answer and changes none. The next
// one takes over.
func TestProviderDies(t *testing.T) {
	local := startServer(t, "--prefill", "none")
	points := []string{"header", "advance:2", "reply"}
	if os.Getenv("BATON_SLOW") != "" {
		points = append(points, "received", "mapped", "advance", "unmap", "replied")
	}
	for i, point := range points {
		t.Run(point, func(t *testing.T) {
			s := serverWith(t, []string{"BATON_FAILPOINTS=provider." + point + "=kill"})
			s.providerReady(t, 1)
			for n := range 2 {
				prompt := document(10*i+n, 100)
				o := s.greedy(t, prompt, 16)
				if got, want := o.str("content"), local.greedy(t, prompt, 16).str("content"); got != want {
					t.Errorf("text %q, want %q", got, want)
				}
				cells, all := o.num("timings", "cells"), o.num("tokens_evaluated")-1-o.num("timings", "cache_n")
				if cells+o.num("timings", "prompt_n") != all+1 {
					t.Errorf("timings %v", o["timings"])
				}
				switch point {
				case "advance:2": // one micro-batch was announced
					if cells == 0 || cells == all {
						t.Errorf("%d cells of %d were adopted, want those of a micro-batch", cells, all)
					}
				case "unmap", "reply", "replied": // everything was
					if cells != all {
						t.Errorf("%d cells of %d were adopted", cells, all)
					}
				}
				if n == 0 {
					s.providerReady(t, 2)
				}
			}
			s.alive(t)
		})
	}
}

// Providers that are killed or stopped at random moments.
func TestProviderKilled(t *testing.T) {
	rounds := 4
	if os.Getenv("BATON_SLOW") != "" {
		rounds = 60
	}
	local := startServer(t, "--prefill", "none")
	s := startServer(t, "--prefill-stall", "300ms")
	s.providerReady(t, 1)
	random := rand.New(rand.NewPCG(3, 2)) // the same moments every time
	s.greedy(t, document(1000, 60), 1)    // opens the connection that handoffs go over
	leak := newLeak(t, s.cmd.Process.Pid)
	old := 0
	for n := range rounds {
		prompt := document(n, 160)
		p := s.childOf(t, "prefill", old)
		delay, sig := time.Duration(random.IntN(150))*time.Millisecond, syscall.SIGKILL
		if n%2 == 1 {
			sig = syscall.SIGSTOP
		}
		go func() {
			time.Sleep(delay)
			_ = syscall.Kill(p.pid, sig)
		}()
		o := s.greedy(t, prompt, 16)
		if got, want := o.str("content"), local.greedy(t, prompt, 16).str("content"); got != want {
			t.Errorf("%v after %v: text %q, want %q", sig, delay, got, want)
		}
		if cells := o.num("timings", "cells"); cells+o.num("timings", "prompt_n")+o.num("timings", "cache_n") != o.num("tokens_evaluated") {
			t.Errorf("%v after %v: timings %v", sig, delay, o["timings"])
		}
		old = p.pid
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // if it was done before its time
		s.alive(t)
	}
	leak.check(t)
}

// A program that is not ours gets the prompts: here our own provider, under another name
// and for one prompt only, which the decoder takes for somebody else's.
func TestForeignProgram(t *testing.T) {
	s := startServer(t, "--prefill", "exec:"+batonBin+" prefill --fds 3 --name npu --trust sealed", "--prefill-min-tokens", "100")
	s.providerReady(t, 1)
	for _, g := range goldenPrompts(t) {
		if len(g.Tokens) < 1000 {
			continue
		}
		o := s.mustPost(t, "/completion", map[string]any{"prompt": g.Text, "n_predict": 32, "temperature": 0})
		if got := o.str("content"); got != g.Answer {
			t.Errorf("text %q, want %q", got, g.Answer)
		}
		if o.str("timings", "route") != "shared" || o.str("timings", "trust") != "sealed" || o.num("timings", "prompt_n") != 1 {
			t.Errorf("timings %v", o["timings"])
		}
	}

	r := runBaton(t, startLimit, "serve", "--port", "0", "--prefill", "exec:/no/such/program")
	if r.code <= 0 || !strings.Contains(r.out, "/no/such/program") {
		t.Errorf("a program that is not there: exit code %d: %s", r.code, r.out)
	}
}

// Many handoffs and many dead providers leave nothing behind.
func TestHandoffSoak(t *testing.T) {
	if os.Getenv("BATON_SLOW") == "" {
		t.Skip("takes minutes: BATON_SLOW=1 runs it")
	}
	const handoffs, kills = 1000, 200
	local, s := startServer(t, "--prefill", "none"), startServer(t, "--prefill-min-tokens", "100")
	s.providerReady(t, 1)
	random := rand.New(rand.NewPCG(3, 3)) // the same moments every time
	decoder := s.childOf(t, "decode", 0)
	one := func(n int) {
		t.Helper()
		prompt := document(n, 12)
		o := s.greedy(t, prompt, 4)
		if n%20 == 0 {
			if got, want := o.str("content"), local.greedy(t, prompt, 4).str("content"); got != want {
				t.Errorf("prompt %d: text %q, want %q", n, got, want)
			}
		}
	}
	for n := range 200 { // until the cache is full
		one(n)
	}
	type usage struct{ gateway, decoder, gatewayKiB, decoderKiB, goroutines int }
	now := func() usage {
		return usage{
			descriptors(t, s.cmd.Process.Pid), descriptors(t, decoder.pid),
			residentKiB(t, s.cmd.Process.Pid), residentKiB(t, decoder.pid), s.goroutines(t),
		}
	}
	before := now()
	killed, ready := 0, 1
	for n := 200; n < 200+handoffs; n++ {
		if (n-200)*kills/handoffs == killed {
			p := s.childOf(t, "prefill", 0)
			time.AfterFunc(time.Duration(random.IntN(40))*time.Millisecond, func() { _ = syscall.Kill(p.pid, syscall.SIGKILL) })
			one(n)
			killed++
			ready++
			s.providerReady(t, ready)
			time.Sleep(100 * time.Millisecond) // one that dies at once is given longer and longer pauses
			continue
		}
		one(n)
	}
	s.healthy(t)
	var after usage
	for end := time.Now().Add(stopLimit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if after = now(); after.gateway <= before.gateway && after.decoder <= before.decoder && after.goroutines <= before.goroutines {
			break
		}
	}
	t.Logf("before %+v, after %+v, %d providers killed", before, after, killed)
	if after.gateway > before.gateway || after.decoder > before.decoder || after.goroutines > before.goroutines {
		t.Error("descriptors or goroutines are left")
	}
	if after.gatewayKiB > before.gatewayKiB*3/2 || after.decoderKiB > before.decoderKiB*3/2 {
		t.Error("memory has grown")
	}
}

// residentKiB is the resident memory of a process.
func residentKiB(t testing.TB, pid int) (kib int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// goroutines is the number of them in the server's own process.
func (s *server) goroutines(t testing.TB) (n int) {
	t.Helper()
	resp, err := s.send(t.Context(), "GET", "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\ngo_goroutines ")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
