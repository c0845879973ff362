package bench

import (
	"bytes"
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
	"syscall"
	"time"
)

// decoderProcess is a "baton decode" that was started to be measured.
type decoderProcess struct {
	*child
	dir  string // its run directory, which is removed at the end
	http http.Client
}

// child is a program of ours that runs until it is told to end.
type child struct {
	cmd    *exec.Cmd
	pid    int
	stderr tail
	exited chan struct{}
	err    error // when it has ended
}

func startChild(ctx context.Context, path string, args ...string) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, path, args...), exited: make(chan struct{})}
	c.cmd.Stderr = &c.stderr
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	c.pid = c.cmd.Process.Pid
	go func() {
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

// stop ends the program, which must end well.
func (c *child) stop() error {
	select {
	case <-c.exited:
		return c.failed()
	default:
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended meanwhile
	select {
	case <-c.exited:
	case <-time.After(10 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
	if c.err != nil {
		return c.failed()
	}
	return nil
}

// failed is the error of a program that ended when it should not have.
func (c *child) failed() error {
	return fmt.Errorf("bench: %s ended: %v%s", strings.Join(c.cmd.Args, " "), c.cmd.ProcessState, c.stderr.text())
}

// startDecoder starts a decoder with slots of ctxSize cells and waits until it answers.
func startDecoder(ctx context.Context, path, model string, ctxSize, slots, threads int, args ...string) (*decoderProcess, error) {
	dir, err := os.MkdirTemp("", "baton-bench-")
	if err != nil {
		return nil, err
	}
	files := filepath.Join(dir, filesDir) // without it no slot could be erased
	if err := os.Mkdir(files, 0o700); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	args = append([]string{"decode", "--run-dir", dir, "--slot-save-path", files, "-c", strconv.Itoa(ctxSize), "-np", strconv.Itoa(slots), "-t", strconv.Itoa(threads)}, args...)
	if model != "" {
		args = append(args, "-m", model)
	}
	c, err := startChild(ctx, path, args...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d := &decoderProcess{child: c, dir: dir}
	// A share dies with its connection, so one is used for all actions.
	d.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "decoder.sock"))
	}}
	if err := d.ready(ctx); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

func (d *decoderProcess) ready(ctx context.Context) error {
	const most = 60 * time.Second
	for end := time.Now().Add(most); time.Now().Before(end); {
		if _, err := os.Stat(filepath.Join(d.dir, "provider.sock")); err == nil {
			resp, err := d.get(ctx, "/health")
			if err == nil && resp == http.StatusOK {
				return nil
			}
		}
		select {
		case <-d.exited:
			return d.failed()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("bench: the decoder does not answer after %v%s", most, d.stderr.text())
}

func (d *decoderProcess) get(ctx context.Context, path string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://decoder"+path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

func (d *decoderProcess) stop() error {
	d.http.CloseIdleConnections()
	return errors.Join(d.child.stop(), os.RemoveAll(d.dir))
}

// files is where the decoder saves slots to and restores them from.
func (d *decoderProcess) files() string { return filepath.Join(d.dir, filesDir) }

const filesDir = "files"

// action performs an action on slot 0.
func (d *decoderProcess) action(ctx context.Context, name string, body, answer any) error {
	return d.slotAction(ctx, 0, name, body, answer)
}

func (d *decoderProcess) slotAction(ctx context.Context, slot int, name string, body, answer any) error {
	return d.post(ctx, fmt.Sprintf("/slots/%d?action=%s", slot, name), body, answer)
}

// post sends a request and decodes the answer, unless that is an error.
func (d *decoderProcess) post(ctx context.Context, path string, body, answer any) error {
	resp, err := d.send(ctx, path, body)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("bench: POST %s: %s: %s", path, resp.Status, bytes.TrimSpace(data))
	}
	return json.Unmarshal(data, answer)
}

func (d *decoderProcess) send(ctx context.Context, path string, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://decoder"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return d.http.Do(req)
}

// completion is a request for a greedy answer that goes on past its end token.
type completion struct {
	Prompt      []int32 `json:"prompt"`
	Slot        int     `json:"id_slot"`
	N           int     `json:"n_predict"`
	Temperature float64 `json:"temperature"`
	IgnoreEOS   bool    `json:"ignore_eos"`
	Stream      bool    `json:"stream"`
}

// complete asks for one token and returns how long that took. The decoder must process
// exactly promptN tokens for it, unless that is negative.
func (d *decoderProcess) complete(ctx context.Context, prompt []int32, slot, promptN int) (time.Duration, error) {
	var a struct {
		Timings struct {
			PromptN int `json:"prompt_n"`
		} `json:"timings"`
	}
	began := time.Now()
	if err := d.post(ctx, "/completion", &completion{Prompt: prompt, Slot: slot, N: 1, IgnoreEOS: true}, &a); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if got := a.Timings.PromptN; promptN >= 0 && got != promptN {
		return 0, fmt.Errorf("bench: the decoder processed %d tokens of a prompt of %d, expected %d", got, len(prompt), promptN)
	}
	return took, nil
}

// settle waits until the decoder uses hardly any CPU time: it has made blocks ready.
func (d *decoderProcess) settle(ctx context.Context) error {
	const step, most = 20 * time.Millisecond, 10 * time.Second
	last, quiet := cpuTime(d.pid), 0
	for range int(most / step) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.exited:
			return d.failed()
		case <-time.After(step):
		}
		now := cpuTime(d.pid)
		if quiet++; now-last > step/20 {
			quiet = 0
		}
		if last = now; quiet == 3 {
			return nil
		}
	}
	return errors.New("bench: the decoder keeps using the CPU while it has nothing to do")
}
