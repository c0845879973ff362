// Package gguftest makes model files for tests: a tiny model that loads, and hostile
// ones that must be refused with a clear error, by the parser or by whoever loads the
// model. The hostile bytes are put together by hand here, apart from the writer in
// package gguf, so that they test both.
package gguftest

// Case is one file that must be refused.
type Case struct {
	Name      string // fit for a file name
	Bytes     []byte
	WantError string // a part of the error's text
}

// Truncations returns what is left of whole after every step bytes, the empty file
// included. Every one must be refused; the errors differ, so WantError is empty.
func Truncations(whole []byte, step int) [][]byte {
	var cuts [][]byte
	for n := 0; n < len(whole); n += step {
		cuts = append(cuts, whole[:n:n])
	}
	return cuts
}
