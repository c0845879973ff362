// Package gguf reads and writes GGUF model files, versions 2 and 3, little-endian
// (format: ggml's docs/gguf.md).
//
// A file is hostile input. Every count, length, offset, type and alignment is checked
// against the bytes that are really there before it is used, so that parsing needs
// memory in proportion to the header and no input makes it panic. Decoding is strict:
// duplicate keys or tensors, overlapping tensors, a dimension of zero and unknown types
// are errors that name the field and its offset in the file.
//
// [Open] maps the file. Metadata is copied out of the mapping and stays valid whatever
// happens to the file; tensor data is not copied. Reading tensor data faults when
// somebody truncates the file meanwhile: run such reads inside [Guard].
//
// The package knows how tensors lie in a file. It does not know what they mean: names,
// architectures and tokenizers belong to its callers.
package gguf
