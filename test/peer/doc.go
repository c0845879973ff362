// Package peer compares Baton with other people's implementations of the same thing:
// llama.cpp for logits and greedy text (set up by peers/llama), the reference tokenizers
// and template engines of the npm registry, OpenAI's own clients. `make peer` runs it
// all; without what it needs, a test skips and says so.
package peer
