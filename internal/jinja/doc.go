// Package jinja renders chat templates: the subset of the Jinja 2 template
// language that model files use, with the settings and extensions that
// Hugging Face transformers gives it (trim_blocks, lstrip_blocks, loop
// controls, {% generation %}, its own tojson, raise_exception, strftime_now,
// and the immutable sandbox, where a template cannot change the values it was
// given). The reference is Jinja2 3.1 under Python 3: truth, arithmetic, text
// of values, undefined names and white space follow it.
//
// Templates come out of untrusted model files, so a render is bounded in
// steps, nesting, string work and output ([Limits]), and every failure is an
// [*Error] that carries the line. A construct outside the subset is named in
// the error; it is never skipped.
//
// Strings remember where they came from: text made with [Untrusted] keeps its
// marks through concatenation, slicing, splitting, JSON encoding and so on, so
// that a caller of [Template.RenderText] knows which bytes of a prompt were
// written by the template and which by a user.
//
// Outside the subset: template inheritance and imports (extends, block,
// include, import), recursive loops, automatic escaping, integers beyond 64
// bits, and the filters that serve web pages.
//
// The package knows nothing of models, tokenizers or HTTP.
package jinja
