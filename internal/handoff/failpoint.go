package handoff

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Fail points are places where the environment can make this process fail, so that
// tests can kill either side at each step:
//
//	BATON_FAILPOINTS=NAME[:COUNT]=ACTION[,...]
//
// The action is taken when the point is reached for the COUNTth time (1). It is "kill"
// (SIGKILL to itself), "stop" (SIGSTOP), "exit" (with status 3), "error" (the step fails)
// or a duration to sleep. Without the variable a fail point costs one load.
const failpointsEnv = "BATON_FAILPOINTS"

// The points, in the order in which a handoff reaches them.
const (
	failSend      = "decoder.send"      // before the order is sent
	failSent      = "decoder.sent"      // after all descriptors are confirmed
	failReceived  = "provider.received" // the order is there, nothing is mapped
	failMapped    = "provider.mapped"   // everything is mapped, no header
	failHeader    = "provider.header"   // the header is written, no row
	failAdvance   = "provider.advance"  // rows are written, filled is not yet advanced
	failUnmap     = "provider.unmap"    // all rows are written, nothing is let go
	failReply     = "provider.reply"    // all is let go, there is no reply
	failReplied   = "provider.replied"  // after the reply
	failAdopt     = "decoder.adopt"     // the id is used up, nothing is leased
	failConfirmed = "decoder.confirmed" // leased or sealed, nothing is compared
	failChecked   = "decoder.checked"   // compared, not attached
)

type failpoint struct {
	after  atomic.Int64 // how often it still passes
	action string
	sleep  time.Duration
}

var loadFailpoints = sync.OnceValues(func() (map[string]*failpoint, error) {
	return parseFailpoints(os.Getenv(failpointsEnv))
})

// parseFailpoints parses the value of the environment variable.
func parseFailpoints(value string) (map[string]*failpoint, error) {
	if value == "" {
		return nil, nil
	}
	points := map[string]*failpoint{}
	for item := range strings.SplitSeq(value, ",") {
		name, action, ok := strings.Cut(item, "=")
		if !ok {
			return nil, fmt.Errorf("handoff: %s: %q has no action", failpointsEnv, item)
		}
		p := &failpoint{action: action}
		if name, count, ok := strings.Cut(name, ":"); ok {
			n, err := strconv.Atoi(count)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("handoff: %s: %q is no count", failpointsEnv, count)
			}
			p.after.Store(int64(n - 1))
			points[name] = p
		} else {
			points[name] = p
		}
		switch action {
		case "kill", "stop", "exit", "error":
		default:
			d, err := time.ParseDuration(action)
			if err != nil {
				return nil, fmt.Errorf("handoff: %s: action %q is neither kill, stop, exit, error nor a duration", failpointsEnv, action)
			}
			p.sleep = d
		}
	}
	return points, nil
}

// errFailpoint is what a fail point with the action "error" makes a step fail with.
var errFailpoint = errors.New("handoff: fail point")

// fail does what the environment asks for at a point.
func fail(name string) error {
	points, err := loadFailpoints()
	if err != nil {
		return err
	}
	p := points[name]
	if p == nil || p.after.Add(-1) != -1 {
		return nil
	}
	switch p.action {
	case "kill", "stop":
		sig := unix.SIGKILL
		if p.action == "stop" {
			sig = unix.SIGSTOP
		}
		if err := unix.Kill(os.Getpid(), sig); err != nil {
			return err
		}
		// Until the signal has come.
		time.Sleep(time.Second)
	case "exit":
		os.Exit(3) //nolint:forbidigo // to die here is what was asked for
	case "error":
		return fmt.Errorf("%w %s", errFailpoint, name)
	default:
		time.Sleep(p.sleep)
	}
	return nil
}
