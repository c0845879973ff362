// Gendocs writes docs/refusals.md from the table of refusals. Run it with go generate.
package main

import (
	"fmt"
	"os"

	"baton/internal/handoff"
)

// page is where go generate, which runs in internal/handoff, finds the documentation.
const page = "../../docs/refusals.md"

func main() {
	if err := os.WriteFile(page, []byte(handoff.Markdown()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}
