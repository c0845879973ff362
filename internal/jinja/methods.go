package jinja

import "strings"

// A method is a method of a builtin type; recv is of that type.
type method func(in *interp, recv any, a args) (any, error)

// methods holds the methods by type name and name. It is filled in by init
// because methods refer to the interpreter, which refers to them.
var methods map[string]map[string]method

// mutators are the methods that would change a value. The sandbox of chat
// templates refuses them, and names them when it does.
var mutators = map[string]map[string]bool{
	"list": {"append": true, "clear": true, "pop": true, "reverse": true, "insert": true, "sort": true, "extend": true, "remove": true},
	"dict": {"clear": true, "pop": true, "popitem": true, "setdefault": true, "update": true},
}

func init() {
	seq := map[string]method{"index": seqIndex, "count": seqCount}
	methods = map[string]map[string]method{
		"str": strMethods,
		"dict": {
			"items":  func(in *interp, v any, a args) (any, error) { return dictView(in, v, a, "dict_items") },
			"keys":   func(in *interp, v any, a args) (any, error) { return dictView(in, v, a, "dict_keys") },
			"values": func(in *interp, v any, a args) (any, error) { return dictView(in, v, a, "dict_values") },
			"get":    dictGet,
			"copy":   dictCopy,
		},
		"list":  {"index": seqIndex, "count": seqCount, "copy": listCopy},
		"tuple": seq,
		"range": seq,
		"float": {"is_integer": func(_ *interp, v any, _ args) (any, error) {
			f := v.(float64)
			return f == float64(int64(f)), nil
		}},
	}
}

func dictView(in *interp, recv any, a args, kind string) (any, error) {
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	d := recv.(*Dict)
	if err := in.charge(d.Len() * itemCost); err != nil {
		return nil, err
	}
	v := &view{kind: kind}
	switch kind {
	case "dict_keys":
		v.items = d.keys
	case "dict_values":
		v.items = d.vals
	default:
		v.items = dictItems(d)
	}
	return v, nil
}

func dictItems(d *Dict) []any {
	items := make([]any, d.Len())
	for i, k := range d.keys {
		items[i] = Tuple{k, d.vals[i]}
	}
	return items
}

func dictGet(in *interp, recv any, a args) (any, error) {
	p, err := a.bind(1, "key", "default")
	if err != nil {
		return nil, err
	}
	v, ok, err := in.get(recv.(*Dict), p[0])
	if !ok && err == nil {
		v = or(p[1], nil)
	}
	return v, err
}

func dictCopy(in *interp, recv any, a args) (any, error) {
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	d := recv.(*Dict)
	return d.Clone(), in.charge(2 * d.Len() * itemCost)
}

func listCopy(in *interp, recv any, a args) (any, error) {
	if _, err := a.bind(0); err != nil {
		return nil, err
	}
	return recv, nil // lists never change
}

func seqIndex(in *interp, recv any, a args) (any, error) {
	p, err := a.bind(1, "value")
	if err != nil {
		return nil, err
	}
	items, err := in.iterate(recv)
	if err != nil {
		return nil, err
	}
	for i, v := range items {
		if eq, err := in.equal(v, p[0]); err != nil {
			return nil, err
		} else if eq {
			return int64(i), nil
		}
	}
	return nil, failf("%s.index(x): x not in %s", typeName(recv), typeName(recv))
}

func seqCount(in *interp, recv any, a args) (any, error) {
	p, err := a.bind(1, "value")
	if err != nil {
		return nil, err
	}
	items, err := in.iterate(recv)
	if err != nil {
		return nil, err
	}
	n := int64(0)
	for _, v := range items {
		if eq, err := in.equal(v, p[0]); err != nil {
			return nil, err
		} else if eq {
			n++
		}
	}
	return n, nil
}

// strMethod makes a method of a function on text.
func strMethod(required int, params []string, f func(in *interp, t Text, p []any) (any, error)) method {
	return func(in *interp, recv any, a args) (any, error) {
		t, _ := textOf(recv)
		p, err := a.bind(required, params...)
		if err != nil {
			return nil, err
		}
		if err := in.charge(len(t.s)); err != nil {
			return nil, err
		}
		return f(in, t, p)
	}
}

// stringArg is the string that an argument must be.
func stringArg(name string, v any) (string, error) {
	s, ok := plain(v)
	if !ok {
		return "", failf("%s must be a string, not %s", name, typeName(v))
	}
	return s, nil
}

// intArg is the integer that an argument must be; absent and None give def.
func intArg(name string, v any, def int64) (int64, error) {
	v = or(v, nil)
	if v == nil {
		return def, nil
	}
	n, ok := asInt(v)
	if !ok {
		return 0, failf("%s must be an integer, not %s", name, typeName(v))
	}
	return n, nil
}

var strMethods = map[string]method{
	"strip":        strMethod(0, []string{"chars"}, strip(true, true)),
	"lstrip":       strMethod(0, []string{"chars"}, strip(true, false)),
	"rstrip":       strMethod(0, []string{"chars"}, strip(false, true)),
	"split":        strMethod(0, []string{"sep", "maxsplit"}, split),
	"rsplit":       strMethod(0, []string{"sep", "maxsplit"}, rsplit),
	"splitlines":   strMethod(0, []string{"keepends"}, strSplitlines),
	"partition":    strMethod(1, []string{"sep"}, partition),
	"rpartition":   strMethod(1, []string{"sep"}, rpartition),
	"startswith":   strMethod(1, []string{"prefix", "start", "end"}, affix(strings.HasPrefix)),
	"endswith":     strMethod(1, []string{"suffix", "start", "end"}, affix(strings.HasSuffix)),
	"removeprefix": strMethod(1, []string{"prefix"}, removePrefix),
	"removesuffix": strMethod(1, []string{"suffix"}, removeSuffix),
	"replace":      strMethod(2, []string{"old", "new", "count"}, strReplace),
	"join":         strMethod(1, []string{"iterable"}, strJoin),
	"find":         strMethod(1, []string{"sub", "start", "end"}, find(strings.Index, false)),
	"rfind":        strMethod(1, []string{"sub", "start", "end"}, find(strings.LastIndex, false)),
	"index":        strMethod(1, []string{"sub", "start", "end"}, find(strings.Index, true)),
	"rindex":       strMethod(1, []string{"sub", "start", "end"}, find(strings.LastIndex, true)),
	"count":        strMethod(1, []string{"sub", "start", "end"}, strCount),
	"upper":        strMethod(0, nil, mapped(upper)),
	"lower":        strMethod(0, nil, mapped(lower)),
	"casefold":     strMethod(0, nil, mapped(casefold)),
	"swapcase":     strMethod(0, nil, mapped(swapcase)),
	"title":        strMethod(0, nil, mapped(titlecase)),
	"capitalize":   strMethod(0, nil, mapped(capitalize)),
	"isalpha":      strMethod(0, nil, allRunes(isAlpha)),
	"isdigit":      strMethod(0, nil, allRunes(isPythonDigit)),
	"isdecimal":    strMethod(0, nil, allRunes(isDecimal)),
	"isnumeric":    strMethod(0, nil, allRunes(isNumeric)),
	"isalnum":      strMethod(0, nil, allRunes(isAlnum)),
	"isspace":      strMethod(0, nil, allRunes(isSpace)),
	"isascii": strMethod(0, nil, func(_ *interp, t Text, _ []any) (any, error) {
		return isASCII(t.s), nil
	}),
	"isupper": strMethod(0, nil, func(_ *interp, t Text, _ []any) (any, error) { return isUpper(t.s), nil }),
	"islower": strMethod(0, nil, func(_ *interp, t Text, _ []any) (any, error) { return isLower(t.s), nil }),
	"zfill":   strMethod(1, []string{"width"}, zfill),
	"center":  strMethod(1, []string{"width", "fillchar"}, pad(padCenter)),
	"ljust":   strMethod(1, []string{"width", "fillchar"}, pad(padRight)),
	"rjust":   strMethod(1, []string{"width", "fillchar"}, pad(padLeft)),
	"format":  strFormat,
}
