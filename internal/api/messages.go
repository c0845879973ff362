package api

import (
	"encoding/json"
	"fmt"
	"strings"
)

// maxMessages bounds a conversation; the context is full long before.
const maxMessages = 10000

// Messages is a conversation to render with the model's chat template.
type Messages struct {
	// JSON is the array of messages, validated: objects whose role is system, user or
	// assistant and whose content is a string, null or an array of text parts. Other
	// fields of a message are kept, for templates that know them.
	JSON json.RawMessage
	// Continue is the text of a last assistant message that the answer continues. That
	// message is not in JSON.
	Continue string
	// AddGenerationPrompt asks the template to open the assistant's turn.
	AddGenerationPrompt bool
	// Kwargs holds further variables for the template, a JSON object, or nil.
	Kwargs json.RawMessage
}

// ParseTemplate reads the body of POST /apply-template.
func ParseTemplate(body []byte, l Limits) (*Messages, *Error) {
	o, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	o.model(l.Models)
	o.unsupported(Chat, 1)
	m := o.messages()
	if o.err != nil {
		return nil, o.err
	}
	return m, nil
}

// messages reads messages and what steers their rendering.
func (o *object) messages() *Messages {
	if o.err != nil {
		return nil
	}
	m, ok := o.get("messages")
	if !ok {
		o.fail(badRequest("messages", CodeMissing, "messages: found nothing, expected an array of messages"))
		return nil
	}
	if kindOf(m.raw) != kindArray {
		o.fail(badType("messages", m, "an array of messages"))
		return nil
	}
	n := count(m.raw, maxMessages+1)
	if n == 0 || n > maxMessages {
		o.fail(badRequest("messages", CodeInvalidValue, "messages: found %d, expected 1 to %d", n, maxMessages))
		return nil
	}
	out := &Messages{AddGenerationPrompt: true, Kwargs: o.kwargs()}
	list := make([]message, n)
	for i, it := range elements(m.raw, m.at) {
		msg, err := parseMessage(it, fmt.Sprintf("messages[%d]", i))
		if err != nil {
			o.fail(err)
			return nil
		}
		list[i] = msg
	}
	if m, ok := o.get("prompt"); ok {
		o.fail(notSupported("prompt", m, "messages (a prompt belongs to /v1/completions)"))
	}
	o.bool("add_generation_prompt", &out.AddGenerationPrompt)
	list = o.continuation(list, out)
	if o.err != nil {
		return nil
	}
	out.JSON = joinMessages(list)
	return out
}

// continuation takes a last assistant message out of the list, so that the answer goes on
// from its text, as llama-server does. continue_final_message: false, or
// add_generation_prompt: false, leaves it a finished turn.
func (o *object) continuation(list []message, out *Messages) []message {
	last := &list[len(list)-1]
	on := last.role == "assistant" && out.AddGenerationPrompt
	given := on
	o.bool("continue_final_message", &given)
	if given && !on {
		o.fail(badRequest("continue_final_message", CodeInvalidValue,
			"continue_final_message: found true, expected an assistant message at the end and add_generation_prompt not false"))
		return list
	}
	if !given {
		return list
	}
	if len(list) > 1 && list[len(list)-2].role == "assistant" {
		name := fmt.Sprintf("messages[%d]", len(list)-1)
		o.fail(badRequest(name, CodeInvalidValue, "%s: found two assistant messages at the end, expected at most one", name))
		return list
	}
	if len(list) == 1 {
		o.fail(badRequest("messages", CodeInvalidValue, "messages: found only an assistant message, expected one before it"))
		return list
	}
	out.Continue = last.text
	return list[:len(list)-1]
}

// kwargs reads chat_template_kwargs and the shorthands enable_thinking and
// reasoning_effort, which become variables of the same name. reasoning_effort "none"
// turns thinking off, as in llama-server.
func (o *object) kwargs() json.RawMessage {
	vars := map[string]json.RawMessage{}
	if m, ok := o.get("chat_template_kwargs"); ok {
		kw, err := openObject(m, "chat_template_kwargs")
		if err != nil {
			o.fail(err)
			return nil
		}
		for k, f := range kw.fields {
			switch k {
			case "messages", "tools", "add_generation_prompt", "bos_token", "eos_token":
				o.fail(badRequest("chat_template_kwargs."+k, CodeUnsupported, "chat_template_kwargs.%s: found a name that the server sets, expected another", k))
				return nil
			case "enable_thinking":
				if kindOf(f.raw) != kindBool {
					o.fail(badType("chat_template_kwargs.enable_thinking", f, "true or false"))
					return nil
				}
			}
			vars[k] = f.raw
		}
	}
	var effort string
	if o.string("reasoning_effort", &effort) {
		switch effort {
		case "none":
			vars["enable_thinking"] = json.RawMessage("false")
		case "minimal", "low", "medium", "high", "xhigh":
			vars["reasoning_effort"] = o.raw("reasoning_effort")
		default:
			m, _ := o.get("reasoning_effort")
			o.fail(badValue("reasoning_effort", m, `"none", "minimal", "low", "medium", "high" or "xhigh"`))
		}
	}
	if _, ok := o.get("enable_thinking"); ok {
		on := false
		o.bool("enable_thinking", &on)
		vars["enable_thinking"] = o.raw("enable_thinking")
	}
	if len(vars) == 0 || o.err != nil {
		return nil
	}
	b, err := json.Marshal(vars)
	if err != nil {
		o.fail(badRequest("chat_template_kwargs", CodeInvalidJSON, "chat_template_kwargs: %v", err))
		return nil
	}
	return b
}

// message is a checked message.
type message struct {
	role string
	text string // the content's text
	raw  []byte
}

func parseMessage(m member, path string) (message, *Error) {
	o, err := openObject(m, path)
	if err != nil {
		return message{}, err
	}
	msg := message{raw: m.raw}
	if !o.string("role", &msg.role) && o.err == nil {
		o.fail(badRequest(join(path, "role"), CodeMissing, "%s: found nothing, expected system, user or assistant", join(path, "role")))
	}
	if o.err != nil {
		return message{}, o.err
	}
	role, _ := o.get("role")
	switch msg.role {
	case "system", "user", "assistant":
	case "developer":
		// OpenAI's newer name of the system role; no template of the supported models
		// knows it.
		msg.role = "system"
		msg.raw = replace(m, role, `"system"`)
	case "tool", "function":
		return message{}, notSupported(join(path, "role"), role, "system, user or assistant (tool calls are not supported yet)")
	default:
		return message{}, badValue(join(path, "role"), role, "system, user or assistant")
	}
	for _, f := range []string{"tool_calls", "function_call", "audio"} {
		if v, ok := o.get(f); ok && !emptyArray(v.raw) {
			return message{}, notSupported(join(path, f), v, "none")
		}
	}
	content, ok := o.get("content")
	if !ok {
		if msg.role != "assistant" {
			return message{}, badRequest(join(path, "content"), CodeMissing, "%s: found nothing, expected a string or an array of text parts", join(path, "content"))
		}
		return msg, nil
	}
	msg.text, err = contentText(content, join(path, "content"))
	return msg, err
}

// contentText checks a message's content and returns its text.
func contentText(m member, path string) (string, *Error) {
	switch kindOf(m.raw) {
	case kindString:
		return asString(m, path)
	case kindArray:
	default:
		return "", badType(path, m, "a string or an array of text parts")
	}
	var text strings.Builder
	for i, it := range elements(m.raw, m.at) {
		name := fmt.Sprintf("%s[%d]", path, i)
		part, err := openObject(it, name)
		if err != nil {
			return "", err
		}
		var kind, s string
		if !part.string("type", &kind) && part.err == nil {
			part.fail(badRequest(join(name, "type"), CodeMissing, `%s: found nothing, expected "text"`, join(name, "type")))
		}
		if part.err == nil && kind != "text" {
			t, _ := part.get("type")
			part.fail(notSupported(join(name, "type"), t, `"text" (images, audio and files are not supported yet)`))
		}
		if !part.string("text", &s) && part.err == nil {
			part.fail(badRequest(join(name, "text"), CodeMissing, "%s: found nothing, expected a string", join(name, "text")))
		}
		if part.err != nil {
			return "", part.err
		}
		text.WriteString(s)
	}
	return text.String(), nil
}

// replace returns the object m with the value of one of its fields exchanged.
func replace(m, field member, value string) []byte {
	at := field.at - m.at
	out := make([]byte, 0, len(m.raw)+len(value))
	out = append(out, m.raw[:at]...)
	out = append(out, value...)
	return append(out, m.raw[at+len(field.raw):]...)
}

func joinMessages(list []message) json.RawMessage {
	size := 2
	for _, m := range list {
		size += len(m.raw) + 1
	}
	out := append(make([]byte, 0, size), '[')
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.raw...)
	}
	return append(out, ']')
}
