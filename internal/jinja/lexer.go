package jinja

import (
	"fmt"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int8

const (
	tokEOF tokenKind = iota
	tokData
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

// A pos is a byte offset in the template's source.
type pos int32

type token struct {
	kind tokenKind
	pos  pos
	text string // a name, an operator, the value of a string, literal text
	num  any    // int64 or float64
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "the end of the template"
	case tokData:
		return "text"
	case tokVarBegin:
		return "{{"
	case tokVarEnd:
		return "}}"
	case tokBlockBegin:
		return "{%"
	case tokBlockEnd:
		return "%}"
	case tokString:
		return "a string"
	case tokInt, tokFloat:
		return fmt.Sprint(t.num)
	}
	return t.text
}

// source is a template's text, for turning offsets into lines.
type source struct {
	text  string
	lines []int // offset at which each line starts
}

func newSource(text string) *source {
	s := &source{text: text, lines: []int{0}}
	for i := range len(text) {
		if text[i] == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

func (s *source) errorf(k Kind, p pos, format string, args ...any) *Error {
	line := sort.SearchInts(s.lines, int(p)+1)
	return &Error{Kind: k, Line: line, Col: int(p) - s.lines[line-1] + 1, Msg: fmt.Sprintf(format, args...)}
}

type lexer struct {
	src    *source
	text   string
	pos    int
	tokens []token
	// lineStart says that the text so far ends where a line starts, so that
	// white space before a following block may be stripped.
	lineStart bool
}

// lex splits a template into tokens, with white space already treated as
// trim_blocks, lstrip_blocks and the -/+ signs demand.
func lex(src *source) ([]token, error) {
	l := &lexer{src: src, text: src.text, lineStart: true}
	for l.pos < len(l.text) {
		open := l.nextTag(l.pos)
		if open < 0 {
			l.data(l.pos, len(l.text))
			l.pos = len(l.text)
			break
		}
		if err := l.tag(open); err != nil {
			return nil, err
		}
	}
	l.emit(token{kind: tokEOF, pos: pos(len(l.text))})
	return l.tokens, nil
}

func (l *lexer) errorf(p int, format string, args ...any) error {
	return l.src.errorf(Syntax, pos(p), format, args...)
}

func (l *lexer) emit(t token) { l.tokens = append(l.tokens, t) }

func (l *lexer) data(from, to int) {
	if from < to {
		l.emit(token{kind: tokData, pos: pos(from), text: l.text[from:to]})
	}
}

// nextTag returns the offset of the next {{, {% or {#, or -1.
func (l *lexer) nextTag(from int) int {
	for i := from; ; i++ {
		j := strings.IndexByte(l.text[i:], '{')
		if j < 0 || i+j+1 >= len(l.text) {
			return -1
		}
		i += j
		switch l.text[i+1] {
		case '{', '%', '#':
			return i
		}
	}
}

// sign returns the white-space sign at offset i, or 0.
func (l *lexer) sign(i int) byte {
	if i < len(l.text) && (l.text[i] == '-' || l.text[i] == '+') {
		return l.text[i]
	}
	return 0
}

// textBefore emits the text before the tag at open.
func (l *lexer) textBefore(open int, sign byte, variable bool) {
	text := l.text[l.pos:open]
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, isSpace)
	case sign != '+' && !variable:
		// lstrip_blocks: drop white space between the line's start and the tag.
		line := strings.LastIndexByte(text, '\n') + 1
		if (line > 0 || l.lineStart) && strings.TrimFunc(text[line:], isSpace) == "" {
			text = text[:line]
		}
	}
	l.data(l.pos, l.pos+len(text))
}

// tag reads the text up to the tag at open, and the tag.
func (l *lexer) tag(open int) error {
	sign := l.sign(open + 2)
	inner := open + 2
	if sign != 0 {
		inner++
	}
	kind := l.text[open+1]
	l.textBefore(open, sign, kind == '{')
	if kind == '%' {
		if body, ok := l.rawBegin(inner); ok {
			return l.raw(open, body)
		}
	}
	switch kind {
	case '#':
		return l.comment(open, inner)
	case '{':
		l.emit(token{kind: tokVarBegin, pos: pos(open)})
	default:
		l.emit(token{kind: tokBlockBegin, pos: pos(open)})
	}
	l.pos = inner
	return l.code(open, kind)
}

func (l *lexer) skipSpace(i int) int {
	for i < len(l.text) {
		r, n := utf8.DecodeRuneInString(l.text[i:])
		if !isSpace(r) {
			break
		}
		i += n
	}
	return i
}

// close matches the end of a tag, such as %}, at offset i, and returns the
// offset after it and after the white space it takes away.
func (l *lexer) close(i int, mark string, trimNewline bool) (int, bool) {
	sign := l.sign(i)
	if sign == '+' && mark == "}}" {
		return 0, false
	}
	if sign != 0 {
		i++
	}
	if !strings.HasPrefix(l.text[i:], mark) {
		return 0, false
	}
	i += len(mark)
	switch {
	case sign == '-':
		i = l.skipSpace(i)
	case sign == 0 && trimNewline && i < len(l.text) && l.text[i] == '\n':
		i++
	}
	return i, true
}

// after moves past a tag that ends at offset i.
func (l *lexer) after(i int) {
	l.lineStart = i > 0 && l.text[i-1] == '\n'
	l.pos = i
}

func (l *lexer) comment(open, inner int) error {
	for i := inner; i < len(l.text); i++ {
		switch l.text[i] {
		case '#', '-', '+':
			if end, ok := l.close(i, "#}", true); ok {
				l.after(end)
				return nil
			}
		}
	}
	return l.errorf(open, "the comment has no end #}")
}

// rawBegin matches the rest of {% raw %}.
func (l *lexer) rawBegin(i int) (int, bool) {
	i = l.skipSpace(i)
	if !strings.HasPrefix(l.text[i:], "raw") {
		return 0, false
	}
	i = l.skipSpace(i + len("raw"))
	if l.sign(i) == '+' {
		return 0, false
	}
	return l.close(i, "%}", false)
}

func (l *lexer) raw(open, body int) error {
	l.after(body)
	for i := body; ; i++ {
		j := strings.Index(l.text[i:], "{%")
		if j < 0 {
			return l.errorf(open, "{%% raw %%} has no {%% endraw %%}")
		}
		i += j
		sign := l.sign(i + 2)
		inner := i + 2
		if sign != 0 {
			inner++
		}
		inner = l.skipSpace(inner)
		if !strings.HasPrefix(l.text[inner:], "endraw") {
			continue
		}
		if end, ok := l.close(l.skipSpace(inner+len("endraw")), "%}", true); ok {
			l.textBefore(i, sign, false)
			l.after(end)
			return nil
		}
	}
}

// operators, the longer ones first.
var operators = []string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

// code reads the tokens inside {{ }} or {% %} up to and with its end.
func (l *lexer) code(open int, kind byte) error {
	var brackets []byte // the closing ones that are awaited
	mark, endKind := "%}", tokBlockEnd
	if kind == '{' {
		mark, endKind = "}}", tokVarEnd
	}
	for l.pos < len(l.text) {
		if len(brackets) == 0 {
			if end, ok := l.close(l.pos, mark, kind == '%'); ok {
				l.emit(token{kind: endKind, pos: pos(l.pos)})
				l.after(end)
				return nil
			}
		}
		if next := l.skipSpace(l.pos); next > l.pos {
			l.pos = next
			continue
		}
		ok, err := l.word()
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		op := l.operator()
		switch op {
		case "":
			r, _ := utf8.DecodeRuneInString(l.text[l.pos:])
			return l.errorf(l.pos, "unexpected character %q", r)
		case "(":
			brackets = append(brackets, ')')
		case "[":
			brackets = append(brackets, ']')
		case "{":
			brackets = append(brackets, '}')
		case ")", "]", "}":
			if len(brackets) == 0 {
				return l.errorf(l.pos, "unexpected %q", op)
			}
			want := brackets[len(brackets)-1]
			if op[0] != want {
				return l.errorf(l.pos, "unexpected %q, expected %q", op, string(want))
			}
			brackets = brackets[:len(brackets)-1]
		}
		l.emit(token{kind: tokOp, pos: pos(l.pos), text: op})
		l.pos += len(op)
	}
	return l.errorf(open, "{%c has no end %s", kind, mark)
}

func (l *lexer) operator() string {
	for _, op := range operators {
		if strings.HasPrefix(l.text[l.pos:], op) {
			return op
		}
	}
	return ""
}

// isSpace is Python's str.isspace for one code point.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}
