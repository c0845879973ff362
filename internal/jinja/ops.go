package jinja

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

var errOverflow = failf("the integer result does not fit 64 bits")

func unary(op byte, v any) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if f, ok := v.(float64); ok {
		if op == '-' {
			f = -f
		}
		return f, nil
	}
	n, ok := asInt(v)
	switch {
	case !ok:
		return nil, failf("bad operand type for unary %c: '%s'", op, typeName(v))
	case op == '+':
		return n, nil
	case n == math.MinInt64:
		return nil, errOverflow
	}
	return -n, nil
}

// binary is a op b for the arithmetic operators, which also join and repeat
// strings and lists and format strings.
func (in *interp) binary(op string, a, b any) (any, error) {
	for _, v := range []any{a, b} {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
	}
	x, xInt := asInt(a)
	y, yInt := asInt(b)
	if xInt && yInt {
		return intOp(op, x, y)
	}
	f, xNum := asFloat(a)
	g, yNum := asFloat(b)
	if xNum && yNum {
		return floatOp(op, f, g)
	}
	switch op {
	case "+":
		if v, ok, err := in.join(a, b); ok || err != nil {
			return v, err
		}
	case "*":
		if yInt {
			if v, ok, err := in.repeat(a, y); ok || err != nil {
				return v, err
			}
		}
		if xInt {
			if v, ok, err := in.repeat(b, x); ok || err != nil {
				return v, err
			}
		}
	case "%":
		if t, ok := textOf(a); ok {
			return in.percent(t, b)
		}
	}
	if op == "+" {
		if _, ok := textOf(a); ok {
			return nil, failf("can only concatenate str (not \"%s\") to str", typeName(b))
		}
	}
	return nil, failf("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

// join is a + b for strings, lists and tuples.
func (in *interp) join(a, b any) (any, bool, error) {
	if x, ok := textOf(a); ok {
		y, ok := textOf(b)
		if !ok {
			return nil, false, nil
		}
		if err := in.charge(len(x.s) + len(y.s) + (len(x.marks)+len(y.marks))*itemCost); err != nil {
			return nil, false, err
		}
		var out textBuilder
		out.write(x)
		out.write(y)
		return out.text().value(), true, nil
	}
	concat := func(x, y []any) ([]any, error) {
		if err := in.charge((len(x) + len(y)) * itemCost); err != nil {
			return nil, err
		}
		return append(append(make([]any, 0, len(x)+len(y)), x...), y...), nil
	}
	switch x := a.(type) {
	case []any:
		if y, ok := b.([]any); ok {
			v, err := concat(x, y)
			return v, err == nil, err
		}
	case Tuple:
		if y, ok := b.(Tuple); ok {
			v, err := concat(x, y)
			return Tuple(v), err == nil, err
		}
	}
	return nil, false, nil
}

// repeat is v * n for strings, lists and tuples.
func (in *interp) repeat(v any, n int64) (any, bool, error) {
	n = max(n, 0)
	size := 0
	t, isText := textOf(v)
	switch x := v.(type) {
	case string, Text:
		size = len(t.s) + len(t.marks)*itemCost
	case []any:
		size = len(x) * itemCost
	case Tuple:
		size = len(x) * itemCost
	default:
		return nil, false, nil
	}
	hi, total := bits.Mul64(uint64(size), uint64(n))
	if hi != 0 || total > math.MaxInt {
		total = math.MaxInt
	}
	if err := in.charge(int(total)); err != nil {
		return nil, false, err
	}
	if size == 0 {
		n = 0
	}
	if isText {
		if len(t.marks) == 0 {
			return strings.Repeat(t.s, int(n)), true, nil
		}
		var out textBuilder
		for range n {
			out.write(t)
		}
		return out.text().value(), true, nil
	}
	items, err := in.iterate(v)
	if err != nil {
		return nil, false, err
	}
	out := make([]any, 0, len(items)*int(n))
	for range n {
		out = append(out, items...)
	}
	if _, ok := v.(Tuple); ok {
		return Tuple(out), true, nil
	}
	return out, true, nil
}

func intOp(op string, x, y int64) (any, error) {
	switch op {
	case "+":
		if s := x + y; (s > x) == (y > 0) {
			return s, nil
		}
	case "-":
		if d := x - y; (d < x) == (y > 0) {
			return d, nil
		}
	case "*":
		if p, ok := mulInt(x, y); ok {
			return p, nil
		}
	case "/":
		if y == 0 {
			return nil, failf("division by zero")
		}
		return float64(x) / float64(y), nil
	case "//", "%":
		if y == 0 {
			return nil, failf("integer division or modulo by zero")
		}
		if x == math.MinInt64 && y == -1 {
			if op == "%" {
				return int64(0), nil
			}
			break
		}
		q, r := x/y, x%y
		if r != 0 && (r < 0) != (y < 0) { // round down, not towards zero
			q, r = q-1, r+y
		}
		if op == "%" {
			return r, nil
		}
		return q, nil
	case "**":
		if y < 0 {
			return floatOp(op, float64(x), float64(y))
		}
		return powInt(x, y)
	}
	return nil, errOverflow
}

func mulInt(x, y int64) (int64, bool) {
	if x == 0 || y == 0 {
		return 0, true
	}
	p := x * y
	if p/y != x || x == math.MinInt64 && y == -1 || y == math.MinInt64 && x == -1 {
		return 0, false
	}
	return p, true
}

// powInt is x ** y for y >= 0.
func powInt(x, y int64) (any, error) {
	switch x {
	case 0, 1:
		if y == 0 {
			return int64(1), nil
		}
		return x, nil
	case -1:
		if y%2 == 0 {
			return int64(1), nil
		}
		return x, nil
	}
	p := int64(1)
	for range y { // at most 63 rounds: |x| is 2 or more
		var ok bool
		if p, ok = mulInt(p, x); !ok {
			return nil, errOverflow
		}
	}
	return p, nil
}

func floatOp(op string, x, y float64) (any, error) {
	if y == 0 && (op == "/" || op == "//" || op == "%") {
		return nil, failf("float division by zero")
	}
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "/":
		return x / y, nil
	case "//":
		_, q := floorMod(x, y)
		return q, nil
	case "%":
		r, _ := floorMod(x, y)
		return r, nil
	}
	switch {
	case x == 0 && y < 0:
		return nil, failf("0.0 cannot be raised to a negative power")
	case x < 0 && y != math.Trunc(y):
		return nil, failf("a negative number cannot be raised to a fractional power")
	}
	p := math.Pow(x, y)
	if math.IsInf(p, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return nil, failf("the result of ** is out of range")
	}
	return p, nil
}

// floorMod returns Python's x % y and x // y.
func floorMod(x, y float64) (mod, div float64) {
	mod = math.Mod(x, y)
	div = (x - mod) / y
	if mod != 0 {
		if (y < 0) != (mod < 0) {
			mod += y
			div--
		}
	} else {
		mod = math.Copysign(0, y)
	}
	if div == 0 {
		return mod, math.Copysign(0, x/y)
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return mod, floor
}
