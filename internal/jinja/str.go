package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is Python's str(v): what {{ v }} writes.
func (in *interp) str(v any) (Text, error) {
	switch v := v.(type) {
	case string:
		return Text{s: v}, nil
	case Text:
		return v, nil
	case *undefined:
		return Text{}, nil
	case *macro:
		return Text{s: "<Macro '" + v.def.name + "'>"}, nil
	}
	return in.repr(v)
}

// repr is Python's repr(v).
func (in *interp) repr(v any) (Text, error) {
	var b textBuilder
	if err := in.writeRepr(&b, v, 0); err != nil {
		return Text{}, err
	}
	return b.text(), nil
}

func (in *interp) writeRepr(b *textBuilder, v any, depth int) error {
	if depth > maxNesting {
		return errNesting
	}
	before := b.len()
	switch v := v.(type) {
	case nil:
		b.writeString("None")
	case bool:
		if v {
			b.writeString("True")
		} else {
			b.writeString("False")
		}
	case int64:
		b.writeString(itoa(v))
	case float64:
		b.writeString(floatRepr(v))
	case string, Text:
		t, _ := textOf(v)
		if err := in.charge(len(t.s)); err != nil {
			return err
		}
		b.write(t.with(quote(t.s)))
	case []any:
		return in.reprItems(b, "[", v, "]", depth)
	case Tuple:
		if len(v) == 1 {
			return in.reprItems(b, "(", v, ",)", depth)
		}
		return in.reprItems(b, "(", v, ")", depth)
	case *view:
		return in.reprItems(b, v.kind+"([", v.items, "])", depth)
	case *Dict:
		return in.reprDict(b, v, depth)
	case *namespace:
		b.writeString("<Namespace ")
		if err := in.reprDict(b, v.attrs, depth+1); err != nil {
			return err
		}
		b.writeString(">")
	case *undefined:
		b.writeString("Undefined")
	case *rangeValue:
		fmt.Fprintf(&b.b, "range(%d, %d", v.start, v.stop)
		if v.step != 1 {
			fmt.Fprintf(&b.b, ", %d", v.step)
		}
		b.writeString(")")
	case *loopState:
		fmt.Fprintf(&b.b, "<LoopContext %d/%d>", v.i+1, len(v.items))
	default:
		b.writeString("<" + typeName(v) + " object>")
	}
	return in.charge(b.len() - before)
}

func (in *interp) reprItems(b *textBuilder, open string, items []any, end string, depth int) error {
	b.writeString(open)
	for i, e := range items {
		if i > 0 {
			b.writeString(", ")
		}
		if err := in.writeRepr(b, e, depth+1); err != nil {
			return err
		}
	}
	b.writeString(end)
	return in.charge(len(open) + 2*len(items) + len(end))
}

func (in *interp) reprDict(b *textBuilder, d *Dict, depth int) error {
	b.writeString("{")
	for i, k := range d.keys {
		if i > 0 {
			b.writeString(", ")
		}
		if err := in.writeRepr(b, k, depth+1); err != nil {
			return err
		}
		b.writeString(": ")
		if err := in.writeRepr(b, d.vals[i], depth+1); err != nil {
			return err
		}
	}
	b.writeString("}")
	return in.charge(2 + 4*d.Len())
}

// floatRepr is Python's repr of a float: the shortest digits that give the
// value back, with an exponent below 1e-4 and from 1e16 on.
func floatRepr(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if strings.IndexByte(s, '.') < 0 {
		s += ".0"
	}
	return s
}

// quote is Python's repr of a string.
func quote(s string) string {
	q := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		q = '"'
	}
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte(q)
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r >= 0x7f && r <= 0xff && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte(q)
	return b.String()
}

// runeBytes is the number of bytes that r, decoded from the start of s, takes.
func runeBytes(s string, r rune) int {
	if r == utf8.RuneError {
		_, n := utf8.DecodeRuneInString(s)
		return n
	}
	return utf8.RuneLen(r)
}

func joinTexts(items []any) Text {
	var b textBuilder
	for _, e := range items {
		t, _ := textOf(e)
		b.write(t)
	}
	return b.text()
}
