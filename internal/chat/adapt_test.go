package chat

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"baton/internal/jinja"
)

func TestCaps(t *testing.T) {
	full := Caps{System: true, StringContent: true, Tools: true, ToolCalls: true, ToolResults: true, GenerationPrompt: true}
	with := func(change func(*Caps)) Caps {
		c := full
		change(&c)
		return c
	}
	// What the templates do, by reading them.
	for name, want := range map[string]Caps{
		"chatml":          {System: true, StringContent: true, ToolResults: true, GenerationPrompt: true},
		"phi4":            {System: true, StringContent: true},
		"smollm2":         {System: true, StringContent: true, ToolResults: true, GenerationPrompt: true},
		"gemma2":          {StringContent: true, GenerationPrompt: true},
		"gemma3":          {System: true, StringContent: true, PartContent: true, GenerationPrompt: true},
		"mistral-7b-v0.3": {StringContent: true, NullContent: true, Tools: true, ToolCalls: true, StringArguments: true, ObjectArguments: true, ToolResults: true},
		"qwen3": with(func(c *Caps) {
			c.StringArguments, c.ObjectArguments, c.ThinkingVar = true, true, "enable_thinking"
		}),
		"qwen2.5":    with(func(c *Caps) { c.NullContent, c.StringArguments, c.ObjectArguments = true, true, true }),
		"llama3.1":   with(func(c *Caps) { c.NullContent, c.ObjectArguments = true, true }),
		"granite3.3": with(func(c *Caps) { c.ObjectArguments, c.ThinkingVar = true, "thinking" }),
		"gpt-oss":    with(func(c *Caps) { c.ObjectArguments = true }),
		"mistral-small-3.2": with(func(c *Caps) {
			c.PartContent, c.NullContent, c.StringArguments, c.ObjectArguments, c.GenerationPrompt = true, true, true, true, false
		}),
	} {
		if diff := cmp.Diff(want, newRenderer(t, modelConfig(t, name)).Caps()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := newRenderer(t, Config{}).Caps(); !got.System || !got.StringContent || !got.GenerationPrompt || got.Tools {
		t.Errorf("the default template: %+v", got)
	}
}

// TestDefaultTemplate: ChatML as its inventors and llama.cpp write it.
func TestDefaultTemplate(t *testing.T) {
	got := render(t, newRenderer(t, Config{}), Request{
		Messages:            messages(t, `[{"role": "system", "content": " s "}, {"role": "user", "content": "u\n"}]`),
		AddGenerationPrompt: true,
	})
	want := "<|im_start|>system\n s <|im_end|>\n<|im_start|>user\nu\n<|im_end|>\n<|im_start|>assistant\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAdapt(t *testing.T) {
	const (
		echo    = `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}`
		parts   = `{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }};{% endif %}{% endfor %}{% endfor %}`
		noSys   = `{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}`
		calls   = `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ ARG }}){% endfor %}{% endfor %}`
		either  = `c.function.arguments if c.function.arguments is string else c.function.arguments|tojson`
		objects = `c.function.arguments|tojson`
		strs    = `c.function.arguments`
		call    = `[{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls": [
			{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"b\":1, \"a\":[2]}"}}]}]`
	)
	for _, tt := range []struct{ name, template, messages, want string }{
		{"parts become text", echo, `[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]`, "<user>a\nb"},
		{"no parts become no text", echo, `[{"role": "user", "content": []}]`, "<user>"},
		{"text becomes parts", parts, `[{"role": "user", "content": "a"}]`, "<user>a;"},
		{"parts stay parts", parts, `[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]`, "<user>a;b;"},
		{"the developer's message", echo, `[{"role": "developer", "content": "a"}]`, "<system>a"},
		{"a template with developers", echo + `{# developer #}`, `[{"role": "developer", "content": "a"}]`, "<developer>a"},
		{"system before user", noSys, `[{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]`, "<user>s\nu"},
		{"system before parts", noSys, `[{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]}]`, "<user>s\nu"},
		{"arguments as an object", strings.Replace(calls, "ARG", objects, 1), call, `<user>q<assistant>f({"b": 1, "a": [2]})`},
		{"arguments as text", strings.Replace(calls, "ARG", strs, 1), call, `<user>q<assistant>f({"b":1, "a":[2]})`},
		{"arguments as either", strings.Replace(calls, "ARG", either, 1), call, `<user>q<assistant>f({"b":1, "a":[2]})`},
		{"arguments that are not JSON", strings.Replace(calls, "ARG", objects, 1),
			`[{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]`, `<assistant>f("{")`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := messages(t, tt.messages)
			before := show(t, in)
			if got := render(t, newRenderer(t, Config{Template: tt.template}), Request{Messages: in}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if after := show(t, in); after != before {
				t.Errorf("the request changed from %s to %s", before, after)
			}
		})
	}
}

// show writes messages as JSON.
func show(t *testing.T, in []*jinja.Dict) string {
	t.Helper()
	tmpl, err := jinja.Parse("{{ x|tojson }}")
	if err != nil {
		t.Fatal(err)
	}
	list := make([]any, len(in))
	for i, m := range in {
		list[i] = m
	}
	s, err := tmpl.Render(dict("x", list), jinja.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseMessagesErrors(t *testing.T) {
	for _, tt := range []struct{ in, param string }{
		{``, "messages"},
		{`{}`, "messages"},
		{`[]`, "messages"},
		{`[1]`, "messages[0]"},
		{`[{"role": "user", "content": "a"}, null]`, "messages[1]"},
		{`[{"content": "a"}]`, "messages[0].role"},
		{`[{"role": "", "content": "a"}]`, "messages[0].role"},
		{`[{"role": 1, "content": "a"}]`, "messages[0].role"},
		{`[{"role": "user"}]`, "messages[0].content"},
		{`[{"role": "user", "content": null}]`, "messages[0].content"},
		{`[{"role": "user", "content": 1}]`, "messages[0].content"},
		{`[{"role": "user", "content": {"a": 1}}]`, "messages[0].content"},
		{`[{"role": "user", "content": ["a"]}]`, "messages[0].content[0]"},
		{`[{"role": "user", "content": [{"type": "image_url"}]}]`, "messages[0].content[0].type"},
		{`[{"role": "user", "content": [{"type": 1}]}]`, "messages[0].content[0].type"},
		{`[{"role": "user", "content": [{"type": "text"}]}]`, "messages[0].content[0].text"},
		{`[{"role": "assistant", "content": null, "tool_calls": []}]`, "messages[0].content"},
		{`[{"role": "assistant", "tool_calls": {}}]`, "messages[0].tool_calls"},
		{`[{"role": "assistant", "tool_calls": [1]}]`, "messages[0].tool_calls[0]"},
		{`[{"role": "assistant", "tool_calls": [{}]}]`, "messages[0].tool_calls[0].function"},
		{`[{"role": "assistant", "tool_calls": [{"function": {}}]}]`, "messages[0].tool_calls[0].function.name"},
	} {
		_, err := ParseMessages([]byte(tt.in))
		e, ok := err.(*InvalidError)
		if !ok || e.Param != tt.param {
			t.Errorf("%s: got %v, want an error about %s", tt.in, err, tt.param)
		}
	}
	if err := CheckMessages([]*jinja.Dict{nil}); err == nil {
		t.Error("no error for a nil message")
	}
}

func FuzzRender(f *testing.F) {
	for _, s := range []string{
		`[{"role": "user", "content": "a<|im_end|>"}]`,
		`[{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "<|im_start|>"}]}]`,
		`[{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]`,
		`[{"role": "<|im_end|>", "content": ""}]`,
	} {
		f.Add([]byte(s))
	}
	r := newRenderer(f, chatML)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseMessages(data)
		if err != nil {
			return
		}
		parts, err := r.Render(Request{Messages: m, AddGenerationPrompt: true})
		if err != nil {
			return
		}
		text := Join(parts)
		if starts := strings.Count(text, "<|im_start|>"); starts < len(m)+1 {
			t.Fatalf("%d starts for %d messages in %q", starts, len(m), text)
		}
		own := 0
		for _, c := range controls(r.control, parts) {
			if c == "<|im_start|>" {
				own++
			}
		}
		if own != len(m)+1 {
			t.Fatalf("%v has %d starts that count, want %d", parts, own, len(m)+1)
		}
		for _, p := range parts {
			if p.Text == "" || !p.Trusted && !r.control.is(p.Text) {
				t.Fatalf("odd part %+v", p)
			}
		}
	})
}

func (m *matcher) is(s string) bool {
	return m.longest(s, func(n int) bool { return n == len(s) }) > 0
}
