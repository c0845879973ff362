package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// FromJSON decodes one JSON value into the types that templates know: objects
// become [*Dict] in their own order (the last of equal keys wins, in the place
// of the first), whole numbers int64, other numbers and whole ones beyond 64
// bits float64. Nesting beyond 500 levels is an error.
func FromJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decodeJSON(dec, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("jinja: json: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("jinja: json: more data after the value, at byte %d", dec.InputOffset())
	}
	return v, nil
}

func decodeJSON(dec *json.Decoder, depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("values are nested more than %d deep", maxNesting)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return number(t)
	case json.Delim:
		if t == '[' {
			items := []any{}
			for dec.More() {
				v, err := decodeJSON(dec, depth+1)
				if err != nil {
					return nil, err
				}
				items = append(items, v)
			}
			_, err := dec.Token()
			return items, err
		}
		d := NewDict()
		for dec.More() {
			k, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeJSON(dec, depth+1)
			if err != nil {
				return nil, err
			}
			d.Set(k.(string), v) // the decoder allows nothing else as a key
		}
		_, err := dec.Token()
		return d, err
	}
	return t, nil // nil, bool, string
}

func number(n json.Number) (any, error) {
	if !strings.ContainsAny(n.String(), ".eE") {
		if i, err := n.Int64(); err == nil {
			return i, nil
		}
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("the number %s is out of range", n)
	}
	return f, nil
}

// jsonWriter encodes values as Python's json.dumps does.
type jsonWriter struct {
	in          *interp
	b           textBuilder
	ascii       bool
	indent      string
	lines       bool // each item on a line of its own
	item, colon string
	sortKeys    bool
}

// tojsonFilter is transformers' tojson: json.dumps with ensure_ascii off, not
// Jinja's, which escapes for HTML.
func tojsonFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	w := &jsonWriter{in: in, ascii: truth(or(p[0], false)), sortKeys: truth(or(p[3], false))}
	w.item, w.colon = ", ", ": "
	switch n := or(p[1], nil).(type) {
	case nil:
	case string, Text:
		w.lines = true
		w.indent, _ = plain(n)
	default:
		i, ok := asInt(n)
		if !ok {
			return nil, failf("tojson: indent must be an integer or a string, not %s", typeName(n))
		}
		if i > 100 {
			return nil, limitf("tojson: indent of %d is more than 100", i)
		}
		w.lines = true
		w.indent = strings.Repeat(" ", int(max(i, 0)))
	}
	if w.lines {
		w.item = ","
	}
	if sep := or(p[2], nil); sep != nil {
		items, err := in.iterate(sep)
		if err != nil {
			return nil, err
		}
		var ok bool
		if len(items) == 2 {
			w.item, _ = plain(items[0])
			w.colon, ok = plain(items[1])
		}
		if !ok {
			return nil, failf("tojson: separators must be two strings")
		}
	}
	if err := w.write(v, 0); err != nil {
		return nil, err
	}
	return w.b.text().value(), nil
}

func (w *jsonWriter) write(v any, depth int) error {
	if depth > maxNesting {
		return errNesting
	}
	before := w.b.len()
	switch v := v.(type) {
	case nil:
		w.b.writeString("null")
	case bool:
		w.b.writeString(strconv.FormatBool(v))
	case int64:
		w.b.writeString(itoa(v))
	case float64:
		w.b.writeString(jsonFloat(v))
	case string, Text:
		return w.str(v)
	case []any:
		return w.list(v, depth)
	case Tuple:
		return w.list(v, depth)
	case *Dict:
		return w.dict(v, depth)
	default:
		return failf("object of type %s is not JSON serializable", typeName(v))
	}
	return w.in.charge(w.b.len() - before)
}

func jsonFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case math.IsNaN(f):
		return "NaN"
	}
	return floatRepr(f)
}

func (w *jsonWriter) newline(depth int) error {
	if !w.lines {
		return nil
	}
	if err := w.in.charge(1 + len(w.indent)*depth); err != nil {
		return err
	}
	w.b.writeString("\n")
	for range depth {
		w.b.writeString(w.indent)
	}
	return nil
}

func (w *jsonWriter) list(items []any, depth int) error {
	if len(items) == 0 {
		w.b.writeString("[]")
		return w.in.charge(2)
	}
	w.b.writeString("[")
	for i, e := range items {
		if i > 0 {
			w.b.writeString(w.item)
		}
		if err := w.newline(depth + 1); err != nil {
			return err
		}
		if err := w.write(e, depth+1); err != nil {
			return err
		}
	}
	if err := w.newline(depth); err != nil {
		return err
	}
	w.b.writeString("]")
	return w.in.charge(2 + len(w.item)*len(items))
}

func (w *jsonWriter) dict(d *Dict, depth int) error {
	if d.Len() == 0 {
		w.b.writeString("{}")
		return w.in.charge(2)
	}
	keys, vals := d.keys, d.vals
	if w.sortKeys {
		order := make([]any, len(keys))
		for i := range order {
			order[i] = int64(i)
		}
		order, err := w.in.sortValues(order, keys, false)
		if err != nil {
			return err
		}
		keys, vals = slices.Clone(keys), slices.Clone(vals)
		for i, j := range order {
			keys[i], vals[i] = d.keys[j.(int64)], d.vals[j.(int64)]
		}
	}
	w.b.writeString("{")
	for i, k := range keys {
		if i > 0 {
			w.b.writeString(w.item)
		}
		if err := w.newline(depth + 1); err != nil {
			return err
		}
		switch k := k.(type) {
		case string, Text:
		case nil, bool, int64, float64:
			w.b.writeString(`"`)
			if err := w.write(k, depth); err != nil {
				return err
			}
			w.b.writeString(`"`)
		default:
			return failf("tojson: keys must be str, int, float, bool or None, not %s", typeName(k))
		}
		if _, ok := plain(k); ok {
			if err := w.str(k); err != nil {
				return err
			}
		}
		w.b.writeString(w.colon)
		if err := w.write(vals[i], depth+1); err != nil {
			return err
		}
	}
	if err := w.newline(depth); err != nil {
		return err
	}
	w.b.writeString("}")
	return w.in.charge(2 + (len(w.item)+len(w.colon))*len(keys))
}

// str writes a JSON string. Where it is marked, all of it between the quotes is.
func (w *jsonWriter) str(v any) error {
	t, _ := textOf(v)
	w.b.writeString(`"`)
	from := w.b.len()
	w.b.writeString(escapeJSON(t.s, w.ascii))
	if len(t.marks) > 0 {
		w.b.mark(from, w.b.len())
	}
	w.b.writeString(`"`)
	return w.in.charge(w.b.len() - from)
}

const hexDigits = "0123456789abcdef"

func escapeJSON(s string, ascii bool) string {
	clean := 0
	for clean < len(s) && s[clean] >= ' ' && s[clean] != '"' && s[clean] != '\\' && (s[clean] < 0x7f || !ascii) {
		clean++
	}
	if clean == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	unicodeEscape := func(u rune) {
		b.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			b.WriteByte(hexDigits[u>>shift&15])
		}
	}
	for _, r := range s {
		switch r {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			switch {
			case r < ' ' || ascii && r >= 0x7f && r <= 0xffff:
				unicodeEscape(r)
			case ascii && r > 0xffff:
				hi, lo := utf16.EncodeRune(r)
				unicodeEscape(hi)
				unicodeEscape(lo)
			default:
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}
