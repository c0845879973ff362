// Package conform tests programs that are not ours against the handoff's contract: a
// provider against a fake decoder, a decoder against a fake provider. No device is
// needed, and no other engine: the built-in model is enough.
//
// The fake decoder hands out memory in which only some cells of each tensor are to be
// filled, and everything around them, before, between and after the tensors' cells, is
// guarded: a byte that changes there is found. The fake provider first does what a
// provider should, and then everything that it should not, and wants to be refused with
// the right code each time.
//
// It speaks the protocol with code of its own, so that a mistake in package handoff does
// not pass because both ends make it. What it shares with that are the types of the
// messages.
package conform
