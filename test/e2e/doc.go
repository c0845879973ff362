// Package e2e tests the built binary as a person or a supervisor meets it: command
// lines, signals, exit codes, HTTP on a real socket. It builds cmd/baton once, or takes
// the binary that BATON_BIN names.
//
// It knows the documented behaviour only; what can be tested inside a package is tested
// there.
package e2e
