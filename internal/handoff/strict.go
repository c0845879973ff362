package handoff

import (
	"errors"
	"fmt"
)

// maxDepth bounds how deep messages are nested; ours are 4 deep.
const maxDepth = 8

// checkKeys refuses what encoding/json lets pass and would make two texts mean the same:
// a member that comes twice, and one with upper-case letters or escapes in its name. It
// looks at strings and brackets only; whether the text is JSON is for json.Unmarshal.
func checkKeys(text []byte) error {
	var stack []map[string]bool // the members of every open object, nil for an array
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if len(stack) == maxDepth {
				return fmt.Errorf("nested more than %d deep", maxDepth)
			}
			var members map[string]bool
			if text[i] == '{' {
				members = map[string]bool{}
			}
			stack = append(stack, members)
		case '}', ']':
			if len(stack) == 0 {
				return errors.New("a bracket is closed that was not opened")
			}
			stack = stack[:len(stack)-1]
		case '"':
			end, plain := stringEnd(text, i+1)
			if end < 0 {
				return errors.New("a string does not end")
			}
			name := text[i+1 : end]
			i = end
			if !isKey(text, end+1) {
				continue
			}
			if len(stack) == 0 || stack[len(stack)-1] == nil {
				return errors.New("a member outside an object")
			}
			if !plain {
				return fmt.Errorf("member %q: names have no upper-case letters and no escapes", clip(string(name), 32))
			}
			members := stack[len(stack)-1]
			if members[string(name)] {
				return fmt.Errorf("member %q comes twice", clip(string(name), 32))
			}
			members[string(name)] = true
		}
	}
	return nil
}

// stringEnd is the index of the quote that ends a string, -1 without one, and whether
// the string has neither escapes nor upper-case letters.
func stringEnd(text []byte, i int) (end int, plain bool) {
	plain = true
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i, plain
		case c == '\\':
			plain = false
			i++
		case c >= 'A' && c <= 'Z':
			plain = false
		}
	}
	return -1, false
}

// isKey reports whether a colon follows.
func isKey(text []byte, i int) bool {
	for ; i < len(text); i++ {
		switch text[i] {
		case ' ', '\t', '\n', '\r':
		case ':':
			return true
		default:
			return false
		}
	}
	return false
}
