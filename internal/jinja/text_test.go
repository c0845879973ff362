package jinja

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// show writes a text with its marked stretches in [ ].
func show(t Text) string {
	var b strings.Builder
	at := 0
	for _, m := range t.Marks() {
		b.WriteString(t.s[at:m.Start] + "[" + t.s[m.Start:m.End] + "]")
		at = m.End
	}
	return b.String() + t.s[at:]
}

// TestMarksFollowText checks that the text of a user stays known as such
// through whatever templates do with it. What is marked is worked out by hand.
func TestMarksFollowText(t *testing.T) {
	vars := NewDict()
	vars.Set("c", Untrusted("Hello, World"))
	vars.Set("sp", Untrusted("  a  "))
	vars.Set("u", Untrusted("Grüße"))
	vars.Set("thought", Untrusted("<think>\nhm\n</think>\n\nyes"))
	vars.Set("d", UntrustedValue(func() any {
		v, err := FromJSON([]byte(`{"k<": "v\"", "n": [1, "x"]}`))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}()))
	vars.Set("plain", "plain")
	for _, tt := range []struct{ src, want string }{
		{`{{ plain }}`, "plain"},
		{`<{{ c }}>`, "<[Hello, World]>"},
		{`{{ '<' + c + '>' }}`, "<[Hello, World]>"},
		{`{{ '<' ~ c ~ '>' ~ 1 }}`, "<[Hello, World]>1"},
		{`{{ c[0] }}{{ c[1:3] }}{{ c[-1:] }}`, "[Held]"},
		{`{{ ('<' + c)[:3] }}`, "<[He]"},
		{`{{ ('<' + c)[::-1] }}`, "[dlroW ,olleH]<"},
		{`{{ u[2] }}|{{ ('ä' + u)[1:4] }}`, "[ü]|[Grü]"},
		{`{{ sp|trim }}|{{ sp.strip() }}|{{ sp.lstrip() }}|`, "[a]|[a]|[a  ]|"},
		{`{{ ('- ' ~ sp)|trim('- ') }}`, "[a]"},
		{`{{ c.split(', ')|join('; ') }}`, "[Hello]; [World]"},
		{`{{ c.split(', ')[1] }}`, "[World]"},
		{`{{ thought.split('</think>')|last|trim }}`, "[yes]"},
		{`{{ thought.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}`, "[hm]"},
		{`{{ c.partition(', ')[2] }}`, "[World]"},
		{`{{ ('a\n' + c).splitlines()|join('|') }}`, "a|[Hello, World]"},
		{`{{ c|upper }}{{ u|upper }}`, "[HELLO, WORLDGRÜSSE]"},
		{`{{ ('a' + c)|upper }}`, "A[HELLO, WORLD]"},
		{`{{ c|replace('World', plain) }}`, "[Hello, ]plain"},
		{`{{ '{}'|replace('{}', c) }}`, "[Hello, World]"},
		{`{{ '{x}'.replace('x', c) }}`, "{[Hello, World]}"},
		{`{{ '-'.join([c, plain]) }}`, "[Hello, World]-plain"},
		{`{{ c.join(['1', '2']) }}`, "1[Hello, World]2"},
		{`{{ [plain, c]|join(', ') }}`, "plain, [Hello, World]"},
		{`{{ '%s: %s' % (plain, c) }}`, "plain: [Hello, World]"},
		{`{{ '%(a)s!'|format(a=c) }}`, "[Hello, World]!"},
		{`{{ '{0} {1}'.format(plain, c) }}`, "plain [Hello, World]"},
		{`{{ '{:>14}'.format(c) }}`, "  [Hello, World]"},
		{`{{ c * 2 }}`, "[Hello, WorldHello, World]"},
		{`{{ c|center(16) }}|{{ c.ljust(13) }}|`, "  [Hello, World]  |[Hello, World] |"},
		{`{{ 'x\n'|indent(2) }}{{ ('a\n' ~ c)|indent(2) }}`, "x\na\n  [Hello, World]"},
		{`{{ c|truncate(8, true, '..', 0) }}`, "[Hello,].."},
		{`{{ c|first }}{{ c|last }}{{ c|reverse }}`, "[HddlroW ,olleH]"},
		{`{% for x in c[:2] %}{{ x }}.{% endfor %}`, "[H].[e]."},
		{`{{ c|list|join('') }}`, "[Hello, World]"},
		{`{{ c|tojson }}`, `"[Hello, World]"`},
		{`{{ d|tojson }}`, `{"[k<]": "[v\"]", "[n]": [1, "[x]"]}`},
		{`{{ d }}`, `{['k<']: ['v"'], ['n']: [1, ['x']]}`},
		{`{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}`, `[k<]=[v"];[n]=[1, ['x']];`},
		{`{{ d|list|join }}|{{ d.keys()|first }}|{{ (d|items|first)[0] }}`, "[k<n]|[k<]|[k<]"},
		{`{% set x = {c: 1} %}{% for k in x %}{{ k }}{% endfor %}`, "[Hello, World]"},
		{`{% set x = dict(a=c) %}{{ x.a }}`, "[Hello, World]"},
		{`{% set x %}<{{ c }}>{% endset %}{{ x }}`, "<[Hello, World]>"},
		{`{% filter upper %}<{{ c }}>{% endfilter %}`, "<[HELLO, WORLD]>"},
		{`{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(c) }}`, "<[Hello, World]>"},
		{`{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ c }}{% endcall %}`, "<[Hello, World]>"},
		{`{% set ns = namespace(a='') %}{% set ns.a = ns.a ~ c %}{{ ns.a }}`, "[Hello, World]"},
		{`{{ c|default('x') }}{{ c or 'x' }}{{ 'a' if not c else c }}`, "[Hello, WorldHello, WorldHello, World]"},
		{`{{ c|string }}{{ c|safe }}{{ (c|e) }}`, "[Hello, WorldHello, WorldHello, World]"},
		{`{{ [c]|map('upper')|first }}{{ [c]|sort|last }}{{ [c]|max }}`, "[HELLO, WORLDHello, WorldHello, World]"},
		{`{{ c|length }}{{ c == 'Hello, World' }}{{ 'World' in c }}{{ c is string }}`, "12TrueTrueTrue"},
		{`{{ '7'.zfill(3) }}{{ c.zfill(13) }}`, "0070[Hello, World]"},
	} {
		tmpl, err := Parse(tt.src)
		if err != nil {
			t.Errorf("%s: %v", tt.src, err)
			continue
		}
		got, err := tmpl.RenderText(vars, Options{})
		if err != nil {
			t.Errorf("%s: %v", tt.src, err)
			continue
		}
		if show(got) != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.src, show(got), tt.want)
		}
	}
}

// A markedByte is the model that Text is compared with.
type markedByte struct {
	b      byte
	marked bool
}

func (t Text) bytes() []markedByte {
	out := make([]markedByte, len(t.s))
	for i := range out {
		out[i].b = t.s[i]
	}
	for _, m := range t.marks {
		for i := m.Start; i < m.End; i++ {
			out[i].marked = true
		}
	}
	return out
}

// TestTextProperty joins and slices texts at random and compares with bytes
// that carry a flag each.
func TestTextProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b textBuilder
		var want []markedByte
		for _, s := range rapid.SliceOfN(rapid.StringN(0, 6, -1), 0, 12).Draw(t, "pieces") {
			piece := Text{s: s}
			if rapid.Bool().Draw(t, "marked") {
				piece = Untrusted(s)
			}
			b.write(piece)
			want = append(want, piece.bytes()...)
		}
		whole := b.text()
		i := rapid.IntRange(0, len(whole.s)).Draw(t, "from")
		j := rapid.IntRange(i, len(whole.s)).Draw(t, "to")
		opts := cmp.AllowUnexported(markedByte{})
		if diff := cmp.Diff(append([]markedByte{}, want[i:j]...), append([]markedByte{}, whole.slice(i, j).bytes()...), opts); diff != "" {
			t.Fatal(diff)
		}
		for k, m := range whole.marks {
			if m.Start >= m.End || k > 0 && m.Start <= whole.marks[k-1].End {
				t.Fatalf("marks %v are empty, adjacent or out of order", whole.marks)
			}
		}
	})
}
