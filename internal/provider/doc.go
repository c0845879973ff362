// Package provider is the CPU provider: it fills the KV cells of a prompt for a decoder
// in another process, with the forward pass that the decoder itself would run, so that
// every bit of them is the same.
//
// The cells are the decoder's memory, mapped here for the time of one order; package
// handoff maps them, writes the header page, lets go of everything and replies. What is
// left is the work: micro-batch after micro-batch through all layers, each announced
// when it is complete, until the prompt is done or nobody wants it any more.
//
// It knows nothing of text, slots or requests, and gets no memory of the decoder's but
// what an order names.
package provider
