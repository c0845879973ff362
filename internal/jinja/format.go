package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxWidth bounds the widths and precisions of formats.
const maxWidth = 1000

// A spec is one conversion: of '%-8.2f' or of '{:<8.2f}'.
type spec struct {
	fill      string
	align     byte // < > = ^, or 0
	sign      byte // + or space, or 0
	alternate bool // #
	comma     byte // , or _, or 0
	width     int
	precision int // -1: none
	verb      byte
}

// percent is Python's format % value.
func (in *interp) percent(format Text, value any) (any, error) {
	if err := in.charge(len(format.s)); err != nil {
		return nil, err
	}
	tuple, isTuple := value.(Tuple)
	if !isTuple {
		tuple = Tuple{value}
	}
	dict, _ := value.(*Dict)
	used := 0
	nextArg := func() (any, error) {
		if used >= len(tuple) {
			return nil, failf("not enough arguments for format string")
		}
		used++
		return tuple[used-1], nil
	}
	var out textBuilder
	s := format.s
	for i := 0; i < len(s); {
		j := strings.IndexByte(s[i:], '%')
		if j < 0 {
			j = len(s) - i
		}
		out.write(format.slice(i, i+j))
		if i += j; i == len(s) {
			break
		}
		i++ // the %
		var v any
		named := false
		if i < len(s) && s[i] == '(' {
			end := strings.IndexByte(s[i:], ')')
			if end < 0 {
				return nil, failf("incomplete format key")
			}
			if dict == nil {
				return nil, failf("format requires a mapping")
			}
			key := s[i+1 : i+end]
			var ok bool
			if v, ok = dict.Get(key); !ok {
				return nil, failf("the format's key '%s' is missing", key)
			}
			named = true
			i += end + 1
		}
		sp, n, err := percentSpec(s[i:], nextArg)
		if err != nil {
			return nil, err
		}
		i += n
		if sp.verb == '%' {
			out.writeString("%")
			continue
		}
		if !named {
			if v, err = nextArg(); err != nil {
				return nil, err
			}
		}
		t, err := in.convert(sp, v)
		if err == nil {
			err = in.charge(len(t.s) + len(t.marks)*itemCost)
		}
		if err != nil {
			return nil, err
		}
		out.write(t)
	}
	if used < len(tuple) {
		switch value.(type) {
		case *Dict, []any, *rangeValue, *undefined:
			// Python lets whatever can be subscripted pass as a mapping.
		default:
			return nil, failf("not all arguments converted during string formatting")
		}
	}
	return out.text().value(), nil
}

// percentSpec reads what follows the % and an eventual key.
func percentSpec(s string, nextArg func() (any, error)) (spec, int, error) {
	sp := spec{fill: " ", align: '>', precision: -1}
	i := 0
flags:
	for ; i < len(s); i++ {
		switch s[i] {
		case '-':
			sp.align = '<'
		case '+':
			sp.sign = '+'
		case ' ':
			if sp.sign == 0 {
				sp.sign = ' '
			}
		case '0':
			sp.fill = "0"
		case '#':
			sp.alternate = true
		default:
			break flags
		}
	}
	number := func() (int, error) {
		if i < len(s) && s[i] == '*' {
			i++
			v, err := nextArg()
			if err != nil {
				return 0, err
			}
			n, ok := asInt(v)
			if !ok {
				return 0, failf("* wants int")
			}
			if n < 0 {
				sp.align = '<'
				n = -n
			}
			return checkWidth(n)
		}
		start := i
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		if i == start {
			return 0, nil
		}
		return parseWidth(s[start:i])
	}
	var err error
	if sp.width, err = number(); err != nil {
		return sp, 0, err
	}
	if i < len(s) && s[i] == '.' {
		i++
		if sp.precision, err = number(); err != nil {
			return sp, 0, err
		}
	}
	if i == len(s) {
		return sp, 0, failf("incomplete format")
	}
	sp.verb = s[i]
	if sp.fill == "0" {
		switch {
		case sp.align == '<' || strings.IndexByte("sra", sp.verb) >= 0:
			sp.fill = " "
		default:
			sp.align = '='
		}
	}
	switch sp.verb {
	case 'i', 'u':
		sp.verb = 'd'
	case 'd', 's', 'r', 'f', 'F', 'e', 'E', 'g', 'G', 'x', 'X', 'o', 'c', '%':
	default:
		return sp, 0, unsupportedf("the format %%%c is not supported", sp.verb)
	}
	return sp, i + 1, nil
}

func parseWidth(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, limitf("the width %s in a format is too large", s)
	}
	return checkWidth(n)
}

func checkWidth(n int64) (int, error) {
	if n < 0 || n > maxWidth {
		return 0, limitf("the width %d in a format is more than %d", n, maxWidth)
	}
	return int(n), nil
}

// convert formats v as %-formatting does.
func (in *interp) convert(sp spec, v any) (Text, error) {
	switch sp.verb {
	case 's', 'r':
		to := in.str
		if sp.verb == 'r' {
			to = in.repr
		}
		t, err := to(v)
		if err != nil {
			return Text{}, err
		}
		return sp.padText(t), nil
	case 'c':
		if t, ok := textOf(v); ok && runeLen(t.s) == 1 {
			return sp.padText(t), nil
		}
		n, ok := asInt(v)
		if !ok || n < 0 || n > utf8.MaxRune {
			return Text{}, failf("%%c requires int or char")
		}
		return sp.padText(Text{s: string(rune(n))}), nil
	}
	if u, ok := v.(*undefined); ok {
		return Text{}, u.fail()
	}
	if f, ok := v.(float64); ok && sp.verb == 'd' {
		i, err := floatToInt(f, nil)
		if err != nil || i == nil {
			return Text{}, failf("cannot convert %s to an integer", floatRepr(f))
		}
		v = i
	}
	s, err := sp.number(v)
	return Text{s: s}, err
}

// padText pads a string, cut to the precision.
func (sp spec) padText(t Text) Text {
	if sp.precision >= 0 && sp.precision < runeLen(t.s) {
		t = t.slice(0, byteOffset(t.s, sp.precision))
	}
	n := sp.width - runeLen(t.s)
	if n <= 0 {
		return t
	}
	left := 0
	switch sp.align {
	case '>', '=':
		left = n
	case '^':
		left = n / 2
	}
	return joinTexts([]any{strings.Repeat(sp.fill, left), t, strings.Repeat(sp.fill, n-left)})
}

// number formats a number, padding included.
func (sp spec) number(v any) (string, error) {
	var body string
	negative := false
	prefix := ""
	switch sp.verb {
	case 'd', 'x', 'X', 'o', 'b':
		n, ok := asInt(v)
		if !ok {
			return "", failf("format %c: an integer is required, not %s", sp.verb, typeName(v))
		}
		negative = n < 0
		base := map[byte]int{'d': 10, 'x': 16, 'X': 16, 'o': 8, 'b': 2}[sp.verb]
		body = strings.TrimPrefix(strconv.FormatInt(n, base), "-")
		if sp.verb == 'X' {
			body = strings.ToUpper(body)
		}
		if sp.alternate && base != 10 {
			prefix = "0" + string(sp.verb)
		}
	default:
		f, ok := asFloat(v)
		if !ok {
			return "", failf("format %c: a number is required, not %s", sp.verb, typeName(v))
		}
		negative = math.Signbit(f) && !math.IsNaN(f)
		body = formatFloat(math.Abs(f), sp.verb, sp.precision)
	}
	if sp.comma != 0 {
		body = group(body, sp.comma)
	}
	sign := ""
	switch {
	case negative:
		sign = "-"
	case sp.sign != 0:
		sign = string(sp.sign)
	}
	if sp.align == '=' {
		if n := sp.width - len(sign) - len(prefix) - len(body); n > 0 {
			body = strings.Repeat(sp.fill, n) + body
		}
		return sign + prefix + body, nil
	}
	sp.precision = -1
	return sp.padText(Text{s: sign + prefix + body}).s, nil
}

func formatFloat(f float64, verb byte, precision int) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		s := jsonFloat(f)
		return map[string]string{"Infinity": "inf", "NaN": "nan"}[s]
	}
	if verb == 0 {
		return floatRepr(f)
	}
	if precision < 0 {
		precision = 6
	}
	switch verb {
	case '%':
		return strconv.FormatFloat(f*100, 'f', precision, 64) + "%"
	case 'F':
		verb = 'f'
	case 'g', 'G':
		precision = max(precision, 1)
		s := strconv.FormatFloat(f, 'e', precision-1, 64)
		mantissa, exponent, _ := strings.Cut(s, "e")
		exp, err := strconv.Atoi(exponent)
		switch {
		case err == nil && exp >= -4 && exp < precision:
			s = trimFraction(strconv.FormatFloat(f, 'f', precision-1-exp, 64))
		default:
			s = trimFraction(mantissa) + "e" + exponent
		}
		if verb == 'G' {
			s = strings.ToUpper(s)
		}
		return s
	}
	return strconv.FormatFloat(f, verb, precision, 64)
}

// trimFraction drops the zeros at the end of a fraction.
func trimFraction(s string) string {
	if strings.IndexByte(s, '.') < 0 {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// group puts sep between the thousands of the whole part.
func group(s string, sep byte) string {
	end := len(s)
	for i := range len(s) {
		if !isDigit(s[i]) {
			end = i
			break
		}
	}
	var b strings.Builder
	for i := range end {
		if i > 0 && (end-i)%3 == 0 {
			b.WriteByte(sep)
		}
		b.WriteByte(s[i])
	}
	return b.String() + s[end:]
}
