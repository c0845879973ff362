package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteJSON writes a list of results, or of anything else, as JSON.
func WriteJSON(w io.Writer, results any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(results)
}

// WriteResults writes results as a table for people, one block for each model and
// number of threads.
func WriteResults(w io.Writer, results []Result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	last := ""
	disturbed := false
	for i := range results {
		r := &results[i]
		if title := r.title(); title != last {
			if last != "" {
				fmt.Fprintln(tw)
			}
			last = title
			fmt.Fprintf(tw, "%s\n", title)
			fmt.Fprintf(tw, "test\tdepth\tbaton\t%s\tratio\trange\tnotes\n", orDash(r.PeerName))
		}
		mark := ""
		if r.Disturbed() {
			mark, disturbed = " *", true
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\t%s%s\n", r.label(), r.Depth, figure(r.Baton, r.Unit), figure(r.Peer, r.Unit), ratio(r), r.interval(), r.notes(), mark)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if disturbed {
		_, err := fmt.Fprintf(w, "\n* other work took cores from it: figures are too low\n")
		return err
	}
	return nil
}

// resultLine is a result in a line, for a log.
func resultLine(r *Result) string {
	s := fmt.Sprintf("%s %s depth %d, %d threads: %s %s", r.Type, r.label(), r.Depth, r.Threads, figure(r.Baton, r.Unit), r.Unit)
	if r.Ratio > 0 {
		s += fmt.Sprintf(", %s %s, ratio %.2f (%s)", r.PeerName, figure(r.Peer, r.Unit), r.Ratio, r.interval())
	}
	return s
}

func (r *Result) title() string {
	return fmt.Sprintf("%s (%s), %d threads, %s kernels", r.Model, r.Type, r.Threads, r.Kernels)
}

func (r *Result) label() string {
	switch {
	case r.Unit != "tokens/s":
		return r.Test + ", " + r.Unit
	case r.Sequences > 1:
		return fmt.Sprintf("%s x%d", r.Test, r.Sequences)
	}
	return r.Test
}

func (r *Result) notes() string {
	var s []string
	if r.ReadGBs > 0 {
		n := fmt.Sprintf("%.1f of %.1f GB/s, %.0f %%", r.GBs, r.ReadGBs, 100*r.Bandwidth)
		if r.Peer > 0 {
			n += fmt.Sprintf(" (%.0f %%)", 100*r.PeerBandwidth)
		}
		s = append(s, n)
	}
	if r.Scaling > 0 {
		s = append(s, fmt.Sprintf("%.2f x one sequence", r.Scaling))
	}
	if r.Unit == "tokens/s" {
		s = append(s, fmt.Sprintf("waited %.1f %%, others %.0f %%", 100*r.Waited, 100*r.Others))
	}
	if r.Repeated > 0 {
		s = append(s, fmt.Sprintf("%d repeated", r.Repeated))
	}
	return strings.Join(s, ", ")
}

func (r *Result) interval() string {
	if len(r.BatonRuns) < 2 {
		return "-"
	}
	if r.Ratio > 0 {
		return fmt.Sprintf("%.2f-%.2f", r.Low, r.High)
	}
	return figure(r.Low, r.Unit) + "-" + figure(r.High, r.Unit)
}

func ratio(r *Result) string {
	if r.Ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.Ratio)
}

func figure(v float64, unit string) string {
	switch {
	case v == 0:
		return "-"
	case unit == "s":
		return fmt.Sprintf("%.3f", v)
	case unit == "MiB":
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
