package jinja

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// TestHostileTemplates renders templates that ask for too much. Each has to end
// in an error of the kind Limit, without much memory.
func TestHostileTemplates(t *testing.T) {
	doubling := func(expr string) string {
		return `{% set ns = namespace(a='x') %}{% for i in range(100) %}{% set ns.a = ` + expr + ` %}{% endfor %}`
	}
	for _, tt := range []struct{ name, src string }{
		{"repeat a string", `{{ 'a' * 10000000000 }}`},
		{"repeat, overflowing", `{{ ('abc' * 3000000) * 9223372036854775807 }}`},
		{"repeat a list", `{{ [1] * 10000000000 }}`},
		{"repeat a tuple", `{{ (1, 2) * 10000000000 }}`},
		{"long range", `{{ range(10000000000)|list }}`},
		{"longest range", `{{ range(-9223372036854775807, 9223372036854775807) }}`},
		{"nested loops", `{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}`},
		{"doubling by ~", doubling("ns.a ~ ns.a")},
		{"doubling by +", doubling("ns.a + ns.a")},
		{"doubling a list", doubling("[ns.a] + [ns.a, ns.a] * 50000")},
		{"doubling by join", doubling("[ns.a, ns.a]|join")},
		{"doubling by replace", doubling("ns.a|replace('x', 'xx')")},
		{"doubling by format", doubling("'%s%s'|format(ns.a, ns.a)")},
		{"doubling by format method", doubling("'{}{}'.format(ns.a, ns.a)")},
		{"doubling by indent", `{% set s = '\n' * 1000000 %}{{ s|indent(100000, true, true) }}`},
		{"doubling by set", `{% set ns = namespace(a='xx') %}{% for i in range(100) %}{% set b %}{{ ns.a }}{{ ns.a }}{% endset %}{% set ns.a = b %}{% endfor %}`},
		{"doubling values", doubling("[ns.a, ns.a]") + `{{ ns.a }}`},
		{"doubling values as JSON", doubling("[ns.a, ns.a]") + `{{ ns.a|tojson }}`},
		{"doubling values compared", doubling("[ns.a, ns.a]") + `{% set x = ns.a %}{% set ns.a = 'x' %}` +
			`{% for i in range(100) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a == x }}`},
		{"deep value", `{% set ns = namespace(a=1) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}`},
		{"deep value as JSON", `{% set ns = namespace(a=1) %}{% for i in range(5000) %}{% set ns.a = {'a': ns.a} %}{% endfor %}{{ ns.a|tojson }}`},
		{"deep value ordered", `{% set ns = namespace(a=1, b=2) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a < ns.b }}`},
		{"value that holds itself", `{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}`},
		{"endless macro", `{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}`},
		{"endless pair of macros", `{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}`},
		{"endless caller", `{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}`},
		{"much output", `{% for i in range(100000) %}` + strings.Repeat("x", 1000) + `{% endfor %}`},
		{"wide format", `{{ '%1000000000d' % 1 }}`},
		{"wide format method", `{{ '{:1000000000}'.format('a') }}`},
		{"wide center", `{{ 'a'.center(10000000000) }}`},
		{"wide zfill", `{{ 'a'.zfill(10000000000) }}`},
		{"wide indent", `{{ 'a'|indent(10000000000) }}`},
		{"deep indent in JSON", `{{ [[[]]]|tojson(indent=1000000000) }}`},
		{"long indent in JSON", `{% set ns = namespace(a=1) %}{% for i in range(400) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a|tojson(indent='x' * 1000000) }}`},
		{"search in a long string", `{% set s = 'ab' * 4000000 %}{% for i in range(100000) %}{{ 'zz' in s }}{% endfor %}`},
		{"count in a long string", `{% set s = 'ab' * 4000000 %}{% for i in range(100000) %}{{ s.count('zz') }}{% endfor %}`},
		{"length of a long string", `{% set s = 'é' * 4000000 %}{% for i in range(100000) %}{{ s|length }}{% endfor %}`},
		{"many parentheses", `{{ ` + strings.Repeat("(", 10000) + `1` + strings.Repeat(")", 10000) + ` }}`},
		{"many brackets", `{{ ` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + ` }}`},
		{"many minus signs", `{{ ` + strings.Repeat("- ", 10000) + `1 }}`},
		{"many nots", `{{ ` + strings.Repeat("not ", 10000) + `1 }}`},
		{"many blocks", strings.Repeat("{% if true %}", 10000)},
		{"long sum", `{{ 1` + strings.Repeat(" + 1", 100000) + ` }}`},
		{"long or", `{{ 0` + strings.Repeat(" or 0", 100000) + ` }}`},
		{"long filter chain", `{{ 'a'` + strings.Repeat("|upper", 100000) + ` }}`},
		{"long subscripts", `{{ a` + strings.Repeat("[0]", 100000) + ` }}`},
		{"long else chain", `{{ 1` + strings.Repeat(" if 1 else 1", 10000) + ` }}`},
		{"nested targets", `{% set ` + strings.Repeat("(", 10000) + `a` + strings.Repeat(")", 10000) + ` = 1 %}`},
		{"large source", strings.Repeat(" ", 2<<20)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			tmpl, err := Parse(tt.src)
			if err == nil {
				// Less than the default, so that the test is quick.
				_, err = tmpl.Render(nil, Options{Limits: Limits{Steps: 200_000, Work: 32 << 20}})
			}
			runtime.ReadMemStats(&after)
			var e *Error
			if !errors.As(err, &e) || e.Kind != Limit {
				t.Errorf("got %v, want an error of the kind limit", err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 512<<20 {
				t.Errorf("%d MiB allocated", n>>20)
			}
		})
	}
}

// TestRoomForLargeConversations renders as much as a long context holds.
func TestRoomForLargeConversations(t *testing.T) {
	content := strings.Repeat("All work and no play. ", 200) // 4.4 kB
	var messages []any
	for i := range 1000 {
		m := NewDict()
		m.Set("role", []string{"user", "assistant"}[i%2])
		m.Set("content", content)
		messages = append(messages, m)
	}
	vars := NewDict()
	vars.Set("messages", messages)
	vars.Set("bos_token", "<s>")
	vars.Set("eos_token", "</s>")
	vars.Set("add_generation_prompt", true)
	for _, name := range []string{"qwen3", "llama3.1", "gemma3", "mistral-nemo", "smollm3", "gpt-oss"} {
		tmpl := parseFile(t, name)
		out, err := tmpl.Render(vars, Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if len(out) < 1000*len(content)/2 {
			t.Errorf("%s: only %d bytes", name, len(out))
		}
	}
}
