package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Config says how to go on inside.
type Config struct {
	// Files are open inside as well, in this order.
	Files []*os.File
	// Nice is added to the niceness of the process (setpriority(2)), here because it
	// binds threads and not processes, like everything that Enter does. 0 to 19.
	Nice int
	// None leaves the process what it has.
	None bool
}

// State is what a process that Enter started knows of it.
type State struct {
	Files   []*os.File
	Layers  []string // in force, such as "landlock (ABI 7)"
	Missing []string // why a layer is not
}

// stateEnv carries what Enter has to say to the process as it is afterwards.
const stateEnv = "BATON_SANDBOX"

// message is the value of stateEnv, in JSON. The process keeps its number, so a message
// of another one, inherited by accident, is noticed.
type message struct {
	PID     int      `json:"pid"`
	FDs     []int    `json:"fds"`
	Layers  []string `json:"layers"`
	Missing []string `json:"missing"`
}

// parentDeath is the signal that the process asked for when its parent ends, 0 for none.
// The kernel keeps it by thread, and only the first one, which runs initializers, has it.
var parentDeath = func() int {
	var signal int32
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&signal)), 0); errno != 0 {
		return 0 // no kernel refuses; then there is nothing to be kept
	}
	return int(signal)
}()

// Inside returns the state of a process that Enter has started, nil in any other.
func Inside() (*State, error) {
	text, ok := os.LookupEnv(stateEnv)
	if !ok {
		return nil, nil
	}
	if err := os.Unsetenv(stateEnv); err != nil {
		return nil, err
	}
	var m message
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("sandbox: %s: %w", stateEnv, err)
	}
	if m.PID != os.Getpid() {
		return nil, nil // of some process that started this one
	}
	s := &State{Layers: m.Layers, Missing: m.Missing}
	for _, fd := range m.FDs {
		unix.CloseOnExec(fd)
		s.Files = append(s.Files, os.NewFile(uintptr(fd), "inherited"))
	}
	return s, nil
}

// Enter restricts the process and starts its program anew, with the same arguments. It
// returns only if that fails; the process should end then.
func Enter(c Config) error {
	runtime.LockOSThread()                        // for good: what becomes of this thread is not to be undone
	if err := os.Unsetenv(stateEnv); err != nil { // of some other process
		return err
	}
	m := message{PID: os.Getpid()}
	for _, f := range c.Files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 3) // a duplicate is not closed on exec
		if err != nil {
			return fmt.Errorf("sandbox: keep %s open: %w", f.Name(), err)
		}
		m.FDs = append(m.FDs, fd)
	}
	if c.Nice != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, c.Nice); err != nil {
			return fmt.Errorf("sandbox: lower the priority to %d: %w", c.Nice, err)
		}
	}
	if parentDeath != 0 {
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(parentDeath), 0, 0, 0); err != nil {
			return fmt.Errorf("sandbox: keep the parent death signal: %w", err)
		}
	}
	program := programPath()
	if !c.None {
		if err := m.restrict(program); err != nil {
			return err
		}
	}
	text, err := json.Marshal(&m)
	if err != nil {
		return err
	}
	env := append(os.Environ(), stateEnv+"="+string(text),
		// Inside, the quota of the control group cannot be read.
		"GOMAXPROCS="+strconv.Itoa(runtime.GOMAXPROCS(0)))
	err = syscall.Exec(program, os.Args, env)
	return fmt.Errorf("sandbox: start %s again: %w", program, err)
}

// programPath is where this program can be executed: by its name if that is still the
// same file, because the name is what ps shows.
func programPath() string {
	const self = "/proc/self/exe"
	name, err := os.Executable()
	if err != nil {
		return self
	}
	a, aerr := os.Stat(name)
	b, berr := os.Stat(self)
	if aerr != nil || berr != nil || !os.SameFile(a, b) {
		return self
	}
	return name
}

// restrict puts the layers around this thread, seccomp last: it forbids the others.
func (m *message) restrict(program string) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("sandbox: give up gaining privileges: %w", err)
	}
	for _, layer := range []struct {
		name    string
		enforce func() (string, error)
	}{
		{"landlock", func() (string, error) { return landlock(program) }},
		{"seccomp", func() (string, error) { return seccomp(m.PID) }},
	} {
		name, err := layer.enforce()
		switch {
		case err == nil:
			m.Layers = append(m.Layers, name)
		case errors.Is(err, errUnavailable):
			m.Missing = append(m.Missing, fmt.Sprintf("%s: %v", layer.name, err))
		default:
			return fmt.Errorf("sandbox: %s: %w", layer.name, err)
		}
	}
	return nil
}

// errUnavailable is for a layer that this system does not have, or does not let us use.
var errUnavailable = errors.New("this system has it not, or switched off")

// Lock takes from all threads what only starting needs: executing programs, opening
// files, making memory executable. It does nothing where seccomp is not in force.
func (s *State) Lock() error {
	for _, layer := range s.Layers {
		if layer != "seccomp" {
			continue
		}
		if err := installFilter(lockFilter(), unix.SECCOMP_FILTER_FLAG_TSYNC); err != nil {
			return fmt.Errorf("sandbox: seccomp: %w", err)
		}
	}
	return nil
}

// String is what is in force, for a log line.
func (s *State) String() string {
	if len(s.Layers) == 0 {
		return "none"
	}
	return strings.Join(s.Layers, ", ")
}
