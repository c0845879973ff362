// Package openai tests the served API with OpenAI's official Go client. It is a module
// of its own so that the client stays out of Baton's requirements.
package openai
