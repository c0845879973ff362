package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteAccuracy writes results as a table for people.
func WriteAccuracy(w io.Writer, results []AccuracyResult) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	peer := "peer"
	for i := range results {
		if results[i].PeerName != "" {
			peer = results[i].PeerName
		}
	}
	fmt.Fprintf(tw, "model\ttype\ttokens\tNMSE\t%s\tratio\tperplexity: float\tbaton\t\t%s\t\n", peer, peer)
	percent := func(v, exact float64) string { return fmt.Sprintf("%+.3f %%", 100*(v/exact-1)) }
	for i := range results {
		r := &results[i]
		theirs, quotient, ppl, off := "-", "-", "-", ""
		if r.PeerName != "" {
			theirs, quotient = fmt.Sprintf("%.3g", r.PeerNMSE), fmt.Sprintf("%.2f", r.NMSERatio)
			ppl, off = fmt.Sprintf("%.4g", r.PeerPerplexity), percent(r.PeerPerplexity, r.FloatPerplexity)
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%.3g\t%s\t%s\t%.4g\t%.4g\t%s\t%s\t%s\n", r.Model, r.Type, r.Tokens, r.NMSE, theirs, quotient,
			r.FloatPerplexity, r.Perplexity, percent(r.Perplexity, r.FloatPerplexity), ppl, off)
	}
	return tw.Flush()
}
