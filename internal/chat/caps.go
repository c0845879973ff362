package chat

import (
	"strings"
	"time"

	"baton/internal/jinja"
)

// Caps says what a template supports, as found by rendering small
// conversations and looking for their texts in the result.
type Caps struct {
	System           bool // system messages
	StringContent    bool // a message's content as a text
	PartContent      bool // a message's content as a list of parts
	NullContent      bool // no content in a message with tool calls
	Tools            bool // the list of tools
	ToolCalls        bool // the assistant's tool calls
	StringArguments  bool // a call's arguments as a JSON text
	ObjectArguments  bool // a call's arguments as an object
	ToolResults      bool // messages of the role "tool"
	GenerationPrompt bool // add_generation_prompt
	// ThinkingVar is the variable that turns reasoning on and off:
	// enable_thinking, thinking, or "" when neither changes the prompt.
	ThinkingVar string
}

// What the trial conversations say. None is part of another or likely to
// stand in a template.
const (
	sampleSystem = "zqsys1"
	sampleUser   = "zquser1"
	sampleTool   = "zqtool1"
	sampleArg    = "zqarg1"
	sampleValue  = "zqval1"
	sampleResult = "zqresult1"
	sampleID     = "zqcall001" // Mistral's templates want nine letters and digits
)

// sampleDate keeps trial renders the same on every day.
func sampleDate() time.Time { return time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC) }

// try renders a trial request; a template that fails on it gives "".
func (r *Renderer) try(req Request) string {
	req.Now = sampleDate
	t, err := r.render(req)
	if err != nil {
		return ""
	}
	return t.String()
}

func dict(pairs ...any) *jinja.Dict {
	d := jinja.NewDict()
	for i := 0; i+1 < len(pairs); i += 2 {
		d.Set(pairs[i].(string), pairs[i+1])
	}
	return d
}

// probe finds out what the template supports.
func (r *Renderer) probe() Caps {
	var c Caps
	user := NewMessage("user", sampleUser)
	plain := r.try(Request{Messages: []*jinja.Dict{user}})
	c.StringContent = strings.Contains(plain, sampleUser)

	parts := r.try(Request{Messages: []*jinja.Dict{dict("role", "user", "content", textParts(sampleUser))}})
	// A template that takes the list for a text writes its Python notation.
	c.PartContent = strings.Contains(parts, sampleUser) &&
		!strings.Contains(parts, "'type'") && !strings.Contains(parts, `"type"`)
	if !c.StringContent && c.PartContent {
		user = dict("role", "user", "content", textParts(sampleUser))
		plain = parts
	}
	text := func(role, s string) *jinja.Dict {
		if !c.StringContent && c.PartContent {
			return dict("role", role, "content", textParts(s))
		}
		return NewMessage(role, s)
	}

	c.System = strings.Contains(r.try(Request{Messages: []*jinja.Dict{text("system", sampleSystem), user}}), sampleSystem)

	prompt := r.try(Request{Messages: []*jinja.Dict{user}, AddGenerationPrompt: true})
	c.GenerationPrompt = prompt != plain && prompt != ""

	tools := []any{dict("type", "function", "function", dict(
		"name", sampleTool,
		"description", "a tool",
		"parameters", dict("type", "object",
			"properties", dict(sampleArg, dict("type", "string", "description", "an argument")),
			"required", []any{sampleArg})))}
	c.Tools = strings.Contains(r.try(Request{Messages: []*jinja.Dict{user}, Tools: tools}), sampleTool)

	call := func(content, arguments any) string {
		return r.try(Request{Tools: tools, Messages: []*jinja.Dict{
			user,
			dict("role", "assistant", "content", content, "tool_calls", []any{dict(
				"id", sampleID, "type", "function",
				"function", dict("name", sampleTool, "arguments", arguments))}),
			dict("role", "tool", "tool_call_id", sampleID, "name", sampleTool, "content", sampleResult),
			text("assistant", "done"),
			user,
		}})
	}
	object := dict(sampleArg, sampleValue)
	asString := call("", `{"`+sampleArg+`": "`+sampleValue+`"}`)
	asObject := call("", object)
	c.StringArguments = strings.Contains(asString, `{"`+sampleArg+`"`)
	c.ObjectArguments = strings.Contains(asObject, sampleArg) && !strings.Contains(asObject, "'"+sampleArg+"'")
	c.ToolCalls = c.StringArguments || c.ObjectArguments
	arguments := any(object)
	if !c.ObjectArguments {
		arguments = `{"` + sampleArg + `": "` + sampleValue + `"}`
	}
	c.ToolResults = strings.Contains(call("", arguments), sampleResult)
	null := call(nil, arguments)
	c.NullContent = null != "" && !strings.Contains(null, "None") && !strings.Contains(null, "null")

	for _, name := range []string{"enable_thinking", "thinking"} {
		with := func(on bool) string {
			return r.try(Request{Messages: []*jinja.Dict{user}, AddGenerationPrompt: true, Kwargs: dict(name, on)})
		}
		if on, off := with(true), with(false); on != off && on != "" && off != "" {
			c.ThinkingVar = name
			break
		}
	}
	return c
}

func textParts(s string) []any { return []any{dict("type", "text", "text", s)} }
