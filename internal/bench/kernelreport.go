package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteKernels writes results as a table for people.
func WriteKernels(w io.Writer, results []KernelResult) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "kernel\ttype\tshape\ttokens\tdepth\tthreads\tµs\tGB/s\tGMAC/s\tfloor µs\treached\tbound\t")
	for i := range results {
		r := &results[i]
		macs := "-"
		if r.GMACs > 0 {
			macs = fmt.Sprintf("%.1f", r.GMACs)
		}
		bound := fmt.Sprintf("read %.1f GB/s", r.ReadGBs)
		if r.Bound == "arithmetic" {
			bound = fmt.Sprintf("%.0f GMAC/s", r.PeakGMACs)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%d\t%.1f\t%.1f\t%s\t%.1f\t%.0f %%\t%s\t\n",
			r.Kernel, orDash(r.Type), r.Shape, r.Tokens, r.Depth, r.Threads, r.Micros, r.GBs, macs, r.FloorMicros, 100*r.Reached, bound)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(results) > 0 {
		_, err := fmt.Fprintf(w, "\n%s kernels; best of the repetitions\n", results[0].Kernels)
		return err
	}
	return nil
}
