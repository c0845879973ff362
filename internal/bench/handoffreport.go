package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteHandoffs writes results as tables for people.
func WriteHandoffs(w io.Writer, results []HandoffResult) error {
	for i := range results {
		if err := results[i].write(w); err != nil {
			return err
		}
	}
	return nil
}

func (r *HandoffResult) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "%s, %d tokens: %d cells of %.1f MiB in %d blocks, %s, medians of %d\n", r.Model, r.Tokens, r.Cells, float64(r.Bytes)/(1<<20), r.Blocks, r.Trust, r.Reps)
	if r.MadeUp {
		fmt.Fprintln(tw, "rows are made up: they move like others, and mean nothing")
	}
	fmt.Fprintf(tw, "step\tms\trange\twhat\n")
	for _, s := range r.Steps {
		between := "-"
		if len(s.Runs) > 1 {
			between = milliseconds(s.Low) + "-" + milliseconds(s.High)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", s.Name, milliseconds(s.Median), between, s.What)
	}
	fmt.Fprintf(tw, "\nratio\tvalue\taim\treached\n")
	for _, x := range r.Ratios {
		reached := "-"
		if x.Aim != "-" {
			reached = map[bool]string{true: "yes", false: "no"}[x.Met]
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", x.Name, milliseconds(x.Value), x.Aim, reached)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if r.Others > 0.08 {
		if _, err := fmt.Fprintf(w, "other work used %.0f %% of the cores meanwhile: the figures are provisional\n", 100*r.Others); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// milliseconds prints three digits that count.
func milliseconds(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
