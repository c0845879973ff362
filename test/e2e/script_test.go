package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"baton/internal/demo"
)

// TestScripts runs the command lines in testdata/script. Beside testscript's own
// commands there is `code N baton ...`, which wants exit code N. $DEMO is the demo
// model as a file.
func TestScripts(t *testing.T) {
	shared := t.TempDir()
	model := filepath.Join(shared, "demo.gguf")
	if err := os.WriteFile(model, demo.GGUF(), 0o644); err != nil {
		t.Fatal(err)
	}
	bin, err := filepath.Abs(batonBin)
	if err != nil {
		t.Fatal(err)
	}
	// `baton` in a script is the binary under test, whatever its file is called.
	if err := os.Symlink(bin, filepath.Join(shared, "baton")); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("DEMO", model)
			env.Setenv("PATH", shared+string(os.PathListSeparator)+env.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": wantCode},
	})
}

func wantCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command args...")
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("code: %v", err)
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode() // -1 after a signal
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
