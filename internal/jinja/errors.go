package jinja

import (
	"errors"
	"fmt"
)

// A Kind says what sort of failure an [Error] is.
type Kind int

const (
	// Syntax: the template does not parse.
	Syntax Kind = iota + 1
	// Unsupported: the template uses a construct outside the subset.
	Unsupported
	// Runtime: an operation failed while rendering.
	Runtime
	// Limit: the render went past one of its [Limits].
	Limit
	// Raised: the template called raise_exception; Msg is its own message.
	Raised
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case Syntax:
		return "syntax"
	case Unsupported:
		return "unsupported"
	case Runtime:
		return "runtime"
	case Limit:
		return "limit"
	case Raised:
		return "raised"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// An Error is any failure to parse or render a template.
type Error struct {
	Kind Kind
	Line int // 1-based; 0 when no place in the template is to blame
	Col  int // 1-based, in bytes
	Msg  string
}

// Error returns the message with the line in front.
func (e *Error) Error() string {
	msg := e.Msg
	if e.Kind == Raised {
		msg = "the template raised: " + msg
	}
	if e.Line == 0 {
		return "jinja: " + msg
	}
	return fmt.Sprintf("jinja: line %d: %s", e.Line, msg)
}

// fault is an error whose place is not known yet: operations on values return
// it, and the node that asked for the operation adds the line.
type fault struct {
	kind Kind
	msg  string
}

func (f *fault) Error() string { return f.msg }

func failf(format string, args ...any) error {
	return &fault{Runtime, fmt.Sprintf(format, args...)}
}

func unsupportedf(format string, args ...any) error {
	return &fault{Unsupported, fmt.Sprintf(format, args...)}
}

func limitf(format string, args ...any) error {
	return &fault{Limit, fmt.Sprintf(format, args...)}
}

// isLimit reports whether err says that a limit is passed, which nothing may
// turn into an ordinary result.
func isLimit(err error) bool {
	var f *fault
	return errors.As(err, &f) && f.kind == Limit
}
