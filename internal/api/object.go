package api

import (
	"math"
	"strconv"
	"strings"
)

// object is a JSON object that is being read. Its methods keep the first error and do
// nothing after it, so that a reader looks at err once, at the end.
type object struct {
	path   string
	fields map[string]member
	err    *Error
}

// parseBody opens the JSON object that a request's body must be.
func parseBody(body []byte) (*object, *Error) {
	if err := checkBody(body); err != nil {
		return nil, err
	}
	return openObject(member{raw: body}, "")
}

// openObject opens the value m, which must be an object.
func openObject(m member, path string) (*object, *Error) {
	if path != "" && kindOf(m.raw) != kindObject {
		return nil, badType(path, m, "an object")
	}
	list, err := members(m.raw, m.at, path)
	if err != nil {
		return nil, err
	}
	o := &object{path: path, fields: make(map[string]member, len(list))}
	for _, f := range list {
		o.fields[f.key] = f
	}
	return o, nil
}

// badType is the error for a value of the wrong type or form.
func badType(path string, m member, expected string) *Error {
	return badRequest(path, CodeInvalidType, "%s: found %s at byte %d, expected %s", path, describe(m.raw), m.at, expected)
}

// badValue is the error for a value of the right type that is out of range.
func badValue(path string, m member, expected string) *Error {
	return badRequest(path, CodeInvalidValue, "%s: found %s at byte %d, expected %s", path, describe(m.raw), m.at, expected)
}

// get returns the field key. A null counts as not given.
func (o *object) get(key string) (member, bool) {
	if o.err != nil {
		return member{}, false
	}
	m, ok := o.fields[key]
	if !ok || kindOf(m.raw) == kindNull {
		return member{}, false
	}
	return m, true
}

func (o *object) fail(err *Error) {
	if o.err == nil {
		o.err = err
	}
}

// bool reads the field key into dst, if it is there.
func (o *object) bool(key string, dst *bool) {
	m, ok := o.get(key)
	if !ok {
		return
	}
	if kindOf(m.raw) != kindBool {
		o.fail(badType(join(o.path, key), m, "true or false"))
		return
	}
	*dst = m.raw[0] == 't'
}

// string reads the field key into dst, if it is there.
func (o *object) string(key string, dst *string) bool {
	m, ok := o.get(key)
	if !ok {
		return false
	}
	s, err := asString(m, join(o.path, key))
	if err != nil {
		o.fail(err)
		return false
	}
	*dst = s
	return true
}

// int reads the field key, an integer from lo to hi, into dst, if it is there.
func (o *object) int(key string, lo, hi int, dst *int) bool {
	m, ok := o.get(key)
	if !ok {
		return false
	}
	v, err := asNumber(m, join(o.path, key), float64(lo), float64(hi), true)
	if err != nil {
		o.fail(err)
		return false
	}
	*dst = int(v)
	return true
}

func asString(m member, path string) (string, *Error) {
	if kindOf(m.raw) != kindString {
		return "", badType(path, m, "a string")
	}
	s, err := unquote(m.raw)
	if err != nil {
		return "", badType(path, m, "a string")
	}
	return s, nil
}

// asNumber reads a number from lo to hi. Integers may be written as 5, 5.0 or 5e0; those
// beyond 2^53 have no exact float64 and are read by asInt64 instead.
func asNumber(m member, path string, lo, hi float64, integer bool) (float64, *Error) {
	expected := "a number from " + formatNumber(lo) + " to " + formatNumber(hi)
	if integer {
		expected = "an integer from " + formatNumber(lo) + " to " + formatNumber(hi)
	}
	if kindOf(m.raw) != kindNumber {
		return 0, badType(path, m, expected)
	}
	v, err := strconv.ParseFloat(string(m.raw), 64)
	if err != nil || math.IsNaN(v) || v < lo || v > hi || integer && v != math.Trunc(v) {
		return 0, badValue(path, m, expected)
	}
	return v, nil
}

// asID reads element i of path, a token id.
func asID(m member, path string, i, vocab int) (int32, *Error) {
	if v, err := strconv.ParseInt(string(m.raw), 10, 32); err == nil && v >= 0 && v < int64(vocab) {
		return int32(v), nil // without building the name
	}
	v, err := asNumber(m, path+"["+strconv.Itoa(i)+"]", 0, float64(vocab-1), true)
	return int32(v), err
}

// asInt64 reads an integer from lo to hi exactly.
func asInt64(m member, path string, lo, hi int64) (int64, *Error) {
	expected := "an integer from " + strconv.FormatInt(lo, 10) + " to " + strconv.FormatInt(hi, 10)
	if kindOf(m.raw) != kindNumber {
		return 0, badType(path, m, expected)
	}
	v, err := strconv.ParseInt(string(m.raw), 10, 64)
	if err != nil || v < lo || v > hi {
		return 0, badValue(path, m, expected)
	}
	return v, nil
}

func formatNumber(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if strings.Contains(s, ".") && len(s) > 12 {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return s
}
