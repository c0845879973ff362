package jinja

import (
	"math"
	"strconv"
	"strings"
)

func absFilter(_ *interp, v any) (any, error) {
	switch n := v.(type) {
	case float64:
		return math.Abs(n), nil
	case int64, bool:
		i, _ := asInt(n)
		if i < 0 {
			return unary('-', i)
		}
		return i, nil
	case *undefined:
		return nil, n.fail()
	}
	return nil, failf("bad operand type for abs(): '%s'", typeName(v))
}

func floatFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "default")
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if f, ok := asFloat(v); ok {
		return f, nil
	}
	if s, ok := plain(v); ok {
		if err := in.charge(len(s)); err != nil {
			return nil, err
		}
		if f, ok := parseFloat(s); ok {
			return f, nil
		}
	}
	return or(p[0], 0.0), nil
}

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func intFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "default", "base")
	if err != nil {
		return nil, err
	}
	def := or(p[0], int64(0))
	switch n := v.(type) {
	case *undefined:
		return nil, n.fail()
	case int64, bool:
		i, _ := asInt(n)
		return i, nil
	case float64:
		return floatToInt(n, def)
	}
	s, ok := plain(v)
	if !ok {
		return def, nil
	}
	if err := in.charge(len(s)); err != nil {
		return nil, err
	}
	base, err := intArg("base", p[1], 10)
	if err != nil {
		return nil, err
	}
	s = strings.TrimFunc(s, isSpace)
	digits := strings.ToLower(s)
	switch {
	case base == 16 && strings.HasPrefix(digits, "0x"), base == 8 && strings.HasPrefix(digits, "0o"),
		base == 2 && strings.HasPrefix(digits, "0b"):
		digits = digits[2:]
	}
	if base < 2 || base > 36 {
		return nil, failf("int: base must be 2 to 36, not %d", base)
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(digits, "_", ""), int(base), 64)
	switch {
	case err == nil:
		return n, nil
	case strings.Contains(err.Error(), strconv.ErrRange.Error()):
		return nil, errOverflow
	}
	if f, ok := parseFloat(s); ok {
		return floatToInt(f, def)
	}
	return def, nil
}

// floatToInt cuts f off, or gives def when it is no finite number.
func floatToInt(f float64, def any) (any, error) {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return def, nil
	case f >= 1<<63 || f < -1<<63:
		return nil, errOverflow
	}
	return int64(f), nil
}

func roundFilter(_ *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "precision", "method")
	if err != nil {
		return nil, err
	}
	digits, err := intArg("precision", p[0], 0)
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	f, ok := asFloat(v)
	if !ok {
		return nil, failf("round needs a number, not %s", typeName(v))
	}
	if digits < -300 || digits > 300 {
		return nil, failf("round: precision %d is out of range", digits)
	}
	scale := math.Pow(10, float64(digits))
	switch method, _ := plain(or(p[1], "common")); method {
	case "common":
	case "ceil":
		return math.Ceil(f*scale) / scale, nil
	case "floor":
		return math.Floor(f*scale) / scale, nil
	default:
		return nil, failf("round: method must be common, ceil or floor")
	}
	if n, isInt := asInt(v); isInt {
		if digits >= 0 {
			return n, nil
		}
		return int64(math.RoundToEven(f*scale) / scale), nil
	}
	if digits < 0 {
		return math.RoundToEven(f*scale) / scale, nil
	}
	r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(digits), 64), 64)
	if err != nil {
		return nil, failf("round: %v is out of range", f)
	}
	return r, nil
}
