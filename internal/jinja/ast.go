package jinja

// A control says how a statement ended.
type control int8

const (
	ctlNone control = iota
	ctlBreak
	ctlContinue
)

// A stmt is a node that writes output or changes names.
type stmt interface {
	exec(in *interp) (control, error)
}

// An expr is a node that has a value.
type expr interface {
	eval(in *interp) (any, error)
}

// A target is what an assignment may write to.
type target interface {
	assign(in *interp, v any) error
}

// Statements.
type (
	textStmt   struct{ text string }
	outputStmt struct {
		pos   pos
		value expr
	}
	ifStmt struct {
		pos      pos
		branches []branch
		orElse   []stmt
	}
	forStmt struct {
		pos    pos
		target target
		items  expr
		test   expr // nil: all items
		body   []stmt
		orElse []stmt
	}
	setStmt struct {
		pos    pos
		target target
		value  expr
	}
	setBlockStmt struct {
		pos     pos
		target  target
		filters []filterRef
		body    []stmt
	}
	filterStmt struct {
		pos     pos
		filters []filterRef
		body    []stmt
	}
	withStmt struct {
		pos     pos
		targets []target
		values  []expr
		body    []stmt
	}
	scopeStmt struct{ body []stmt }
	macroStmt struct {
		pos pos
		def *macroDef
	}
	callStmt struct {
		pos  pos
		call *callExpr
		body *macroDef // what caller() runs
	}
	breakStmt    struct{}
	continueStmt struct{}
)

// A branch is one if or elif with its body.
type branch struct {
	test expr
	body []stmt
}

// A macroDef is a macro as parsed.
type macroDef struct {
	name     string
	params   []string
	defaults []expr // of the last parameters
	body     []stmt
	// What the body mentions, and therefore what a call may give beyond the
	// parameters.
	usesVarargs, usesKwargs, usesCaller bool
}

// A filterRef is one filter of a chain with its arguments.
type filterRef struct {
	pos  pos
	name string
	args arguments
}

// arguments are the arguments of a call as parsed.
type arguments struct {
	pos     []expr
	kw      []keyword
	star    expr // *args
	starred expr // **kwargs
}

type keyword struct {
	name  string
	value expr
}

// Expressions.
type (
	constExpr struct{ value any }
	nameExpr  struct {
		pos  pos
		name string
	}
	listExpr struct {
		pos   pos
		items []expr
		tuple bool
	}
	dictExpr struct {
		pos        pos
		keys, vals []expr
	}
	attrExpr struct {
		pos  pos
		base expr
		name string
	}
	itemExpr struct {
		pos  pos
		base expr
		key  expr
	}
	sliceExpr struct {
		start, stop, step expr // nil where left out
	}
	callExpr struct {
		pos  pos
		fn   expr
		args arguments
	}
	filterExpr struct {
		base expr
		filterRef
	}
	testExpr struct {
		pos    pos
		base   expr
		name   string
		args   arguments
		negate bool
	}
	unaryExpr struct {
		pos pos
		op  byte // '-' or '+'
		x   expr
	}
	notExpr struct {
		pos pos
		x   expr
	}
	logicExpr struct {
		pos  pos
		or   bool
		a, b expr
	}
	binaryExpr struct {
		pos  pos
		op   string
		a, b expr
	}
	concatExpr struct {
		pos   pos
		parts []expr
	}
	compareExpr struct {
		pos   pos
		first expr
		ops   []comparison
	}
	condExpr struct {
		pos    pos
		test   expr
		then   expr
		orElse expr // nil: undefined
	}
)

type comparison struct {
	op string // == != < <= > >= in, not in
	x  expr
}

// Assignment targets.
type (
	nameTarget  struct{ name string }
	tupleTarget struct {
		pos   pos
		items []target
	}
	attrTarget struct {
		pos        pos
		name, attr string
	}
)
