package jinja

// The grammar, loosest first, as Jinja has it:
//
//	conditional   a if b else c
//	or, and, not
//	comparison    == != < <= > >= in, not in, chained as in Python
//	sum           + -
//	concatenation ~
//	product       * / // %
//	power         **
//	unary         - +
//	postfix       .name [key] (args)
//	filter        |name(args), is name args

// chain counts the operators in a row at one place of the grammar.
type chain int

func (p *parser) link(c *chain) error {
	if *c++; *c > maxChain {
		return p.src.errorf(Limit, p.tok().pos, "an expression chains more than %d operators", maxChain)
	}
	return nil
}

// tupleExpr parses an expression, or several with commas between, which make a
// tuple. A bare "a if b else c" counts as one only where cond is true.
func (p *parser) tupleExpr(cond bool) (expr, error) {
	one := p.expression
	if !cond {
		one = p.orExpr
	}
	at := p.tok().pos
	first, err := one()
	if err != nil || !p.isOp(",") {
		return first, err
	}
	items := []expr{first}
	for p.skipOp(",") {
		if t := p.tok(); t.kind == tokVarEnd || t.kind == tokBlockEnd || p.isOp(")") || p.isOp("]") {
			break
		}
		e, err := one()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	return &listExpr{at, items, true}, nil
}

func (p *parser) expression() (expr, error) {
	if err := p.enter(p.tok().pos); err != nil {
		return nil, err
	}
	defer p.leave()
	e, err := p.orExpr()
	var n chain
	for err == nil && p.isName("if") {
		c := &condExpr{pos: p.next().pos, then: e}
		if err := p.link(&n); err != nil {
			return nil, err
		}
		if c.test, err = p.orExpr(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			c.orElse, err = p.expression()
		}
		e = c
	}
	return e, err
}

func (p *parser) orExpr() (expr, error) {
	a, err := p.andExpr()
	var n chain
	for err == nil && p.isName("or") {
		at := p.next().pos
		if err := p.link(&n); err != nil {
			return nil, err
		}
		var b expr
		b, err = p.andExpr()
		a = &logicExpr{at, true, a, b}
	}
	return a, err
}

func (p *parser) andExpr() (expr, error) {
	a, err := p.notExpr()
	var n chain
	for err == nil && p.isName("and") {
		at := p.next().pos
		if err := p.link(&n); err != nil {
			return nil, err
		}
		var b expr
		b, err = p.notExpr()
		a = &logicExpr{at, false, a, b}
	}
	return a, err
}

func (p *parser) notExpr() (expr, error) {
	if !p.isName("not") {
		return p.comparison()
	}
	at := p.next().pos
	if err := p.enter(at); err != nil {
		return nil, err
	}
	defer p.leave()
	x, err := p.notExpr()
	return &notExpr{at, x}, err
}

// comparisonOp consumes a comparison operator and returns it, or "".
func (p *parser) comparisonOp() string {
	t := p.tok()
	switch {
	case t.kind == tokOp:
		switch t.text {
		case "==", "!=", "<", "<=", ">", ">=":
			p.next()
			return t.text
		}
	case p.skipName("in"):
		return "in"
	case p.isName("not") && p.look().kind == tokName && p.look().text == "in":
		p.next()
		p.next()
		return "not in"
	}
	return ""
}

func (p *parser) comparison() (expr, error) {
	at := p.tok().pos
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{pos: at, first: first}
	for {
		at := p.tok().pos
		op := p.comparisonOp()
		if op == "" {
			break
		}
		if len(c.ops) == 0 {
			c.pos = at
		}
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops = append(c.ops, comparison{op, x})
	}
	if len(c.ops) == 0 {
		return first, nil
	}
	return c, nil
}

// binary parses operands of the next tighter level with the operators ops
// between them, from left to right.
func (p *parser) binary(operand func() (expr, error), ops ...string) (expr, error) {
	a, err := operand()
	var n chain
next:
	for err == nil {
		for _, op := range ops {
			if !p.isOp(op) {
				continue
			}
			at := p.next().pos
			if err := p.link(&n); err != nil {
				return nil, err
			}
			var b expr
			b, err = operand()
			a = &binaryExpr{at, op, a, b}
			continue next
		}
		break
	}
	return a, err
}

func (p *parser) sum() (expr, error) { return p.binary(p.concatenation, "+", "-") }

func (p *parser) concatenation() (expr, error) {
	at := p.tok().pos
	first, err := p.product()
	if err != nil || !p.isOp("~") {
		return first, err
	}
	c := &concatExpr{at, []expr{first}}
	for p.skipOp("~") {
		e, err := p.product()
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, e)
	}
	return c, nil
}

func (p *parser) product() (expr, error) { return p.binary(p.power, "*", "/", "//", "%") }

// power is left-associative, as in Jinja, and unlike in Python.
func (p *parser) power() (expr, error) {
	return p.binary(func() (expr, error) { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) (expr, error) {
	t := p.tok()
	var e expr
	var err error
	if t.kind == tokOp && (t.text == "-" || t.text == "+") {
		p.next()
		if err := p.enter(t.pos); err != nil {
			return nil, err
		}
		defer p.leave()
		var x expr
		if x, err = p.unary(false); err != nil {
			return nil, err
		}
		e = &unaryExpr{t.pos, t.text[0], x}
	} else if e, err = p.primary(); err != nil {
		return nil, err
	}
	var n chain
	if e, err = p.postfix(e, &n); err != nil || !filters {
		return e, err
	}
	return p.filtered(e, &n)
}

func (p *parser) primary() (expr, error) {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{true}, nil
		case "false", "False":
			return &constExpr{false}, nil
		case "none", "None":
			return &constExpr{nil}, nil
		}
		p.mention(t.text)
		return &nameExpr{t.pos, t.text}, nil
	case tokString:
		s := t.text
		for p.tok().kind == tokString {
			s += p.next().text
		}
		return &constExpr{s}, nil
	case tokInt, tokFloat:
		return &constExpr{t.num}, nil
	case tokOp:
		switch t.text {
		case "(":
			if p.skipOp(")") {
				return &listExpr{t.pos, nil, true}, nil
			}
			if err := p.enter(t.pos); err != nil {
				return nil, err
			}
			defer p.leave()
			e, err := p.tupleExpr(true)
			if err != nil {
				return nil, err
			}
			return e, p.expectOp(")")
		case "[":
			items, err := p.items("]")
			return &listExpr{t.pos, items, false}, err
		case "{":
			return p.dict(t.pos)
		}
	}
	return nil, p.errorf(t.pos, "expected an expression, found %s", t)
}

// mention notes a name that the macros around it may have to be given.
func (p *parser) mention(name string) {
	for _, m := range p.macros {
		switch name {
		case "varargs":
			m.usesVarargs = true
		case "kwargs":
			m.usesKwargs = true
		case "caller":
			m.usesCaller = true
		}
	}
}

// items parses expressions with commas between up to the closing bracket.
func (p *parser) items(end string) ([]expr, error) {
	var out []expr
	for !p.isOp(end) {
		if len(out) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.isOp(end) {
				break
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, p.expectOp(end)
}

func (p *parser) dict(at pos) (expr, error) {
	d := &dictExpr{pos: at}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.isOp("}") {
				break
			}
		}
		k, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys = append(d.keys, k)
		d.vals = append(d.vals, v)
	}
	return d, p.expectOp("}")
}
