package jinja

import (
	"strings"
	"unicode"
)

// A filter is what v|name(args) runs.
type filter func(in *interp, v any, a args) (any, error)

// filters holds the filters by name; init fills it in, as filters refer to the
// interpreter and the interpreter to them.
var filters map[string]filter

func init() {
	filters = map[string]filter{
		"abs":        noArgs(absFilter),
		"attr":       attrFilter,
		"batch":      batchFilter,
		"capitalize": textFilter(capitalize),
		"center":     centerFilter,
		"count":      noArgs(lengthFilter),
		"d":          defaultFilter,
		"default":    defaultFilter,
		"dictsort":   dictsortFilter,
		"e":          textFilter(escapeHTML),
		"escape":     textFilter(escapeHTML),
		"first":      noArgs(firstFilter),
		"float":      floatFilter,
		"format":     formatFilter,
		"indent":     indentFilter,
		"int":        intFilter,
		"items":      noArgs(itemsFilter),
		"join":       joinFilter,
		"last":       noArgs(lastFilter),
		"length":     noArgs(lengthFilter),
		"list":       noArgs(listFilter),
		"lower":      textFilter(lower),
		"map":        mapFilter,
		"max":        extremeFilter(1),
		"min":        extremeFilter(-1),
		"reject":     func(in *interp, v any, a args) (any, error) { return pick(in, v, a, false, false) },
		"rejectattr": func(in *interp, v any, a args) (any, error) { return pick(in, v, a, true, false) },
		"replace":    replaceFilter,
		"reverse":    noArgs(reverseFilter),
		"round":      roundFilter,
		"safe":       noArgs(stringFilter),
		"select":     func(in *interp, v any, a args) (any, error) { return pick(in, v, a, false, true) },
		"selectattr": func(in *interp, v any, a args) (any, error) { return pick(in, v, a, true, true) },
		"sort":       sortFilter,
		"string":     noArgs(stringFilter),
		"sum":        sumFilter,
		"title":      textFilter(titleWords),
		"tojson":     tojsonFilter,
		"trim":       trimFilter,
		"truncate":   truncateFilter,
		"unique":     uniqueFilter,
		"upper":      textFilter(upper),
		"wordcount":  noArgs(wordcountFilter),
	}
}

// noArgs makes a filter of a function that takes no arguments.
func noArgs(f func(in *interp, v any) (any, error)) filter {
	return func(in *interp, v any, a args) (any, error) {
		if _, err := a.bind(0); err != nil {
			return nil, err
		}
		return f(in, v)
	}
}

// stringFilter is string and safe, which are the same without escaping.
func stringFilter(in *interp, v any) (any, error) {
	t, err := in.str(v)
	return t.value(), err
}

// text is str(v) for an operation that reads all of it.
func (in *interp) text(v any) (Text, error) {
	t, err := in.str(v)
	if err != nil {
		return Text{}, err
	}
	return t, in.charge(len(t.s))
}

// textArg is the string that the filter called name must be given.
func (in *interp) textArg(name string, v any) (Text, error) {
	if u, ok := v.(*undefined); ok {
		return Text{}, u.fail()
	}
	t, ok := textOf(v)
	if !ok {
		return Text{}, failf("%s needs a string, not %s", name, typeName(v))
	}
	return t, in.charge(len(t.s))
}

// textFilter makes a filter of a function on strings.
func textFilter(f func(string) string) filter {
	return func(in *interp, v any, a args) (any, error) {
		if _, err := a.bind(0); err != nil {
			return nil, err
		}
		t, err := in.text(v)
		if err != nil {
			return nil, err
		}
		out := t.with(f(t.s))
		return out.value(), in.charge(len(out.s))
	}
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

func escapeHTML(s string) string { return htmlEscaper.Replace(s) }

// titleWords is the title filter, which starts words at white space, hyphens
// and opening brackets only, unlike the method of the same name.
func titleWords(s string) string {
	start := true
	var b strings.Builder
	for _, r := range s {
		if start {
			b.WriteRune(unicode.ToUpper(r))
		} else {
			b.WriteRune(unicode.ToLower(r))
		}
		start = isSpace(r) || strings.ContainsRune("-({[<", r)
	}
	return b.String()
}

func attrFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(1, "name")
	if err != nil {
		return nil, err
	}
	name, err := stringArg("name", p[0])
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if out, ok := in.attribute(v, name); ok { // never an item
		return out, nil
	}
	return missing(v, name), nil
}

func centerFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "width")
	if err != nil {
		return nil, err
	}
	t, err := in.text(v)
	if err != nil {
		return nil, err
	}
	return pad(padCenter)(in, t, []any{or(p[0], int64(80)), absent{}})
}

func defaultFilter(_ *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	_, undef := v.(*undefined)
	if undef || truth(or(p[1], false)) && !truth(v) {
		return or(p[0], ""), nil
	}
	return v, nil
}

func indentFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	t, err := in.textArg(a.name, v)
	if err != nil {
		return nil, err
	}
	by, ok := plain(or(p[0], int64(4)))
	if !ok {
		n, err := intArg("width", p[0], 4)
		if err != nil {
			return nil, err
		}
		if n > maxSource {
			return nil, limitf("indent: a width of %d is too large", n)
		}
		by = strings.Repeat(" ", int(max(n, 0)))
	}
	list, err := in.lines(joinTexts([]any{t, "\n"}), false)
	if err != nil {
		return nil, err
	}
	blank := truth(or(p[2], false))
	var out textBuilder
	if truth(or(p[1], false)) {
		out.writeString(by)
	}
	for i, line := range list {
		l, _ := textOf(line)
		if err := in.charge(len(l.s) + len(by) + 1); err != nil {
			return nil, err
		}
		if i > 0 {
			out.writeString("\n")
			if blank || l.s != "" {
				out.writeString(by)
			}
		}
		out.write(l)
	}
	return out.text().value(), nil
}

func replaceFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	var texts [3]Text
	for i, x := range []any{v, p[0], p[1]} {
		if texts[i], err = in.text(x); err != nil {
			return nil, err
		}
	}
	n, err := intArg("count", p[2], -1)
	if err != nil {
		return nil, err
	}
	return in.replace(texts[0], texts[1].s, texts[2], n)
}

func trimFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "chars")
	if err != nil {
		return nil, err
	}
	t, err := in.text(v)
	if err != nil {
		return nil, err
	}
	return strip(true, true)(in, t, p)
}

func truncateFilter(in *interp, v any, a args) (any, error) {
	p, err := a.bind(0, "length", "killwords", "end", "leeway")
	if err != nil {
		return nil, err
	}
	t, err := in.textArg(a.name, v)
	if err != nil {
		return nil, err
	}
	end, err := in.str(or(p[2], "..."))
	if err != nil {
		return nil, err
	}
	size, err := intArg("length", p[0], 255)
	if err != nil {
		return nil, err
	}
	leeway, err := intArg("leeway", p[3], 5)
	if err != nil {
		return nil, err
	}
	keep := size - int64(runeLen(end.s))
	if keep < 0 || leeway < 0 {
		return nil, failf("truncate: length %d is less than that of the end, or leeway %d is negative", size, leeway)
	}
	if int64(runeLen(t.s)) <= size+leeway {
		return t.value(), nil
	}
	cut := t.slice(0, byteOffset(t.s, int(keep)))
	if !truth(or(p[1], false)) {
		if i := strings.LastIndexByte(cut.s, ' '); i >= 0 {
			cut = cut.slice(0, i)
		}
	}
	return joinTexts([]any{cut, end}).value(), nil
}

func wordcountFilter(in *interp, v any) (any, error) {
	t, err := in.text(v)
	if err != nil {
		return nil, err
	}
	words := strings.FieldsFunc(t.s, func(r rune) bool { return r != '_' && !isAlnum(r) })
	return int64(len(words)), in.charge(len(words) * itemCost)
}

func formatFilter(in *interp, v any, a args) (any, error) {
	t, err := in.text(v)
	if err != nil {
		return nil, err
	}
	if len(a.kw) > 0 {
		if len(a.pos) > 0 {
			return nil, failf("format takes positional or keyword arguments, not both")
		}
		d := NewDict()
		for _, k := range a.kw {
			d.Set(k.name, k.v)
		}
		return in.percent(t, d)
	}
	return in.percent(t, Tuple(a.pos))
}
