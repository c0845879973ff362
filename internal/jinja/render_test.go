package jinja

import (
	"errors"
	"testing"
)

func TestUnsupportedStatementIsNamed(t *testing.T) {
	_, err := Parse("a\n\n{% import 'x' as y %}")
	var e *Error
	if !errors.As(err, &e) || e.Kind != Unsupported || e.Line != 3 {
		t.Fatalf("got %v", err)
	}
	if want := "jinja: line 3: {% import %} is not supported"; e.Error() != want {
		t.Errorf("got %q, want %q", e.Error(), want)
	}
}
