// Package remote runs an engine.Engine in another process: HTTP on a Unix socket, as in
//
//	GET  /engine/info       engine.Info
//	GET  /engine/stats      engine.Stats
//	POST /engine/generate   engine.Request; an error, or a stream of events
//
// A generation takes its connection over, by HTTP's upgrade to the protocol named
// "baton-engine/1": after 101 the server sends one event a line, and the client may send
// one byte, which cancels the request. The stream ends with the event of kind Done; one
// that ends before it means that the process has died. A client that closes the
// connection has left, and its request is cancelled.
//
// All messages are the types of package engine as JSON under their own field names.
// Where a field has no JSON form of its own (errors, numbers that are not finite, long
// lists of token ids), wire.go says how it travels. Both ends are the same program, so an
// unknown field is an error and not a newer version.
//
// Whoever can open the socket is trusted: its directory must be private (package rundir).
// The package knows nothing of the public API or of how text is computed.
package remote
