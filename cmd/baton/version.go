package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"baton/internal/kernel"
)

// release is the version of the next release; builds from a checkout add the commit.
const release = "0.1.0-dev"

func versionString() string {
	v := release
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 7 {
				v += "+" + s.Value[:7]
			}
		}
	}
	return v
}

func version(_ context.Context, _ []string, out io.Writer) error {
	_, err := fmt.Fprintf(out, "baton %s (%s %s/%s, kernels: %s)\n", versionString(), runtime.Version(), runtime.GOOS, runtime.GOARCH, kernel.Active())
	return err
}
