package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"baton/internal/decoder"
	"baton/internal/demo"
	"baton/internal/engine"
	"baton/internal/gguf"
	"baton/internal/handoff"
	"baton/internal/model"
	"baton/internal/vocab"
)

// ownDecoder is a decoder of the built-in model in this process.
func ownDecoder(t *testing.T, o handoff.Options) (*decoder.Decoder, *handoff.Table) {
	t.Helper()
	f, err := gguf.Parse(demo.GGUF(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.New(f)
	if err != nil {
		t.Fatal(err)
	}
	d, err := decoder.New(m, v, decoder.Options{Slots: 1, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	table, err := d.NewTable(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if err := table.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return d, table
}

// checkFilled has a prompt filled and adopted, and its answer compared with that of the
// reference implementation.
func checkFilled(t *testing.T, d *decoder.Decoder, table *handoff.Table, g demo.Prompt, r handoff.Request) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	r.Tokens = g.Tokens
	s, err := table.Share(ctx, &r)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := table.Wait(ctx, 0, s.ID); err != nil || out.Err != nil {
		t.Fatalf("%+v, %v", out, err)
	}
	digest := handoff.PromptDigest(g.Tokens)
	if _, err := table.Adopt(ctx, &handoff.AdoptRequest{ID: s.ID, Digest: &digest, All: true}); err != nil {
		t.Fatal(err)
	}
	q := engine.NewRequest(g.Tokens)
	q.Sampling.Temperature, q.MaxTokens = 0, 32
	st, err := d.Generate(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for {
		e, err := st.Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		text += e.Text
		if e.Kind == engine.Done {
			if text += e.Result.Text; text != g.Answer || e.Result.Timings.PromptN != 1 {
				t.Errorf("%q after %d prompt tokens, want %q after 1", text, e.Result.Timings.PromptN, g.Answer)
			}
			return
		}
	}
}

// prefillCommand is "baton prefill", which is killed with the test.
func prefillCommand(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), batonBin, append([]string{"prefill", "-t", "1"}, args...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	return cmd, &log
}

// A provider that waits at a socket is sandboxed there, works for one decoder after the
// other, and ends when it is asked to.
func TestPrefillListen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	cmd, log := prefillCommand(t, "--listen", filepath.Join(dir, "prefill.sock"), "--nice", "5")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The directory is made by the provider, and the socket is there before it listens.
	for end := time.Now().Add(startLimit); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("unix", filepath.Join(dir, "prefill.sock"))
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no provider: %v\n%s", err, log)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	g, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	for _, trust := range []handoff.Trust{handoff.Leased, handoff.Sealed} {
		d, table := ownDecoder(t, handoff.Options{RunDir: root})
		checkFilled(t, d, table, g[1], handoff.Request{Socket: "prefill.sock", Policy: handoff.Policy{Trust: trust}})
	}
	if nice, err := unix.Getpriority(unix.PRIO_PROCESS, cmd.Process.Pid); err != nil || 20-nice < 5 {
		t.Errorf("niceness %d, %v", 20-nice, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
	if strings.Contains(log.String(), "seccomp") && !bytes.Contains(status, []byte("Seccomp:\t2")) {
		t.Errorf("it says that it is restricted:\n%s\nbut is not:\n%s", log, status)
	}
}

// A provider at an inherited socket fills one prompt and ends.
func TestPrefillOnce(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	cmd, log := prefillCommand(t, "--fds", "3", "--micro-batch", "64")
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	process, err := handoff.OpenProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	d, table := ownDecoder(t, handoff.Options{})
	p, err := table.Register(t.Context(), c.(*net.UnixConn), handoff.Policy{Trust: handoff.Leased, Process: process})
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	g, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	checkFilled(t, d, table, g[2], handoff.Request{Provider: p.Name()})
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
}

// A prompt that was processed into a file is restored by a decoder, which then processes
// one token of it.
func TestPrefillToFile(t *testing.T) {
	g, err := demo.Golden()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := json.Marshal(g[2].Tokens)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd, log := prefillCommand(t, "--out", filepath.Join(dir, "recall.bin"))
	cmd.Stdin = bytes.NewReader(ids)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	s := startServer(t, "--slot-save-path", dir, "--prefill", "none", "-t", "1")
	defer s.stop(t)
	s.mustPost(t, "/slots/1?action=restore", object{"filename": "recall.bin"})
	r := s.mustPost(t, "/completion", object{"prompt": g[2].Tokens, "n_predict": 32, "temperature": 0, "id_slot": 1})
	if got := r.str("content"); got != g[2].Answer || r.num("timings", "prompt_n") != 1 {
		t.Errorf("%q after %d prompt tokens, want %q after 1", got, r.num("timings", "prompt_n"), g[2].Answer)
	}
}
