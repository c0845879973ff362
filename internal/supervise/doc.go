// Package supervise keeps child processes running: it starts them, waits until they are
// ready, starts them again with growing pauses when they end, passes on what they log,
// and makes sure that they end with their parent.
//
// It knows nothing of what the children do.
//
// # How children end
//
// A child is asked to end by closing its lifeline, a pipe that it inherits (or by SIGTERM
// if it has none), and killed with its process group when it does not. A signal that a
// terminal or a service manager sends to the whole of a service does therefore not end
// the children before their parent has done with them: they lead process groups of their
// own, and those with a lifeline should ignore SIGTERM. When the parent ends without
// asking anybody, the kernel kills the children (PR_SET_PDEATHSIG) and closes the
// lifelines.
package supervise
