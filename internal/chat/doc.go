// Package chat turns a conversation into the prompt that a model expects, with
// the chat template of the model's file.
//
// A [Renderer] is made once for a model. It finds out by trial renders what the
// template can do ([Caps]) and fits requests to it, as llama.cpp's server does:
// content parts become text where the template knows no parts, a system message
// moves into the first user message where the template refuses it, the
// arguments of tool calls become an object where it needs one.
//
// What a client writes must not end a turn or open another one: text in a
// message that looks like a control token, such as <|im_end|>, has to reach the
// model as ordinary text. Render therefore returns the prompt in parts and
// marks as untrusted exactly those stretches that come from the request and
// spell a control token. The tokenizer parses control tokens in trusted parts
// only. A prompt without such look-alikes is a single trusted part, so that
// ordinary text is tokenized as one piece, the same as everywhere else.
//
// The package knows templates and messages, not tokens, models or HTTP.
package chat
