package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// container is a shell in a mount namespace of its own, where /dev/shm is a fresh
// tmpfs of 64 MB, as container runtimes have it by default.
type container struct {
	shell *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
}

func newContainer(t *testing.T) *container {
	t.Helper()
	c := &container{shell: exec.Command("sh")}
	c.shell.Stderr = os.Stderr
	c.shell.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		c.shell.SysProcAttr.Unshareflags |= syscall.CLONE_NEWUSER
		c.shell.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		c.shell.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	in, err := c.shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.shell.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
			t.Skipf("no mount namespace can be made here: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // ends the shell
		_ = c.shell.Wait()
	})
	if got := c.do(t, "mount -t tmpfs -o size=64m tmpfs /dev/shm 2>&1 && echo mounted"); got != "mounted" {
		t.Skipf("no /dev/shm of 64 MB can be mounted here: %s", got)
	}
	return c
}

// do runs a command in the shell and returns what it prints.
func (c *container) do(t *testing.T, command string) string {
	t.Helper()
	const end = "--end-of-answer--"
	if _, err := fmt.Fprintf(c.in, "%s\necho %s\n", command, end); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			t.Fatalf("the shell ended in %q: %v", command, err)
		}
		if line = strings.TrimSuffix(line, "\n"); line == end {
			return strings.Join(lines, "\n")
		}
		lines = append(lines, line)
	}
}

// T14: in a container with 64 MB of /dev/shm the server starts and answers; killed, it
// leaves nothing behind; started again, it answers.
func TestSmallSharedMemoryAndKill(t *testing.T) {
	c := newContainer(t)
	dir := t.TempDir()
	for _, run := range []string{"first", "second"} {
		log := filepath.Join(dir, run)
		pid := c.do(t, fmt.Sprintf("'%s' serve --port 0 >'%s' 2>&1 & echo $!", batonBin, log))
		exited := make(chan struct{}) // never closed: the shell is the parent
		url, err := waitHealthy(func() string { b, _ := os.ReadFile(log); return string(b) }, exited)
		if err != nil {
			b, _ := os.ReadFile(log)
			t.Fatalf("%s start: %v; its output:\n%s", run, err, b)
		}
		s := &server{url: url, client: http.DefaultClient}
		// Two prompts of about 2,000 tokens, so that the cache holds several blocks.
		for _, word := range []string{"fox", "owl"} {
			o := s.mustPost(t, "/completion", map[string]any{
				"prompt": strings.Repeat("The "+word+" went down to the river. ", 220), "n_predict": 4, "temperature": 0,
			})
			if o.num("tokens_predicted") < 1 {
				t.Errorf("%s start: no token was generated: %v", run, o)
			}
		}
		c.do(t, "kill -9 "+pid+"; wait "+pid+" 2>/dev/null; true")
		if left := c.do(t, "ls -A /dev/shm"); left != "" {
			t.Errorf("%s start: kill -9 left in /dev/shm: %s", run, left)
		}
		waitGone(t, url)
	}
}

func waitGone(t *testing.T, url string) {
	t.Helper()
	for end := time.Now().Add(stopLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(url + "/health")
		if err != nil {
			return
		}
		resp.Body.Close()
	}
	t.Fatal("the killed server still answers")
}
