package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A Template is a parsed template. It may be rendered by several goroutines at
// once.
type Template struct {
	src  *source
	body []stmt
}

// Parse parses a template. The error is an [*Error] of kind [Syntax], or
// [Unsupported] for a statement outside the subset.
func Parse(src string) (*Template, error) {
	if len(src) > maxSource {
		return nil, &Error{Kind: Limit, Msg: "the template is larger than 1 MiB"}
	}
	if !utf8.ValidString(src) {
		return nil, &Error{Kind: Syntax, Msg: "the template is not valid UTF-8"}
	}
	// As in Jinja: lines end in \n, and one at the very end does not count.
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	s := newSource(strings.TrimSuffix(src, "\n"))
	tokens, err := lex(s)
	if err != nil {
		return nil, err
	}
	p := &parser{src: s, tokens: tokens}
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	return &Template{src: s, body: body}, nil
}

// parser is a recursive-descent parser over the tokens.
type parser struct {
	src    *source
	tokens []token
	i      int
	depth  int
	loops  int         // loops around the current statement
	macros []*macroDef // macros around it, for what their bodies mention
	// within names the open blocks, for errors.
	within []string
}

func (p *parser) tok() token { return p.tokens[p.i] }

func (p *parser) next() token {
	t := p.tokens[p.i]
	if t.kind != tokEOF {
		p.i++
	}
	return t
}

func (p *parser) look() token {
	return p.tokens[min(p.i+1, len(p.tokens)-1)]
}

func (p *parser) isOp(op string) bool {
	t := p.tok()
	return t.kind == tokOp && t.text == op
}

func (p *parser) isName(name string) bool {
	t := p.tok()
	return t.kind == tokName && t.text == name
}

func (p *parser) skipOp(op string) bool {
	if !p.isOp(op) {
		return false
	}
	p.i++
	return true
}

func (p *parser) skipName(name string) bool {
	if !p.isName(name) {
		return false
	}
	p.i++
	return true
}

func (p *parser) errorf(at pos, format string, args ...any) error {
	return p.src.errorf(Syntax, at, format, args...)
}

func (p *parser) expectOp(op string) error {
	if !p.skipOp(op) {
		return p.errorf(p.tok().pos, "expected %q, found %s", op, p.tok())
	}
	return nil
}

func (p *parser) expectName() (token, error) {
	if p.tok().kind != tokName {
		return token{}, p.errorf(p.tok().pos, "expected a name, found %s", p.tok())
	}
	return p.next(), nil
}

func (p *parser) expect(kind tokenKind) error {
	if p.tok().kind != kind {
		return p.errorf(p.tok().pos, "expected %s, found %s", token{kind: kind}, p.tok())
	}
	p.next()
	return nil
}

func (p *parser) enter(at pos) error {
	if p.depth++; p.depth > maxParseDepth {
		return p.src.errorf(Limit, at, "the template nests more than %d levels", maxParseDepth)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// body parses up to the end of the template, or up to a block that starts with
// one of the names in ends, which becomes the current token.
func (p *parser) body(ends ...string) ([]stmt, error) {
	var out []stmt
	start := p.tok().pos
	for {
		t := p.next()
		switch t.kind {
		case tokEOF:
			if len(ends) > 0 {
				return nil, p.errorf(start, "{%% %s %%} has no {%% %s %%}", p.within[len(p.within)-1], ends[len(ends)-1])
			}
			return out, nil
		case tokData:
			out = append(out, &textStmt{t.text})
		case tokVarBegin:
			e, err := p.tupleExpr(true)
			if err != nil {
				return nil, err
			}
			if err := p.expect(tokVarEnd); err != nil {
				return nil, err
			}
			out = append(out, &outputStmt{t.pos, e})
		case tokBlockBegin:
			if p.tok().kind == tokName && slices.Contains(ends, p.tok().text) {
				return out, nil
			}
			s, err := p.statement()
			if err != nil {
				return nil, err
			}
			if err := p.expect(tokBlockEnd); err != nil {
				return nil, err
			}
			out = append(out, s...)
		}
	}
}

// block parses the body of the statement named name, whose head has just been
// read, up to one of ends; the end's name is consumed and returned.
func (p *parser) block(name string, ends ...string) ([]stmt, string, error) {
	p.skipOp(":") // allowed for those used to Python
	if err := p.expect(tokBlockEnd); err != nil {
		return nil, "", err
	}
	if err := p.enter(p.tok().pos); err != nil {
		return nil, "", err
	}
	defer p.leave()
	p.within = append(p.within, name)
	body, err := p.body(ends...)
	p.within = p.within[:len(p.within)-1]
	if err != nil {
		return nil, "", err
	}
	return body, p.next().text, nil
}

func (p *parser) statement() ([]stmt, error) {
	t, err := p.expectName()
	if err != nil {
		return nil, err
	}
	switch t.text {
	case "if":
		s, err := p.ifStatement(t.pos)
		return []stmt{s}, err
	case "for":
		s, err := p.forStatement(t.pos)
		return []stmt{s}, err
	case "set":
		s, err := p.setStatement(t.pos)
		return []stmt{s}, err
	case "macro":
		s, err := p.macroStatement(t.pos)
		return []stmt{s}, err
	case "call":
		s, err := p.callStatement(t.pos)
		return []stmt{s}, err
	case "filter":
		filters, err := p.filterChain(true)
		if err != nil {
			return nil, err
		}
		body, _, err := p.block("filter", "endfilter")
		return []stmt{&filterStmt{t.pos, filters, body}}, err
	case "with":
		s, err := p.withStatement(t.pos)
		return []stmt{s}, err
	case "generation":
		// transformers marks the assistant's tokens with it, for training.
		body, _, err := p.block("generation", "endgeneration")
		return []stmt{&scopeStmt{body}}, err
	case "print":
		return p.printStatement(t.pos)
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.errorf(t.pos, "{%% %s %%} stands outside of a loop", t.text)
		}
		if t.text == "break" {
			return []stmt{breakStmt{}}, nil
		}
		return []stmt{continueStmt{}}, nil
	case "extends", "block", "include", "import", "from", "autoescape", "do", "trans", "debug":
		return nil, p.src.errorf(Unsupported, t.pos, "{%% %s %%} is not supported", t.text)
	}
	if len(p.within) > 0 {
		return nil, p.errorf(t.pos, "unknown statement {%% %s %%} inside {%% %s %%}", t.text, p.within[len(p.within)-1])
	}
	return nil, p.errorf(t.pos, "unknown statement {%% %s %%}", t.text)
}

func (p *parser) ifStatement(at pos) (stmt, error) {
	s := &ifStmt{pos: at}
	for {
		test, err := p.tupleExpr(false)
		if err != nil {
			return nil, err
		}
		body, end, err := p.block("if", "elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.branches = append(s.branches, branch{test, body})
		switch end {
		case "else":
			s.orElse, _, err = p.block("if", "endif")
			return s, err
		case "endif":
			return s, nil
		}
	}
}

func (p *parser) forStatement(at pos) (stmt, error) {
	s := &forStmt{pos: at}
	var err error
	if s.target, err = p.assignTarget(false); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.errorf(p.tok().pos, "expected \"in\", found %s", p.tok())
	}
	if s.items, err = p.tupleExpr(false); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.test, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if p.isName("recursive") {
		return nil, p.src.errorf(Unsupported, p.tok().pos, "{%% for ... recursive %%} is not supported")
	}
	p.loops++
	body, end, err := p.block("for", "else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	s.body = body
	if end == "else" {
		s.orElse, _, err = p.block("for", "endfor")
	}
	return s, err
}

func (p *parser) setStatement(at pos) (stmt, error) {
	to, err := p.assignTarget(true)
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		v, err := p.tupleExpr(true)
		return &setStmt{at, to, v}, err
	}
	filters, err := p.filterChain(false)
	if err != nil {
		return nil, err
	}
	body, _, err := p.block("set", "endset")
	return &setBlockStmt{at, to, filters, body}, err
}

func (p *parser) withStatement(at pos) (stmt, error) {
	s := &withStmt{pos: at}
	for p.tok().kind != tokBlockEnd && !p.isOp(":") {
		if len(s.targets) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		to, err := p.assignTarget(false)
		if err != nil {
			return nil, err
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets = append(s.targets, to)
		s.values = append(s.values, v)
	}
	var err error
	s.body, _, err = p.block("with", "endwith")
	return s, err
}

func (p *parser) printStatement(at pos) ([]stmt, error) {
	var out []stmt
	for p.tok().kind != tokBlockEnd {
		if len(out) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		out = append(out, &outputStmt{at, e})
	}
	return out, nil
}
