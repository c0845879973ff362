// Package cli reads the command line: a table of options, each with its long and short
// names, its environment variables and one line of help. Parsing is the standard flag
// package's; the table adds what it lacks, because llama-server's multi-letter short
// flags (-np, -ctk) clash with the rules of GNU-style libraries.
//
// It knows nothing of what the options mean.
package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// ErrHelp is returned by Parse when help was asked for and printed.
var ErrHelp = flag.ErrHelp

// Set is the options of one command.
type Set struct {
	name    string
	usage   string // the arguments after the name
	about   string
	options []option
	fs      *flag.FlagSet
	given   map[string]bool // first names that were set, by flag or environment
}

type option struct {
	names []string // without dashes, the one to show first
	env   []string
	arg   string // placeholder of the value; empty for a switch
	help  string
	value flag.Value
}

// NewSet returns an empty set for a command. usage is what follows the command's name
// on its usage line, about a sentence or two.
func NewSet(name, usage, about string) *Set {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return &Set{name: name, usage: usage, about: about, fs: fs, given: make(map[string]bool)}
}

// add enters an option. names are separated by spaces ("-c --ctx-size"), env too.
func (s *Set) add(v flag.Value, names, env, arg, help string) {
	o := option{env: strings.Fields(env), arg: arg, help: help, value: v}
	for _, n := range strings.Fields(names) {
		o.names = append(o.names, n)
		s.fs.Var(v, strings.TrimLeft(n, "-"), help)
	}
	s.options = append(s.options, o)
}

// String adds an option with a text value.
func (s *Set) String(names, env, arg, def, help string) *string {
	v := def
	s.add((*stringValue)(&v), names, env, arg, help)
	return &v
}

// Int adds an option with an integer from low to high.
func (s *Set) Int(names, env, arg string, def, low, high int, help string) *int {
	v := &intValue{v: def, low: low, high: high}
	s.add(v, names, env, arg, help)
	return &v.v
}

// Float adds an option with a finite number from low to high.
func (s *Set) Float(names, env, arg string, def, low, high float64, help string) *float64 {
	v := &floatValue{v: def, low: low, high: high}
	s.add(v, names, env, arg, help)
	return &v.v
}

// Duration adds an option with a duration such as 30s or 2m.
func (s *Set) Duration(names, env, arg string, def time.Duration, help string) *time.Duration {
	v := def
	s.add((*durationValue)(&v), names, env, arg, help)
	return &v
}

// Bool adds a switch.
func (s *Set) Bool(names, env, help string) *bool {
	v := false
	s.add((*boolValue)(&v), names, env, "", help)
	return &v
}

// Choice adds an option that takes one of the given words; the first is the default.
func (s *Set) Choice(names, env string, words []string, help string) *string {
	v := &choiceValue{v: words[0], words: words}
	s.add(v, names, env, strings.Join(words, "|"), help)
	return &v.v
}

// Given reports whether the option was set, by its first name, which includes dashes.
func (s *Set) Given(name string) bool { return s.given[name] }

// Env lists the environment variables that the options have.
func (s *Set) Env() []string {
	var names []string
	for _, o := range s.options {
		names = append(names, o.env...)
	}
	return names
}

// Parse reads the environment, then args. Options may follow arguments; after "--"
// everything is an argument. It returns the arguments, or ErrHelp after printing help
// to w.
func (s *Set) Parse(args []string, w io.Writer) ([]string, error) {
	for _, o := range s.options {
		for _, env := range o.env {
			text, ok := os.LookupEnv(env)
			if !ok || text == "" {
				continue
			}
			if err := o.value.Set(text); err != nil {
				return nil, fmt.Errorf("%s=%q: %w", env, text, err)
			}
			s.given[o.names[0]] = true
			break
		}
	}
	var rest []string
	for {
		err := s.fs.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			s.Help(w)
			return nil, ErrHelp
		}
		if err != nil {
			return nil, fmt.Errorf("%w (see baton %s --help)", err, s.name)
		}
		left := s.fs.Args()
		if n := len(args) - len(left); len(left) == 0 || n > 0 && args[n-1] == "--" {
			rest = append(rest, left...)
			break
		}
		rest = append(rest, left[0])
		args = left[1:]
	}
	s.fs.Visit(func(f *flag.Flag) {
		for _, o := range s.options {
			if o.value == f.Value {
				s.given[o.names[0]] = true
			}
		}
	})
	return rest, nil
}

// Help prints the usage of the command.
func (s *Set) Help(w io.Writer) {
	fmt.Fprintf(w, "usage: baton %s %s\n\n%s\n", s.name, s.usage, s.about)
	if len(s.options) > 0 {
		fmt.Fprintln(w, "\noptions:")
	}
	for _, o := range s.options {
		head := strings.Join(o.names, ", ")
		if o.arg != "" {
			head += " " + o.arg
		}
		help := o.help
		if def := o.value.String(); o.arg != "" && def != "" && def != o.arg {
			help += " (default " + def + ")"
		}
		if len(o.env) > 0 {
			help += " [" + strings.Join(o.env, ", ") + "]"
		}
		if len(head) > 28 {
			fmt.Fprintf(w, "  %s\n  %-28s  %s\n", head, "", help)
		} else {
			fmt.Fprintf(w, "  %-28s  %s\n", head, help)
		}
	}
}

type stringValue string

func (v *stringValue) String() string     { return string(*v) }
func (v *stringValue) Set(s string) error { *v = stringValue(s); return nil }

type intValue struct{ v, low, high int }

func (v *intValue) String() string { return strconv.Itoa(v.v) }
func (v *intValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < v.low || n > v.high {
		return fmt.Errorf("expected a whole number from %d to %d", v.low, v.high)
	}
	v.v = n
	return nil
}

type floatValue struct{ v, low, high float64 }

func (v *floatValue) String() string { return strconv.FormatFloat(v.v, 'g', -1, 64) }
func (v *floatValue) Set(s string) error {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= v.low && f <= v.high) {
		return fmt.Errorf("expected a number from %g to %g", v.low, v.high)
	}
	v.v = f
	return nil
}

type durationValue time.Duration

func (v *durationValue) String() string { return time.Duration(*v).String() }
func (v *durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("expected a duration such as 30s or 2m")
	}
	*v = durationValue(d)
	return nil
}

type boolValue bool

func (v *boolValue) String() string   { return strconv.FormatBool(bool(*v)) }
func (v *boolValue) IsBoolFlag() bool { return true }
func (v *boolValue) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("expected true or false")
	}
	*v = boolValue(b)
	return nil
}

type choiceValue struct {
	v     string
	words []string
}

func (v *choiceValue) String() string { return v.v }
func (v *choiceValue) Set(s string) error {
	for _, w := range v.words {
		if s == w {
			v.v = s
			return nil
		}
	}
	return fmt.Errorf("expected one of %s", strings.Join(v.words, ", "))
}

// Name is the command's name.
func (s *Set) Name() string { return s.name }
