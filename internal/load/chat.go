package load

import (
	"encoding/json"
	"fmt"

	"baton/internal/api"
	"baton/internal/chat"
	"baton/internal/gguf"
	"baton/internal/jinja"
	"baton/internal/vocab"
)

// Tokenizer is the vocabulary as the API uses it.
type Tokenizer struct{ *vocab.Vocab }

// Encode implements api.Tokenizer.
func (t Tokenizer) Encode(text string, addSpecial, parseSpecial bool) []int32 {
	return t.Vocab.Encode(nil, text, vocab.EncodeOptions{AddSpecial: addSpecial, ParseSpecial: parseSpecial})
}

// EncodeParts implements api.Tokenizer.
func (t Tokenizer) EncodeParts(parts []api.Part, addSpecial bool) []int32 {
	in := make([]vocab.Part, len(parts))
	for i, p := range parts {
		in[i] = vocab.Part{Text: p.Text, ParseSpecial: p.Special}
	}
	return t.Vocab.EncodeParts(nil, in, addSpecial)
}

// Piece implements api.Tokenizer.
func (t Tokenizer) Piece(id int32) []byte { return t.Vocab.Piece(id, true) }

// Decode implements api.Tokenizer.
func (t Tokenizer) Decode(ids []int32) []byte { return t.Vocab.Decode(ids, true) }

// Template is the model's chat template as the server uses it. A template that cannot
// be parsed refuses chats with the reason; everything else of the model works.
type Template struct {
	renderer *chat.Renderer
	source   string
	err      error
}

func newTemplate(f *gguf.File, v *vocab.Vocab) (*Template, error) {
	source, err := f.StringOr("tokenizer.chat_template", "")
	if err != nil {
		return nil, err
	}
	c := chat.Config{Template: source}
	if id, ok := v.BOS(); ok {
		c.BOS = v.Text(id)
	}
	if id, ok := v.EOS(); ok {
		c.EOS = v.Text(id)
	}
	for id := range int32(v.Size()) {
		if v.IsControl(id) {
			c.Control = append(c.Control, v.Text(id))
		}
	}
	t := &Template{source: source}
	if t.renderer, t.err = chat.New(c); t.err != nil {
		t.err = fmt.Errorf("the model's chat template cannot be used: %w", t.err)
		return t, nil
	}
	t.source = t.renderer.Template()
	return t, nil
}

// Err says why chats are refused; nil: they are not.
func (t *Template) Err() error { return t.err }

// Source implements server.Templater.
func (t *Template) Source() string { return t.source }

// Render implements server.Templater.
func (t *Template) Render(messages, kwargs json.RawMessage, addGenerationPrompt bool) ([]api.Part, error) {
	if t.err != nil {
		return nil, t.err
	}
	r := chat.Request{AddGenerationPrompt: addGenerationPrompt}
	var err error
	if r.Messages, err = chat.ParseMessages(messages); err != nil {
		return nil, err
	}
	if len(kwargs) > 0 {
		v, err := jinja.FromJSON(kwargs)
		if err != nil {
			return nil, fmt.Errorf("chat_template_kwargs: %w", err)
		}
		d, ok := v.(*jinja.Dict)
		if v != nil && !ok {
			return nil, fmt.Errorf("chat_template_kwargs: expected an object, found %T", v)
		}
		r.Kwargs = d
	}
	parts, err := t.renderer.Render(r)
	if err != nil {
		return nil, err
	}
	out := make([]api.Part, len(parts))
	for i, p := range parts {
		out[i] = api.Part{Text: p.Text, Special: p.Trusted}
	}
	return out, nil
}

// EncodeChat returns the prompt for a system message, which may be empty, and a user's.
func (b *Bundle) EncodeChat(system, user string) ([]int32, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var messages []message
	if system != "" {
		messages = append(messages, message{"system", system})
	}
	data, err := json.Marshal(append(messages, message{"user", user}))
	if err != nil {
		return nil, err
	}
	parts, err := b.Template.Render(data, nil, true)
	if err != nil {
		return nil, err
	}
	t := Tokenizer{b.Vocab}
	return t.EncodeParts(parts, false), nil
}
