package jinja

import "slices"

// macroBody parses the body of a macro or of a call block into def.
func (p *parser) macroBody(def *macroDef, name string) error {
	p.macros = append(p.macros, def)
	loops := p.loops
	p.loops = 0
	var err error
	def.body, _, err = p.block(name, "end"+name)
	p.loops = loops
	p.macros = p.macros[:len(p.macros)-1]
	return err
}

func (p *parser) macroStatement(at pos) (stmt, error) {
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	def := &macroDef{name: name.text}
	if err := p.signature(def); err != nil {
		return nil, err
	}
	if err := p.macroBody(def, "macro"); err != nil {
		return nil, err
	}
	return &macroStmt{at, def}, nil
}

func (p *parser) callStatement(at pos) (stmt, error) {
	def := &macroDef{name: "caller"}
	if p.isOp("(") {
		if err := p.signature(def); err != nil {
			return nil, err
		}
	}
	e, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := e.(*callExpr)
	if !ok {
		return nil, p.errorf(at, "{%% call %%} needs a call, such as {%% call m() %%}")
	}
	if err := p.macroBody(def, "call"); err != nil {
		return nil, err
	}
	// Inside the block, caller is that of the macro around it.
	def.usesCaller = false
	return &callStmt{at, call, def}, nil
}

// signature parses a macro's parameters.
func (p *parser) signature(def *macroDef) error {
	if err := p.expectOp("("); err != nil {
		return err
	}
	for !p.isOp(")") {
		if len(def.params) > 0 {
			if err := p.expectOp(","); err != nil {
				return err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return err
		}
		if slices.Contains(def.params, name.text) {
			return p.errorf(name.pos, "duplicate parameter %q", name.text)
		}
		if p.skipOp("=") {
			v, err := p.expression()
			if err != nil {
				return err
			}
			def.defaults = append(def.defaults, v)
		} else if len(def.defaults) > 0 {
			return p.errorf(name.pos, "parameter %q without a default follows one that has a default", name.text)
		}
		def.params = append(def.params, name.text)
	}
	return p.expectOp(")")
}

// assignTarget parses what a set, for or with assigns to: a name, names
// separated by commas, or, where attrs is true, an attribute of a namespace.
func (p *parser) assignTarget(attrs bool) (target, error) {
	at := p.tok().pos
	var items []target
	tuple := false
	for {
		item, err := p.oneTarget(attrs)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if !p.skipOp(",") {
			break
		}
		tuple = true
		if t := p.tok(); t.kind != tokName && !p.isOp("(") || t.text == "in" {
			break
		}
	}
	if !tuple {
		return items[0], nil
	}
	return &tupleTarget{at, items}, nil
}

func (p *parser) oneTarget(attrs bool) (target, error) {
	if p.isOp("(") {
		at := p.next().pos
		if err := p.enter(at); err != nil {
			return nil, err
		}
		defer p.leave()
		inner, err := p.assignTarget(attrs)
		if err != nil {
			return nil, err
		}
		return inner, p.expectOp(")")
	}
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	switch name.text {
	case "true", "false", "none", "True", "False", "None":
		return nil, p.errorf(name.pos, "cannot assign to %s", name.text)
	}
	if !attrs || !p.skipOp(".") {
		return &nameTarget{name.text}, nil
	}
	attr, err := p.expectName()
	return &attrTarget{name.pos, name.text, attr.text}, err
}
