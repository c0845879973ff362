package conform

import (
	"fmt"
	"io"
	"strings"
	"time"

	"baton/internal/model"
)

// Options says what to test against.
type Options struct {
	// Model is the one that the program under test works with: rows are compared with
	// those that it gives here.
	Model   *model.Model
	Threads int
	// Tolerance is the relative error (L2 norm of a row) up to which rows agree; 0: 0.05,
	// as for a decoder.
	Tolerance float64
	// Timeout is how long a prompt of a few tokens may take; 0: one minute.
	Timeout time.Duration
	Out     io.Writer // gets a line a test
}

func (o *Options) fill() {
	if o.Tolerance == 0 {
		o.Tolerance = 0.05
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Threads == 0 {
		o.Threads = 1
	}
}

// Report counts what came of the tests.
type Report struct {
	Passed, Failed, Skipped int
	out                     io.Writer
}

// OK reports whether nothing failed.
func (r *Report) OK() bool { return r.Failed == 0 && r.Passed > 0 }

// skipped is the error of a test that does not apply.
type skipped string

func (s skipped) Error() string { return string(s) }

// result enters the result of a test.
func (r *Report) result(name string, err error) error {
	word, why := "PASS", ""
	switch err := err.(type) { //nolint:errorlint // a skip is never wrapped
	case nil:
		r.Passed++
	case skipped:
		r.Skipped++
		word, why = "skip", ": "+err.Error()
	default:
		r.Failed++
		word, why = "FAIL", ": "+err.Error()
	}
	_, err = fmt.Fprintf(r.out, "%s  %s%s\n", word, name, strings.ReplaceAll(why, "\n", "; "))
	return err
}

// summary is the last line.
func (r *Report) summary() error {
	_, err := fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
	return err
}
