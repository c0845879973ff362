// Package bench measures: the engine beside another one on the same file, each kernel
// beside the floor that memory and arithmetic set it, the accuracy of the logits, and
// what handing a prompt's cells from one process to another takes.
//
// Engines run in processes of their own, one at a time, and answer lines (protocol.go),
// Baton's included: so load time and memory are counted alike, and any program that
// answers the same lines can be compared. Runs of the two engines alternate, and each
// run says how much of it was spent waiting for a core that something else had.
//
// Handoffs are measured from outside, over a decoder's control socket, in the place of
// its provider and its client. Everything else knows nothing of requests, text or HTTP,
// and nothing of what another engine is.
package bench
