package handoff

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// providerPoints is where a provider can fail, and how many cells are filled by then:
// with micro-batches of 8 tokens, "provider.advance:3" is after 16.
var providerPoints = []struct {
	point  string
	filled int
}{
	{failReceived, 0},
	{failMapped, 0},
	{failHeader, 0},
	{failAdvance, 0},
	{failAdvance + ":3", 16},
	{failUnmap, 53},
	{failReply, 53},
	{failReplied, 53},
}

// A provider that dies, hangs or fails at each point: the prompt is answered, with what
// it has filled, and nothing is lost.
func TestProviderFails(t *testing.T) {
	for _, mode := range []struct {
		name   string
		policy Policy
	}{{"leased", Policy{}}, {"sealed", Policy{Trust: Sealed, Foreign: true}}, {"attached", Policy{Trust: Attached}}} {
		for _, action := range []string{"kill", "exit", "error", "stop"} {
			for _, c := range providerPoints {
				// What differs between the modes is how it is known that the provider has
				// let go: with rows written and others not, and with everything done.
				if mode.name != "leased" && (action == "exit" || c.point != failAdvance+":3" && c.point != failReply) {
					continue
				}
				t.Run(mode.name+" "+action+" "+c.point, func(t *testing.T) {
					r := newRig(t, nil)
					p, cmd := r.spawn("cpu", c.point+"="+action, mode.policy)
					testFailure(t, r, p, cmd, action, c.point, c.filled)
				})
			}
		}
	}
}

func testFailure(t *testing.T, r *rig, p *Provider, cmd *exec.Cmd, action, point string, filled int) {
	t.Helper()
	tokens := prompt(1, 54)
	s, err := r.table.Share(context.Background(), &Request{Slot: 0, Provider: "cpu", Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	if action == "stop" {
		if point == failReply || point == failUnmap || point == failReplied {
			// It has filled everything. Only after its reply has it let go for certain.
			eventually(t, "all is filled", func() bool {
				n, err := r.table.Progress(0, s.ID)
				return err == nil && n == 53
			})
		}
		waitStopped(t, cmd.Process.Pid)
		if point == failHeader || point == failAdvance+":3" {
			// As long as it is only stopped nothing can be adopted.
			if _, err := r.adopt(s, tokens); code(err) != StillWritable {
				t.Fatalf("adopted from a stopped provider: %v", err)
			}
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			r.isolated()
			return
		}
		if err := p.Kill(); err != nil { // as whoever supervises it does
			t.Fatal(err)
		}
	}
	out := r.wait(s)
	if out.Filled != filled {
		t.Errorf("%d cells are said to be filled, want %d", out.Filled, filled)
	}
	if (out.Err == nil) != (point == failReplied) {
		t.Errorf("the outcome is %v", out.Err)
	}
	a, err := r.adopt(s, tokens)
	if point == failReceived || point == failMapped { // no header
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Code != HeaderMissing && refusal.Code != ProviderGone {
			t.Errorf("adopted without a header: %v", err)
		}
	} else if err != nil {
		t.Errorf("what it filled is lost: %v", err)
	} else {
		if a.Filled != filled {
			t.Errorf("%d cells adopted, want %d", a.Filled, filled)
		}
		r.checkSlot(0, tokens, filled)
		r.decode(0, tokens, 3)
	}
	r.isolated()
	if action == "error" && point != failReply && point != failReplied {
		// It has only failed with this order.
		r.clean()
		r.handoff(p, 0, prompt(2, 60))
	}
}

// waitStopped waits until a process is stopped.
func waitStopped(t *testing.T, pid int) {
	t.Helper()
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("wait for process %d to stop: %v, status %#x", pid, err, status)
		}
		return
	}
}

// The decoder's own steps fail: nothing is lost either.
func TestDecoderFails(t *testing.T) {
	defer func(old func() (map[string]*failpoint, error)) { loadFailpoints = old }(loadFailpoints)
	for _, point := range []string{failSend, failSent, failAdopt, failConfirmed, failChecked} {
		t.Run(point, func(t *testing.T) {
			points, err := parseFailpoints(point + "=error")
			if err != nil {
				t.Fatal(err)
			}
			loadFailpoints = func() (map[string]*failpoint, error) { return points, nil }
			r := newRig(t, nil)
			r.provide(honest("cpu"), Policy{})
			tokens := prompt(1, 54)
			s, err := r.table.Share(context.Background(), &Request{Slot: 0, Provider: "cpu", Tokens: tokens})
			if err == nil {
				r.wait(s)
				_, err = r.adopt(s, tokens)
			}
			if !errors.Is(err, errFailpoint) {
				t.Errorf("got %v", err)
			}
			r.isolated()
			eventually(t, "all blocks are free", func() bool { return r.pool.Stats().Used == 0 })
			if r.table.Stats().Shares != 0 {
				t.Error("the share is still there")
			}
		})
	}
}

// Handoffs, every fourth of them with a provider that is killed at some moment, in every
// way they can end: in the end there is as much of everything as at the start.
func TestSoak(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	r := newRig(t, nil)
	random := rand.New(rand.NewPCG(1, 2))
	p, cmd := r.spawn("cpu", "", Policy{})
	adopted, killed := 0, 0
	for i := range rounds {
		slot := random.IntN(4)
		tokens := prompt(int32(random.IntN(3)), 20+random.IntN(150))
		s, err := r.table.Share(context.Background(), &Request{Slot: slot, Provider: "cpu", Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		kill := i%4 == 3
		if kill {
			killed++
			time.Sleep(time.Duration(random.IntN(400)) * time.Microsecond)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		r.wait(s)
		a, err := r.adopt(s, tokens)
		switch {
		case err == nil:
			adopted++
			r.checkSlot(slot, tokens, a.Filled)
			r.decode(slot, tokens, random.IntN(5))
		case !kill || code(err) != HeaderMissing && code(err) != ProviderGone:
			t.Errorf("round %d: %v", i, err)
		}
		if kill {
			<-p.Gone()
			_ = cmd.Wait()
			p, cmd = r.spawn("cpu", "", Policy{})
		}
		if random.IntN(3) == 0 {
			r.clean()
		}
	}
	r.clean()
	r.isolated()
	if st := r.pool.Stats(); st.Used+st.Cached != 0 || st.Blocks > st.Limit {
		t.Errorf("%+v", st)
	}
	t.Logf("%d of %d handoffs adopted, %d providers killed, %d goroutines", adopted, rounds, killed, runtime.NumGoroutine())
	if adopted < rounds/2 {
		t.Error("too few to have tested anything")
	}
}

func TestFailpoints(t *testing.T) {
	points, err := parseFailpoints("a=kill,b:3=20ms,c=error")
	if err != nil || len(points) != 3 || points["b"].after.Load() != 2 || points["b"].sleep != 20*time.Millisecond {
		t.Errorf("%v, %v", points, err)
	}
	for _, bad := range []string{"a", "a=", "a=run", "a:0=kill", "a:x=kill", "a=kill,"} {
		if _, err := parseFailpoints(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	defer func(old func() (map[string]*failpoint, error)) { loadFailpoints = old }(loadFailpoints)
	loadFailpoints = func() (map[string]*failpoint, error) { return points, nil }
	for i := range 4 {
		at := time.Now()
		if err := fail("b"); err != nil {
			t.Error(err)
		}
		if slept := time.Since(at) >= 20*time.Millisecond; slept != (i == 2) {
			t.Errorf("time %d: slept is %v", i+1, slept)
		}
	}
	if err := fail("c"); !errors.Is(err, errFailpoint) {
		t.Error(err)
	}
	if err := fail("none"); err != nil {
		t.Error(err)
	}
	if os.Getenv(failpointsEnv) != "" {
		t.Error("the tests run with fail points of their own")
	}
}
