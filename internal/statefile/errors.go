package statefile

import (
	"errors"
	"fmt"
)

// Kind says what kind of thing is wrong with a file.
type Kind int

// The kinds of errors.
const (
	BadName  Kind = iota // no name of a state file
	NotFound             // there is no such file
	Damaged              // the file is not what was written, or no state file at all
	Unfit                // it is a state of another model, cache or vocabulary
	TooLong              // it has more cells than there is room for in a slot
)

func (k Kind) String() string {
	switch k {
	case BadName:
		return "bad name"
	case NotFound:
		return "not found"
	case Damaged:
		return "damaged"
	case Unfit:
		return "unfit"
	case TooLong:
		return "too long"
	}
	return fmt.Sprintf("kind(%d)", int(k))
}

// Error says what in a file is not as it must be. Other errors are those of the system.
type Error struct {
	Kind     Kind
	Name     string // of the file
	Field    string // of the format, or "name", "file", "sum"
	Found    string
	Expected string
	Do       string // what the caller can do
}

func (e *Error) Error() string {
	text := fmt.Sprintf("statefile: %s: %s: found %s, expected %s", clip(e.Name), e.Field, e.Found, e.Expected)
	if e.Do != "" {
		text += ": " + e.Do
	}
	return text
}

// clip makes a name that somebody sent fit to be shown.
func clip(name string) string {
	const most = 64
	if len(name) > most {
		return fmt.Sprintf("%q...", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// wrong makes an error about a field; the file's name is filled in by named.
func wrong(kind Kind, field string, found, expected any) *Error {
	e := &Error{Kind: kind, Field: field, Found: fmt.Sprint(found), Expected: fmt.Sprint(expected)}
	switch kind {
	case Damaged:
		e.Do = "save the state again"
	case Unfit:
		e.Do = "restore it with the model and the cache types that it was saved with"
	case TooLong:
		e.Do = "start with a larger context"
	}
	return e
}

// named puts the name of the file into err.
func named(name string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		e.Name = name
		return e
	}
	return fmt.Errorf("statefile: %s: %w", clip(name), err)
}
