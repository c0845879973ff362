package chat

import (
	"fmt"

	"baton/internal/jinja"
)

// An InvalidError says what is wrong with a request's messages.
type InvalidError struct {
	Param   string // the place, such as messages[1].content[0].type
	Message string
}

func (e *InvalidError) Error() string { return "chat: " + e.Param + ": " + e.Message }

func invalidf(param, format string, args ...any) error {
	return &InvalidError{param, fmt.Sprintf(format, args...)}
}

// NewMessage returns a message of a role and a text.
func NewMessage(role, content string) *jinja.Dict {
	m := jinja.NewDict()
	m.Set("role", role)
	m.Set("content", content)
	return m
}

// ParseMessages decodes and checks the "messages" of a chat request in the
// OpenAI format: a list of objects with a role and a content, which is a text
// or a list of text parts, and may be null where an assistant's message has
// tool calls or reasoning. Other fields are kept for the template. The error is
// an [*InvalidError].
func ParseMessages(data []byte) ([]*jinja.Dict, error) {
	v, err := jinja.FromJSON(data)
	if err != nil {
		return nil, invalidf("messages", "%v", err)
	}
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, invalidf("messages", "expected a list of at least one message")
	}
	out := make([]*jinja.Dict, len(list))
	for i, v := range list {
		m, ok := v.(*jinja.Dict)
		if !ok {
			return nil, invalidf(fmt.Sprintf("messages[%d]", i), "expected an object")
		}
		out[i] = m
	}
	return out, CheckMessages(out)
}

// CheckMessages checks messages as [ParseMessages] does.
func CheckMessages(messages []*jinja.Dict) error {
	for i, m := range messages {
		if err := checkMessage(fmt.Sprintf("messages[%d]", i), m); err != nil {
			return err
		}
	}
	return nil
}

func checkMessage(at string, m *jinja.Dict) error {
	if m == nil {
		return invalidf(at, "expected an object")
	}
	role, _ := m.Get("role")
	if s, ok := role.(string); !ok || s == "" {
		return invalidf(at+".role", "expected a role such as \"user\"")
	}
	calls, err := checkToolCalls(at, m)
	if err != nil {
		return err
	}
	content, _ := m.Get("content")
	switch c := content.(type) {
	case string:
		return nil
	case nil:
		reasoning, _ := m.Get("reasoning_content")
		if s, ok := reasoning.(string); calls || ok && s != "" {
			return nil
		}
		return invalidf(at+".content", "expected a text or a list of text parts")
	case []any:
		for j, p := range c {
			if err := checkPart(fmt.Sprintf("%s.content[%d]", at, j), p); err != nil {
				return err
			}
		}
		return nil
	}
	return invalidf(at+".content", "expected a text or a list of text parts")
}

func checkPart(at string, p any) error {
	part, ok := p.(*jinja.Dict)
	if !ok {
		return invalidf(at, "expected an object")
	}
	kind, _ := part.Get("type")
	if kind != any("text") {
		if s, ok := kind.(string); ok {
			return invalidf(at+".type", "content of type %q is not supported, only \"text\" is", s)
		}
		return invalidf(at+".type", "expected \"text\"")
	}
	text, _ := part.Get("text")
	if _, ok := text.(string); !ok {
		return invalidf(at+".text", "expected a text")
	}
	return nil
}

// checkToolCalls checks the shape of tool_calls and reports whether there are any.
func checkToolCalls(at string, m *jinja.Dict) (bool, error) {
	v, _ := m.Get("tool_calls")
	if v == nil {
		return false, nil
	}
	list, ok := v.([]any)
	if !ok {
		return false, invalidf(at+".tool_calls", "expected a list")
	}
	for j, v := range list {
		call, ok := v.(*jinja.Dict)
		if !ok {
			return false, invalidf(fmt.Sprintf("%s.tool_calls[%d]", at, j), "expected an object")
		}
		f, _ := call.Get("function")
		function, ok := f.(*jinja.Dict)
		if !ok {
			return false, invalidf(fmt.Sprintf("%s.tool_calls[%d].function", at, j), "expected an object")
		}
		name, _ := function.Get("name")
		if s, ok := name.(string); !ok || s == "" {
			return false, invalidf(fmt.Sprintf("%s.tool_calls[%d].function.name", at, j), "expected a name")
		}
	}
	return len(list) > 0, nil
}

// roles are those whose names a template may use to spell a control token, as
// Phi's do with <|user|>. Any other role is text of the client's.
var roles = map[string]bool{
	"system": true, "developer": true, "user": true, "assistant": true,
	"tool": true, "function": true, "ipython": true,
}

// untrusted returns a copy of a message with all its text marked as the
// client's, but for a well-known role.
func untrusted(m *jinja.Dict) *jinja.Dict {
	out := jinja.UntrustedValue(m).(*jinja.Dict)
	if role, _ := m.Get("role"); role != nil {
		if s, ok := role.(string); ok && roles[s] {
			out.Set("role", s)
		}
	}
	return out
}
