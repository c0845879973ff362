package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// strFormat is str.format with {}, {0}, {name}, !s, !r and format
// specifications; attributes and items of fields are outside the subset.
func strFormat(in *interp, recv any, a args) (any, error) {
	t, _ := textOf(recv)
	if err := in.charge(len(t.s)); err != nil {
		return nil, err
	}
	var out textBuilder
	auto := 0
	s := t.s
	for i := 0; i < len(s); {
		j := strings.IndexAny(s[i:], "{}")
		if j < 0 {
			j = len(s) - i
		}
		out.write(t.slice(i, i+j))
		if i += j; i == len(s) {
			break
		}
		if i+1 < len(s) && s[i+1] == s[i] {
			out.writeString(s[i : i+1])
			i += 2
			continue
		}
		if s[i] == '}' {
			return nil, failf("single '}' encountered in format string")
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return nil, failf("single '{' encountered in format string")
		}
		field, err := in.formatField(s[i+1:i+end], a, &auto)
		if err == nil {
			err = in.charge(len(field.s) + len(field.marks)*itemCost)
		}
		if err != nil {
			return nil, err
		}
		out.write(field)
		i += end + 1
	}
	return out.text().value(), nil
}

// formatField formats one field, given without its braces.
func (in *interp) formatField(field string, a args, auto *int) (Text, error) {
	name, format, _ := strings.Cut(field, ":")
	name, conversion, converts := strings.Cut(name, "!")
	if strings.ContainsAny(name, ".[") || strings.ContainsAny(format, "{") {
		return Text{}, unsupportedf("the format field {%s} is not supported", field)
	}
	var v any
	if name == "" {
		name = strconv.Itoa(*auto)
		*auto++
	}
	if n, err := parseIndex(name); err == nil {
		if int(n) >= len(a.pos) {
			return Text{}, failf("replacement index %d out of range for positional args tuple", n)
		}
		v = a.pos[n]
	} else {
		found := false
		for _, k := range a.kw {
			if k.name == name {
				v, found = k.v, true
			}
		}
		if !found {
			return Text{}, failf("format has no argument '%s'", name)
		}
	}
	if converts {
		to := in.str
		switch conversion {
		case "s":
		case "r":
			to = in.repr
		default:
			return Text{}, unsupportedf("the conversion !%s is not supported", conversion)
		}
		t, err := to(v)
		if err != nil {
			return Text{}, err
		}
		v = t
	}
	sp, err := formatSpec(format)
	if err != nil {
		return Text{}, err
	}
	_, isNumber := asFloat(v)
	if !isNumber || format == "" || sp.verb == 's' {
		if isNumber && sp.verb == 's' || sp.verb != 0 && sp.verb != 's' {
			return Text{}, failf("unknown format code '%c' for object of type '%s'", sp.verb, typeName(v))
		}
		t, err := in.str(v)
		if err != nil {
			return Text{}, err
		}
		if sp.align == 0 {
			sp.align = '<'
		}
		return sp.padText(t), nil
	}
	if sp.align == 0 {
		sp.align = '>'
	}
	if _, isInt := asInt(v); isInt && sp.verb == 0 {
		sp.verb = 'd'
	} else if sp.verb == 0 && sp.precision >= 0 {
		sp.verb = 'g'
	}
	s, err := sp.number(v)
	return Text{s: s}, err
}

// formatSpec reads [[fill]align][sign][#][0][width][,][.precision][type].
func formatSpec(s string) (spec, error) {
	sp := spec{fill: " ", precision: -1}
	whole := s
	if s != "" {
		_, n := utf8.DecodeRuneInString(s)
		switch {
		case len(s) > n && strings.IndexByte("<>=^", s[n]) >= 0:
			sp.fill, sp.align, s = s[:n], s[n], s[n+1:]
		case strings.IndexByte("<>=^", s[0]) >= 0:
			sp.align, s = s[0], s[1:]
		}
	}
	take := func(chars string) byte {
		if s != "" && strings.IndexByte(chars, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	digits := func() string {
		n := 0
		for n < len(s) && isDigit(s[n]) {
			n++
		}
		d := s[:n]
		s = s[n:]
		return d
	}
	if sign := take("+- "); sign != '-' {
		sp.sign = sign
	}
	sp.alternate = take("#") != 0
	if take("0") != 0 && sp.align == 0 {
		sp.fill, sp.align = "0", '='
	}
	var err error
	if d := digits(); d != "" {
		if sp.width, err = parseWidth(d); err != nil {
			return sp, err
		}
	}
	sp.comma = take(",_")
	if take(".") != 0 {
		d := digits()
		if d == "" {
			return sp, failf("format specifier missing precision")
		}
		if sp.precision, err = parseWidth(d); err != nil {
			return sp, err
		}
	}
	sp.verb = take("sdfFeEgGxXob%")
	if s != "" {
		return sp, unsupportedf("the format specification %s is not supported", fmt.Sprintf("%q", whole))
	}
	return sp, nil
}
