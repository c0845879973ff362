package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime formats t as C's strftime does in the C locale, with the %-d form of
// glibc that leaves out padding.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := i < len(format) && format[i] == '-'
		if bare {
			i++
		}
		if i == len(format) {
			return "", failf("strftime_now: the format ends in %%")
		}
		s, ok := directive(t, format[i])
		if !ok {
			return "", unsupportedf("strftime_now: %%%c is not supported", format[i])
		}
		if bare {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// directive formats one directive.
func directive(t time.Time, c byte) (string, bool) {
	switch c {
	case 'a':
		return t.Format("Mon"), true
	case 'A':
		return t.Format("Monday"), true
	case 'b', 'h':
		return t.Format("Jan"), true
	case 'B':
		return t.Format("January"), true
	case 'c':
		return t.Format("Mon Jan _2 15:04:05 2006"), true
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100), true
	case 'd':
		return t.Format("02"), true
	case 'D', 'x':
		return t.Format("01/02/06"), true
	case 'e':
		return t.Format("_2"), true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'F':
		return t.Format("2006-01-02"), true
	case 'G':
		year, _ := t.ISOWeek()
		return strconv.Itoa(year), true
	case 'H':
		return t.Format("15"), true
	case 'I':
		return t.Format("03"), true
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay()), true
	case 'm':
		return t.Format("01"), true
	case 'M':
		return t.Format("04"), true
	case 'n':
		return "\n", true
	case 'p':
		return t.Format("PM"), true
	case 'r':
		return t.Format("03:04:05 PM"), true
	case 'R':
		return t.Format("15:04"), true
	case 's':
		return strconv.FormatInt(t.Unix(), 10), true
	case 'S':
		return t.Format("05"), true
	case 't':
		return "\t", true
	case 'T', 'X':
		return t.Format("15:04:05"), true
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1), true
	case 'U': // weeks begin on Sunday
		return fmt.Sprintf("%02d", (t.YearDay()+6-int(t.Weekday()))/7), true
	case 'W': // on Monday
		return fmt.Sprintf("%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7), true
	case 'V':
		_, week := t.ISOWeek()
		return fmt.Sprintf("%02d", week), true
	case 'w':
		return strconv.Itoa(int(t.Weekday())), true
	case 'y':
		return t.Format("06"), true
	case 'Y':
		return strconv.Itoa(t.Year()), true
	case 'z', 'Z':
		return "", true // Python's datetime.now() has no time zone
	case '%':
		return "%", true
	}
	return "", false
}
