package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// batonBin is the binary under test.
var batonBin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if batonBin = os.Getenv("BATON_BIN"); batonBin != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "baton-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		batonBin = filepath.Join(dir, "baton")
		build := exec.Command("go", "build", "-o", batonBin, "baton/cmd/baton")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building baton: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}
