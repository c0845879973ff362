package kernel

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestEnvironment runs this test binary again with each value of the variable.
func TestEnvironment(t *testing.T) {
	if os.Getenv("BATON_KERNELS_TEST") != "" {
		os.Stdout.WriteString("active=" + Active() + "\nreport=" + strings.Join(SelfTest(), "; ") + "\n")
		os.Exit(0)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := Implementations()
	for _, tc := range []struct{ value, active, report string }{
		{"generic", "generic", "report=\n"},
		{all[len(all)-1], all[len(all)-1], "report=\n"},
		{"", all[len(all)-1], "report=\n"},
		{"sse9", all[len(all)-1], `BATON_KERNELS=sse9: kernel: no implementation "sse9"`},
	} {
		cmd := exec.Command(exe, "-test.run=^TestEnvironment$")
		cmd.Env = append(os.Environ(), "BATON_KERNELS_TEST=1", EnvKernels+"="+tc.value)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", tc.value, err, out)
		}
		if !strings.Contains(string(out), "active="+tc.active+"\n") || !strings.Contains(string(out), tc.report) {
			t.Errorf("%s=%s: %s", EnvKernels, tc.value, out)
		}
	}
}
