// Package model holds the architectures: it reads a GGUF file's weights, which stay
// where the file is mapped, and runs the forward pass over a micro-batch of tokens.
//
// One architecture is one file (arch_NAME.go): the tensors it needs and the steps of
// one of its layers, from top to bottom. Steps are in steps.go, the micro-batch in
// runner.go.
//
// The package knows nothing of requests, slots, sampling or text. Cells of the KV
// cache are given to it by their blocks; who owns them is not its business.
package model
