package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// logs is what a child writes, line by line, on its way to our log. Lines that package
// slog wrote as JSON become records again, with their time and level; other lines are
// records themselves. All carry the child's name.
type logs struct {
	name string
	log  *slog.Logger

	mu      sync.Mutex
	partial []byte
	skip    bool // the rest of a line that was too long
	words   string
}

// maxLine is the longest line that is passed on in one piece, in bytes.
const maxLine = 64 << 10

func newLogs(name string, log *slog.Logger) *logs {
	return &logs{name: name, log: log.With("process", name)}
}

// Write implements io.Writer. It never fails.
func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		p = rest
		if !l.skip {
			l.partial = append(l.partial, line...)
		}
		if whole || len(l.partial) > maxLine {
			l.line(l.partial[:min(len(l.partial), maxLine)])
			l.partial = l.partial[:0]
			l.skip = !whole
		}
	}
	return n, nil
}

// flush passes on what has no end of line.
func (l *logs) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line(l.partial)
	l.partial = nil
}

// programError is how our own commands begin the line that says why they failed. It is
// told with the child's end, not before.
const programError = "baton: "

func (l *logs) line(b []byte) {
	text := strings.TrimRight(strings.ToValidUTF8(string(b), "\uFFFD"), " \t\r")
	if text == "" || l.skip {
		return
	}
	if r, ok := parseRecord(b); ok {
		if h := l.log.Handler(); h.Enabled(context.Background(), r.Level) {
			_ = h.Handle(context.Background(), r) // a log that cannot be written to cannot say so
		}
		return
	}
	if last, ok := strings.CutPrefix(text, programError); ok {
		l.words = last
		return
	}
	l.words = text
	l.log.Info(text)
}

// note sets the child's last words.
func (l *logs) note(words string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.words = words
}

func (l *logs) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.words
}

// parseRecord reads a line of slog's JSON handler. The order of the attributes is kept.
func parseRecord(line []byte) (r slog.Record, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return r, false
	}
	var seen struct{ time, level, msg bool }
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return r, false
		}
		var v any
		if err := dec.Decode(&v); err != nil {
			return r, false
		}
		text, _ := v.(string)
		switch key {
		case slog.TimeKey:
			r.Time, err = time.Parse(time.RFC3339Nano, text)
			seen.time = err == nil
		case slog.LevelKey:
			seen.level = r.Level.UnmarshalText([]byte(text)) == nil
		case slog.MessageKey:
			r.Message, seen.msg = v.(string)
		default:
			r.AddAttrs(slog.Any(key.(string), value(v)))
		}
	}
	if t, err := dec.Token(); err != nil || t != json.Delim('}') || dec.More() {
		return r, false
	}
	return r, seen.time && seen.level && seen.msg
}

// value keeps whole numbers whole.
func value(v any) any {
	n, ok := v.(json.Number)
	if !ok {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	if f, err := n.Float64(); err == nil {
		return f
	}
	return n.String()
}
