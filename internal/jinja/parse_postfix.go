package jinja

// postfix parses attributes, subscripts and calls after e.
func (p *parser) postfix(e expr, n *chain) (expr, error) {
	for {
		t := p.tok()
		if t.kind != tokOp || t.text != "." && t.text != "[" && t.text != "(" {
			return e, nil
		}
		if err := p.link(n); err != nil {
			return nil, err
		}
		var err error
		switch p.next(); t.text {
		case ".":
			name := p.next()
			switch name.kind {
			case tokName:
				e = &attrExpr{t.pos, e, name.text}
			case tokInt:
				e = &itemExpr{t.pos, e, &constExpr{name.num}}
			default:
				return nil, p.errorf(name.pos, "expected a name or a number after the dot, found %s", name)
			}
		case "[":
			var key expr
			if key, err = p.subscript(); err != nil {
				return nil, err
			}
			e = &itemExpr{t.pos, e, key}
		case "(":
			var args arguments
			if args, err = p.arguments(); err != nil {
				return nil, err
			}
			e = &callExpr{t.pos, e, args}
		}
	}
}

// subscript parses what stands between brackets, and the closing one.
func (p *parser) subscript() (expr, error) {
	var start expr
	var err error
	if !p.isOp(":") {
		if start, err = p.expression(); err != nil {
			return nil, err
		}
		if !p.isOp(":") {
			return start, p.expectOp("]")
		}
	}
	s := &sliceExpr{start: start}
	for _, part := range []*expr{&s.stop, &s.step} {
		if !p.skipOp(":") {
			break
		}
		if p.isOp(":") || p.isOp("]") {
			continue
		}
		if *part, err = p.expression(); err != nil {
			return nil, err
		}
	}
	return s, p.expectOp("]")
}

// arguments parses the arguments of a call after its opening bracket.
func (p *parser) arguments() (arguments, error) {
	var a arguments
	for first := true; !p.isOp(")"); first = false {
		if !first {
			if err := p.expectOp(","); err != nil {
				return a, err
			}
			if p.isOp(")") {
				break
			}
		}
		t := p.tok()
		var err error
		switch {
		case p.isOp("*") && a.star == nil && a.starred == nil:
			p.next()
			a.star, err = p.expression()
		case p.isOp("**") && a.starred == nil:
			p.next()
			a.starred, err = p.expression()
		case t.kind == tokName && p.look().kind == tokOp && p.look().text == "=" && a.starred == nil:
			p.next()
			p.next()
			for _, k := range a.kw {
				if k.name == t.text {
					return a, p.errorf(t.pos, "keyword argument %q is given twice", t.text)
				}
			}
			var v expr
			v, err = p.expression()
			a.kw = append(a.kw, keyword{t.text, v})
		case a.star == nil && a.starred == nil && len(a.kw) == 0:
			var v expr
			v, err = p.expression()
			a.pos = append(a.pos, v)
		default:
			return a, p.errorf(t.pos, "a positional argument follows keyword arguments")
		}
		if err != nil {
			return a, err
		}
	}
	return a, p.expectOp(")")
}

// filtered parses filters, tests and calls after e.
func (p *parser) filtered(e expr, n *chain) (expr, error) {
	for {
		t := p.tok()
		switch {
		case p.isOp("|"):
			p.next()
			f, err := p.filter()
			if err != nil {
				return nil, err
			}
			e = &filterExpr{e, f}
		case p.isName("is"):
			p.next()
			var err error
			if e, err = p.test(e, t.pos); err != nil {
				return nil, err
			}
		case p.isOp("("):
			p.next()
			args, err := p.arguments()
			if err != nil {
				return nil, err
			}
			e = &callExpr{t.pos, e, args}
		default:
			return e, nil
		}
		if err := p.link(n); err != nil {
			return nil, err
		}
	}
}

// filter parses a filter's name and arguments.
func (p *parser) filter() (filterRef, error) {
	name, err := p.expectName()
	if err != nil {
		return filterRef{}, err
	}
	f := filterRef{pos: name.pos, name: name.text}
	if p.skipOp("(") {
		f.args, err = p.arguments()
	}
	return f, err
}

// filterChain parses the filters of {% filter a|b %} (begun: the first stands
// without a bar) and of {% set x | a | b %}.
func (p *parser) filterChain(begun bool) ([]filterRef, error) {
	var out []filterRef
	for begun || p.skipOp("|") {
		begun = false
		f, err := p.filter()
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// test parses what follows "is".
func (p *parser) test(e expr, at pos) (expr, error) {
	t := &testExpr{pos: at, base: e, negate: p.skipName("not")}
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	t.name = name.text
	next := p.tok()
	switch {
	case p.skipOp("("):
		t.args, err = p.arguments()
	case next.kind == tokName && (next.text == "else" || next.text == "or" || next.text == "and" || next.text == "if"):
	case p.isName("is"):
		return nil, p.errorf(next.pos, "tests cannot be chained with \"is\"; join them with \"and\"")
	case next.kind == tokName || next.kind == tokString || next.kind == tokInt || next.kind == tokFloat ||
		p.isOp("[") || p.isOp("{"):
		var arg expr
		var n chain
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg, &n)
		}
		t.args.pos = []expr{arg}
	}
	return t, err
}
