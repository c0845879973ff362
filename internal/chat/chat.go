package chat

import (
	"errors"
	"fmt"
	"time"

	"baton/internal/jinja"
)

// ChatML is the template of a model that brings none: turns between
// <|im_start|> and <|im_end|>.
const ChatML = `{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%}`

// Config is what a Renderer takes from the model.
type Config struct {
	Template string // Jinja source; "" means ChatML
	BOS, EOS string // the texts of the tokens, for templates that write them
	// Control are the texts of the control tokens that a request must not be
	// able to write. Tokens that belong to ordinary text, such as runs of
	// spaces, must not be among them.
	Control []string
	Limits  jinja.Limits // zero fields: the defaults
}

// A Renderer renders conversations with one model's template. It may be used
// by several goroutines at once.
type Renderer struct {
	source   string
	template *jinja.Template
	bos, eos string
	control  *matcher
	limits   jinja.Limits
	caps     Caps
}

// New parses the template and finds out what it supports. The error is a
// [*jinja.Error] that names the line.
func New(c Config) (*Renderer, error) {
	if c.Template == "" {
		c.Template = ChatML
	}
	t, err := jinja.Parse(c.Template)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	r := &Renderer{
		source:   c.Template,
		template: t,
		bos:      c.BOS,
		eos:      c.EOS,
		control:  newMatcher(c.Control),
		limits:   c.Limits,
	}
	r.caps = r.probe()
	return r, nil
}

// Template returns the template's source.
func (r *Renderer) Template() string { return r.source }

// Caps returns what the template supports.
func (r *Renderer) Caps() Caps { return r.caps }

// A Request is a conversation to render.
type Request struct {
	Messages []*jinja.Dict // as ParseMessages returns them
	// Tools are the tools that the model may call, as the list of the request's
	// "tools" decoded by jinja.FromJSON; nil: none.
	Tools []any
	// AddGenerationPrompt ends the prompt with the start of the assistant's turn.
	AddGenerationPrompt bool
	// EnableThinking turns reasoning on or off; nil leaves it to the template.
	EnableThinking *bool
	// Kwargs are further variables for the template, the request's
	// "chat_template_kwargs"; nil: none.
	Kwargs *jinja.Dict
	// Now is the clock for templates that write the date; nil: time.Now.
	Now func() time.Time
}

// A RejectedError is the template's own refusal of a conversation: it called
// raise_exception, for instance because roles do not alternate.
type RejectedError struct{ Message string }

func (e *RejectedError) Error() string {
	return "chat: the model's chat template refuses the conversation: " + e.Message
}

// reserved are the variables that Kwargs cannot set.
var reserved = []string{"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"}

// Render renders a conversation. The error is a [*RejectedError] or an
// [*InvalidError] where the request is to blame, and wraps a [*jinja.Error]
// where the template fails.
func (r *Renderer) Render(req Request) ([]Part, error) {
	if err := CheckMessages(req.Messages); err != nil {
		return nil, err
	}
	if req.Kwargs != nil {
		for _, name := range reserved {
			if _, ok := req.Kwargs.Get(name); ok {
				return nil, invalidf("chat_template_kwargs", "%q cannot be set", name)
			}
		}
	}
	req.Messages = r.adapt(req.Messages)
	text, err := r.render(req)
	if err != nil {
		if e := (*jinja.Error)(nil); errors.As(err, &e) && e.Kind == jinja.Raised {
			return nil, &RejectedError{e.Msg}
		}
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return r.control.split(text), nil
}

// render runs the template on messages as they are.
func (r *Renderer) render(req Request) (jinja.Text, error) {
	messages := make([]any, len(req.Messages))
	for i, m := range req.Messages {
		messages[i] = untrusted(m)
	}
	vars := jinja.NewDict()
	vars.Set("messages", messages)
	vars.Set("add_generation_prompt", req.AddGenerationPrompt)
	vars.Set("bos_token", r.bos)
	vars.Set("eos_token", r.eos)
	if len(req.Tools) > 0 {
		vars.Set("tools", jinja.UntrustedValue(req.Tools))
	}
	if req.Kwargs != nil {
		for name, v := range req.Kwargs.All() {
			vars.Set(name, jinja.UntrustedValue(v))
		}
	}
	if req.EnableThinking != nil {
		name := r.caps.ThinkingVar
		if name == "" {
			name = "enable_thinking"
		}
		vars.Set(name, *req.EnableThinking)
	}
	return r.template.RenderText(vars, jinja.Options{Limits: r.limits, Now: req.Now})
}
