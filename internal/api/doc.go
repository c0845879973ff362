// Package api translates between the JSON that clients speak (OpenAI's chat and text
// completions, llama-server's native endpoints) and the engine's requests and events.
//
// It does no I/O and starts nothing: bodies go in, requests come out; events go in, values
// ready for encoding/json come out. It knows nothing of HTTP handlers, templates or
// kernels. The shapes follow OpenAI's API reference
// (https://platform.openai.com/docs/api-reference) and llama.cpp's tools/server/README.md.
//
// # Strictness
//
// A request either means what it says or is refused with the name of the field, what was
// found and what was expected: every number has a range, every type is checked, a repeated
// field is an error, and a field that would change the answer but is not supported is
// refused unless it has its neutral value. Fields that cannot change the answer (user,
// metadata, store, ...) are ignored, and so are unknown ones. null means: not given.
package api
