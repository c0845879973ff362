package kernel

import (
	"fmt"
	"os"
	"strings"
)

// EnvKernels is the environment variable that forces an implementation.
const EnvKernels = "BATON_KERNELS"

// An implementation is a set of routines written for one instruction set. Each builds
// on the ones before it in the list: what it does not bring stays as it was, so that a
// kernel that exists only in plain Go is part of every implementation.
type implementation struct {
	name      string
	available bool     // this CPU has the instructions
	off       string   // why the self-test switched it off; empty: it did not
	set       []func() // each installs the routines of one file
}

// Levels: the positions in the list of implementations.
const (
	levelGeneric = iota
	levelAVX2
	levelAVX512
)

var (
	implementations = cpuImplementations()
	level           int    // the active implementation; small routines branch on it
	envWarning      string // why the environment's choice was not taken
)

// register adds set to what selecting the implementation name does. It is called from
// initialisers of package variables, so that all is known when init selects:
//
//	var _ = register("avx512", func() { dotF16 = dotF16AVX512 })
func register(name string, set func()) struct{} {
	for i := range implementations {
		if implementations[i].name == name {
			implementations[i].set = append(implementations[i].set, set)
			return struct{}{}
		}
	}
	return struct{}{} // of another architecture
}

func init() {
	want := os.Getenv(EnvKernels)
	if want != "" {
		err := Use(want)
		if err == nil {
			return
		}
		envWarning = fmt.Sprintf("%s=%s: %v", EnvKernels, want, err)
	}
	useBest()
}

// useBest selects the last usable implementation. The first, generic, always is.
func useBest() {
	names := Implementations()
	if err := Use(names[len(names)-1]); err != nil {
		panic(err) // generic is available by definition
	}
}

// Implementations lists the implementations that this CPU can run and that the
// self-test has not switched off, slowest first.
func Implementations() []string {
	var names []string
	for _, im := range implementations {
		if im.available && im.off == "" {
			names = append(names, im.name)
		}
	}
	return names
}

// Active is the implementation in use.
func Active() string { return implementations[level].name }

// Use selects an implementation for the whole process. It must not run while a kernel
// does: it is for start-up, tests and benchmarks. All implementations give the same
// bits.
func Use(name string) error {
	at := -1
	for i, im := range implementations {
		if im.name != name {
			continue
		}
		if !im.available {
			return fmt.Errorf("kernel: this CPU lacks the instructions of %q: use one of %s", name, strings.Join(Implementations(), ", "))
		}
		if im.off != "" {
			return fmt.Errorf("kernel: %q was switched off: %s", name, im.off)
		}
		at = i
	}
	if at < 0 {
		return fmt.Errorf("kernel: no implementation %q: use one of %s", name, strings.Join(Implementations(), ", "))
	}
	for i := 0; i <= at; i++ {
		if !implementations[i].available || implementations[i].off != "" {
			continue
		}
		for _, set := range implementations[i].set {
			set()
		}
	}
	level = at
	return nil
}
