// Package gateway stands between the HTTP API and the processes that compute. It gives
// each request a slot of the decoder, decides by which route its prompt is processed,
// has the cells of a long prompt filled by a provider and adopted by the decoder, and
// carries the decoder's events back. It supervises those processes.
//
// Whatever goes wrong with a handoff costs time, never an answer: the prompt, or what is
// left of it, is then processed by the decoder itself.
//
// The package computes nothing, and knows neither HTTP shapes nor models.
package gateway
