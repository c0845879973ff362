package chat

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"baton/internal/jinja"
)

// text builds a Text out of pieces, of which those in brackets are the user's.
func text(t interface{ Fatal(...any) }, s string) jinja.Text {
	vars := jinja.NewDict()
	src := ""
	for i, piece := range strings.Split(s, "[") {
		user, rest, found := strings.Cut(piece, "]")
		if !found {
			rest, user = user, ""
		}
		name := "u" + strings.Repeat("x", i)
		vars.Set(name, jinja.Untrusted(user))
		vars.Set(name+"r", rest)
		src += "{{ " + name + " }}{{ " + name + "r }}"
	}
	tmpl, err := jinja.Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	out, err := tmpl.RenderText(vars, jinja.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		name, words, in, want string // in want, parts are separated by | and the untrusted ones in brackets
	}{
		{"no words", "", "<a>[<a>]", "<a><a>"},
		{"nothing of the user's", "<a>", "<a>b<a>", "<a>b<a>"},
		{"ordinary", "<a>", "<a>[b < a >]<a>", "<a>b < a ><a>"},
		{"a look-alike", "<a>", "<a>[b<a>c]<a>", "<a>b|[<a>]|c<a>"},
		{"two in a row", "<a> <b>", "[<a><b>]", "[<a>]|[<b>]"},
		{"half the user's", "<a>", "<[a]>x", "[<a>]|x"},
		{"one byte of the user's", "<a>", "<a[>]", "[<a>]"},
		{"the longest wins", "<a> <a>b", "[<a>b]", "[<a>b]"},
		{"the user's longer one does not swallow the template's", "<a> <a>b", "<a>[b]", "<a>|b"},
		{"overlap before", "xa <a> a><", "[x]a<a>", "[xa]|<a>"},
		{"overlap at the end of a token", "<a> >b", "<a>[b]c", "<a>|bc"},
		{"overlap at the start of a token", "b< <a>", "[b]<a>c", "b|<a>c"},
		{"inside words", "ab abc bcd", "[abcd]", "[abc]|d"},
		{"long prefixes", "<|reserved_1|> <|reserved_10|>", "[<|reserved_10|>]<|reserved_1|>", "[<|reserved_10|>]|<|reserved_1|>"},
		{"letters beyond ASCII", "<｜a｜>", "[<｜a｜>ü]", "[<｜a｜>]|ü"},
	} {
		m := newMatcher(strings.Fields(tt.words))
		var got []string
		for _, p := range m.split(text(t, tt.in)) {
			if p.Trusted {
				got = append(got, p.Text)
			} else {
				got = append(got, "["+p.Text+"]")
			}
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, "|")); diff != "" {
			t.Errorf("%s:\n%s", tt.name, diff)
		}
	}
}

// TestSplitProperty: whatever the words and the text, a tokenizer that looks for
// words in the trusted parts finds none that holds a byte of the user's, and
// finds all that the template wrote where words cannot overlap each other.
func TestSplitProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("<a>b")), 1, 4, -1), 0, 4).Draw(t, "words")
		var in strings.Builder
		for _, s := range rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("<a>b")), 0, 4, -1), 0, 8).Draw(t, "pieces") {
			if rapid.Bool().Draw(t, "user") {
				s = "[" + s + "]"
			}
			in.WriteString(s)
		}
		m := newMatcher(words)
		whole := text(t, in.String())
		parts := m.split(whole)
		if Join(parts) != whole.String() {
			t.Fatalf("%v is not %q", parts, whole)
		}
		marked := func(i, j int) bool {
			for _, s := range whole.Marks() {
				if s.Start < j && i < s.End {
					return true
				}
			}
			return false
		}
		at := 0
		for _, p := range parts {
			if p.Trusted {
				for i := range p.Text {
					m.longest(p.Text[i:], func(n int) bool {
						if marked(at+i, at+i+n) {
							t.Fatalf("%v: the trusted part %q holds the user's %q", parts, p.Text, p.Text[i:i+n])
						}
						return false
					})
				}
			} else if !m.is(p.Text) || !marked(at, at+len(p.Text)) {
				t.Fatalf("%v: %q is no word of the user's", parts, p.Text)
			}
			at += len(p.Text)
		}
	})
}
