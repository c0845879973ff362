package modelfile

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"baton/internal/gguf"
)

// Options choose the form of a report.
type Options struct {
	JSON    bool
	Brief   bool // leave out the tables of metadata and tensors (text only)
	Support Support
}

// Inspect writes a report on f to w.
func Inspect(w io.Writer, f *gguf.File, o Options) error {
	r := Describe(f, o.Support)
	if o.JSON {
		return writeJSON(w, r)
	}
	return r.writeText(w, o.Brief)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("modelfile: write report: %w", err)
	}
	return nil
}

// printer writes lines and remembers the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// table writes rows of cells with the columns aligned, each row indented.
func (p *printer) table(rows [][]string) {
	tw := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(tw, "  %s\n", strings.Join(row, "\t"))
	}
	if err := tw.Flush(); p.err == nil {
		p.err = err
	}
}

func (r *Report) writeText(w io.Writer, brief bool) error {
	p := &printer{w: w}
	p.printf("%s: GGUF version %d, %s\n", printable(r.File.Name), r.File.Version, byteCount(r.File.Bytes))
	p.printf("\nModel\n")
	p.table(r.modelRows())
	if len(r.Types) > 0 {
		p.printf("\nWeights\n")
		rows := [][]string{}
		for _, t := range r.Types {
			rows = append(rows, []string{t.Type, plural(t.Tensors, "tensor"), byteCount(t.Bytes), fmt.Sprintf("%.1f %%", 100*t.Share)})
		}
		p.table(rows)
	}
	p.printf("\nWhat Baton can do with it\n")
	rows := [][]string{}
	for _, c := range r.Checks {
		answer := "no"
		if c.OK {
			answer = "yes"
		}
		rows = append(rows, []string{answer, c.Subject, printable(c.Reason)})
	}
	p.table(rows)
	if len(r.Problems) > 0 {
		p.printf("\nProblems\n")
		for _, text := range r.Problems {
			p.printf("  %s\n", printable(text))
		}
	}
	if !brief {
		p.printf("\nMetadata\n")
		p.table(r.metadataRows())
		p.printf("\nTensors\n")
		p.table(r.tensorRows())
	}
	if p.err != nil {
		return fmt.Errorf("modelfile: write report: %w", p.err)
	}
	return nil
}

func (r *Report) modelRows() [][]string {
	var rows [][]string
	add := func(label, format string, args ...any) {
		rows = append(rows, []string{label, fmt.Sprintf(format, args...)})
	}
	text := func(label, s string) {
		if s != "" {
			add(label, "%s", shorten(printable(s), 200))
		}
	}
	m := r.Model
	text("name", m.Name)
	text("description", m.Description)
	text("license", m.License)
	if m.Architecture == "" {
		add("architecture", "not named")
	}
	text("architecture", m.Architecture)
	text("quantization", m.Quantization)
	add("parameters", "%s", count(m.Parameters))
	if m.ContextLength > 0 {
		add("context", "%d tokens", m.ContextLength)
	}
	if m.Layers > 0 {
		add("layers", "%d of width %d, feed-forward %d", m.Layers, m.Width, m.FeedForward)
	}
	if m.Heads > 0 {
		head := strconv.FormatUint(m.KeyLength, 10)
		if m.ValueLength != m.KeyLength {
			head += fmt.Sprintf(" (values %d)", m.ValueLength)
		}
		add("attention", "%d heads, %d for K and V, of size %s", m.Heads, m.KVHeads, head)
	}
	if m.Experts > 0 {
		add("experts", "%d", m.Experts)
	}
	if m.RopeBase > 0 {
		text("rope", strings.TrimSuffix(fmt.Sprintf("base %g, %s", m.RopeBase, m.RopeScaling), ", "))
	}
	if m.KVBytesPerToken > 0 {
		add("KV cache", "%d bytes a token in f16, %s for the whole context", m.KVBytesPerToken, byteCount(saturatingMul(m.KVBytesPerToken, m.ContextLength)))
	}
	if r.Vocabulary.Model != "" {
		kind := strings.TrimSuffix(r.Vocabulary.Model+", "+r.Vocabulary.Pre, ", ")
		add("vocabulary", "%d tokens (%s)%s", r.Vocabulary.Tokens, printable(kind), r.Vocabulary.special())
	} else {
		add("vocabulary", "none")
	}
	if r.Template != nil {
		add("chat template", "%d bytes: %s", r.Template.Bytes, printable(r.Template.FirstLine))
	} else {
		add("chat template", "none")
	}
	return rows
}

// special lists the ids of the special tokens.
func (v Vocabulary) special() string {
	var s strings.Builder
	for _, t := range []struct {
		name string
		id   *int64
	}{{"BOS", v.BOS}, {"EOS", v.EOS}, {"EOT", v.EOT}} {
		if t.id != nil {
			fmt.Fprintf(&s, ", %s %d", t.name, *t.id)
		}
	}
	return s.String()
}

func (r *Report) metadataRows() [][]string {
	var rows [][]string
	for _, e := range r.Metadata {
		typ := e.Type
		var value string
		if list, ok := e.Value.([]any); ok {
			typ = fmt.Sprintf("%s%d]", strings.TrimSuffix(typ, "]"), e.Len)
			value = arrayText(list, e.Len)
		} else {
			value = shorten(printable(fmt.Sprint(e.Value)), 100)
		}
		rows = append(rows, []string{printable(e.Key), typ, value})
	}
	return rows
}

func arrayText(shown []any, n int) string {
	parts := make([]string, 0, len(shown)+1)
	for _, x := range shown {
		if s, ok := x.(string); ok {
			parts = append(parts, strconv.Quote(shorten(s, 24)))
		} else {
			parts = append(parts, fmt.Sprint(x))
		}
	}
	if n > len(shown) {
		parts = append(parts, "...")
	}
	return strings.Join(parts, " ")
}

func (r *Report) tensorRows() [][]string {
	rows := [][]string{{"index", "name", "type", "dimensions", "offset", "bytes"}}
	for i, t := range r.Tensors {
		dims := make([]string, len(t.Dims))
		for j, d := range t.Dims {
			dims[j] = strconv.FormatUint(d, 10)
		}
		rows = append(rows, []string{strconv.Itoa(i), printable(t.Name), t.Type, strings.Join(dims, " x "),
			strconv.FormatUint(t.Offset, 10), strconv.FormatUint(t.Bytes, 10)})
	}
	return rows
}

// printable makes text out of a file safe for a terminal: control characters, which
// could move the cursor or change colours, and bytes that are no UTF-8 are escaped.
func printable(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// shorten cuts s to about limit bytes, between characters.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "..."
}

// byteCount shows a size in a readable unit and, if that rounds, exactly.
func byteCount(n uint64) string {
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%s (%d bytes)", scaled(n, "kB", "MB", "GB", "TB", "PB", "EB"), n)
}

func count(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10)
	}
	return fmt.Sprintf("%s (%d)", scaled(n, "thousand", "million", "billion", "trillion", "quadrillion", "quintillion"), n)
}

// scaled shows n >= 1000 with three digits or more in the largest unit that fits.
func scaled(n uint64, units ...string) string {
	x, i := float64(n)/1000, 0
	for ; x >= 999.5 && i < len(units)-1; i++ {
		x /= 1000
	}
	digits := 0
	switch {
	case x < 9.995:
		digits = 2
	case x < 99.95:
		digits = 1
	}
	return fmt.Sprintf("%.*f %s", digits, x, units[i])
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
