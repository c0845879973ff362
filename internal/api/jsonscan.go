package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"
)

// maxNesting is the depth of objects and arrays that a body may have. Real requests need
// fewer than ten levels; the templates that see the messages recurse over them.
const maxNesting = 64

// maxFields is the number of fields that an object may have.
const maxFields = 8192

// member is one field of a JSON object.
type member struct {
	key string
	raw []byte // its value, surrounding space removed
	at  int    // offset of the value in the body
}

// checkBody makes sure that body is one JSON object in valid UTF-8, not nested too deeply.
// Everything after it may assume valid syntax.
func checkBody(body []byte) *Error {
	if len(bytes.TrimSpace(body)) == 0 {
		return badRequest("", CodeInvalidJSON, "body: found nothing, expected a JSON object")
	}
	if !utf8.Valid(body) {
		at := invalidUTF8At(body)
		return badRequest(lastKey(body[:at]), CodeInvalidJSON, "%s: invalid UTF-8 at byte %d, expected JSON in UTF-8", nameOr(lastKey(body[:at])), at)
	}
	if at := nestedBeyond(body, maxNesting); at >= 0 {
		key := lastKey(body[:at])
		return badRequest(key, CodeInvalidJSON, "%s: nested deeper than %d levels at byte %d", nameOr(key), maxNesting, at)
	}
	if !json.Valid(body) {
		err := json.Unmarshal(body, new(json.RawMessage))
		at := int64(len(body))
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) && syntax.Offset > 0 {
			at = syntax.Offset - 1
		}
		key := lastKey(body[:min(at, int64(len(body)))])
		return badRequest(key, CodeInvalidJSON, "%s: invalid JSON at byte %d: %v", nameOr(key), at, err)
	}
	if b := bytes.TrimSpace(body); b[0] != '{' {
		return badRequest("", CodeInvalidType, "body: found %s, expected a JSON object", describe(b))
	}
	return nil
}

// nameOr is key, or "body" when there is none.
func nameOr(key string) string {
	if key == "" {
		return "body"
	}
	return key
}

func invalidUTF8At(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

// nestedBeyond returns the offset at which b is nested deeper than limit, or -1.
func nestedBeyond(b []byte, limit int) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = skipString(b, i) - 1
		case '{', '[':
			if depth++; depth > limit {
				return i
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

// lastKey returns the key of the field of the outermost object in whose value b ends. It
// names the field that an error in broken JSON belongs to; "" when there is none.
func lastKey(b []byte) string {
	key, depth := "", 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			end := skipString(b, i)
			if depth == 1 {
				if j := skipSpace(b, end); j < len(b) && b[j] == ':' {
					if s, err := unquote(b[i:end]); err == nil {
						key = s
					}
				}
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 1 {
				key = ""
			}
		}
	}
	return key
}

// skipString returns the offset after the string that starts at i, at most len(b). A quote
// ends it unless an odd number of backslashes stands before it.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		escapes := 0
		for escapes < n && b[i+n-1-escapes] == '\\' {
			escapes++
		}
		if i += n; escapes%2 == 0 {
			return i + 1
		}
	}
	return len(b)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the offset after the value that starts at i. b is valid JSON.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			i++
			continue
		default: // a number or a literal
			for i < len(b) && strings.IndexByte(",:]} \t\n\r", b[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// members splits the object b, valid JSON that starts at offset at of the body, into its
// fields, without copying. A repeated field is an error: which one counts differs from
// parser to parser.
func members(b []byte, at int, path string) ([]member, *Error) {
	var out []member
	seen := make(map[string]bool)
	i := skipSpace(b, 0) + 1
	for {
		i = skipSpace(b, i)
		if i >= len(b) || b[i] == '}' {
			return out, nil
		}
		if b[i] == ',' {
			i++
			continue
		}
		end := skipString(b, i)
		key, err := unquote(b[i:end])
		if err != nil {
			return nil, badRequest(path, CodeInvalidJSON, "%s: invalid field name at byte %d: %v", nameOr(path), at+i, err)
		}
		if len(seen) == maxFields {
			return nil, badRequest(path, CodeInvalidValue, "%s: found more than %d fields, expected at most that many", nameOr(path), maxFields)
		}
		if seen[key] {
			name := join(path, key)
			return nil, badRequest(name, CodeDuplicate, "%s: found twice, the second time at byte %d, expected once", name, at+i)
		}
		seen[key] = true
		i = skipSpace(b, skipSpace(b, end)+1) // the colon
		end = skipValue(b, i)
		out = append(out, member{key: key, raw: b[i:end], at: at + i})
		i = end
	}
}

// elements goes through the array b, valid JSON that starts at offset at of the body. It
// is an iterator because an array of token ids is megabytes long.
func elements(b []byte, at int) iter.Seq2[int, member] {
	return func(yield func(int, member) bool) {
		i := skipSpace(b, 0) + 1
		for n := 0; ; {
			i = skipSpace(b, i)
			if i >= len(b) || b[i] == ']' {
				return
			}
			if b[i] == ',' {
				i++
				continue
			}
			end := skipValue(b, i)
			if !yield(n, member{raw: b[i:end], at: at + i}) {
				return
			}
			n++
			i = end
		}
	}
}

// count returns the number of elements of the array b, but at most limit.
func count(b []byte, limit int) int {
	n := 0
	for range elements(b, 0) {
		if n++; n == limit {
			break
		}
	}
	return n
}

func unquote(b []byte) (string, error) {
	var s string
	err := json.Unmarshal(b, &s)
	return s, err
}

// join appends a field's name to the path of the object it is in.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// maxShown is the number of bytes of a found value that a message repeats.
const maxShown = 40

// describe says what the JSON value raw is, for a message.
func describe(raw []byte) string {
	shown := string(raw)
	if len(shown) > maxShown {
		cut := maxShown
		for cut > 0 && !utf8.RuneStart(shown[cut]) {
			cut--
		}
		shown = shown[:cut] + "..."
	}
	switch kindOf(raw) {
	case kindNull:
		return "null"
	case kindString:
		return "the string " + shown
	case kindBool, kindNumber:
		return shown
	case kindArray:
		return "an array"
	case kindObject:
		return "an object"
	}
	return fmt.Sprintf("%q", shown)
}

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

// kindOf tells the type of a valid JSON value by its first byte.
func kindOf(raw []byte) kind {
	switch raw[0] {
	case 'n':
		return kindNull
	case 't', 'f':
		return kindBool
	case '"':
		return kindString
	case '[':
		return kindArray
	case '{':
		return kindObject
	}
	return kindNumber
}
