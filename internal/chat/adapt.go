package chat

import (
	"strings"

	"baton/internal/jinja"
)

// adapt fits messages to what the template supports. It leaves the given ones
// as they are.
func (r *Renderer) adapt(messages []*jinja.Dict) []*jinja.Dict {
	out := make([]*jinja.Dict, len(messages))
	for i, m := range messages {
		m = m.Clone()
		r.adaptRole(m)
		r.adaptContent(m)
		r.adaptToolCalls(m)
		out[i] = m
	}
	if !r.caps.System {
		out = mergeSystem(out)
	}
	return out
}

// adaptRole makes a developer's message, OpenAI's newer name for the system's,
// a system message, unless the template speaks of developers.
func (r *Renderer) adaptRole(m *jinja.Dict) {
	if role, _ := m.Get("role"); role == any("developer") && !strings.Contains(r.source, "developer") {
		m.Set("role", "system")
	}
}

func (r *Renderer) adaptContent(m *jinja.Dict) {
	content, _ := m.Get("content")
	switch c := content.(type) {
	case nil:
		if !r.caps.NullContent {
			m.Set("content", "")
		} else {
			m.Set("content", nil)
		}
	case string:
		if !r.caps.StringContent && r.caps.PartContent {
			m.Set("content", textParts(c))
		}
	case []any:
		if !r.caps.PartContent {
			m.Set("content", joinParts(c))
		}
	}
}

// joinParts makes one text of text parts, a line break between them as
// llama.cpp's server and vLLM put it.
func joinParts(parts []any) string {
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		if part, ok := p.(*jinja.Dict); ok {
			text, _ := part.Get("text")
			if s, ok := text.(string); ok {
				texts = append(texts, s)
			}
		}
	}
	return strings.Join(texts, "\n")
}

// adaptToolCalls turns the arguments of tool calls, a JSON text in the OpenAI
// format, into an object where the template only takes that. Where it takes
// both, the text stays, since it is what the model wrote.
func (r *Renderer) adaptToolCalls(m *jinja.Dict) {
	calls, _ := m.Get("tool_calls")
	list, ok := calls.([]any)
	if !ok || r.caps.StringArguments || !r.caps.ObjectArguments {
		return
	}
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
		call, ok := v.(*jinja.Dict)
		if !ok {
			continue
		}
		f, _ := call.Get("function")
		function, ok := f.(*jinja.Dict)
		if !ok {
			continue
		}
		arguments, _ := function.Get("arguments")
		s, ok := arguments.(string)
		if !ok {
			continue
		}
		object, err := jinja.FromJSON([]byte(s))
		if err != nil {
			continue // not JSON: the template gets the text
		}
		function = function.Clone()
		function.Set("arguments", object)
		call = call.Clone()
		call.Set("function", function)
		out[i] = call
	}
	m.Set("tool_calls", out)
}

// mergeSystem moves the text of a system message into the user message after
// it, for templates that refuse system messages.
func mergeSystem(messages []*jinja.Dict) []*jinja.Dict {
	var out []*jinja.Dict
	pending := ""
	for i, m := range messages {
		role, _ := m.Get("role")
		content, _ := m.Get("content")
		text, isText := content.(string)
		next := ""
		if i+1 < len(messages) {
			r, _ := messages[i+1].Get("role")
			next, _ = r.(string)
		}
		switch {
		case role == any("system") && isText && next == "user":
			pending += text + "\n"
			continue
		case role == any("user") && isText && pending != "":
			m.Set("content", pending+text)
			pending = ""
		case role == any("user") && pending != "":
			parts, _ := content.([]any)
			m.Set("content", append(textParts(strings.TrimSuffix(pending, "\n")), parts...))
			pending = ""
		}
		out = append(out, m)
	}
	return out
}
