package feed

import "time"

// parseISO reads YYYY-MM-DD, T or a space, hh:mm, then optionally :ss, a
// fraction after point or comma, and a zone (Z, ±hh, ±hhmm, ±hh:mm). Where
// there is a zone the result is the instant and zoned is true; where there is
// none it is the clock's reading as if it were UTC.
//
// It is written by hand because time.Parse takes one layout at a time and this
// is asked for every row.
func parseISO(s string) (t time.Time, zoned, ok bool) {
	year, ok1 := number(s, 0, 4)
	month, ok2 := number(s, 5, 2)
	day, ok3 := number(s, 8, 2)
	hour, ok4 := number(s, 11, 2)
	minute, ok5 := number(s, 14, 2)
	if !(ok1 && ok2 && ok3 && ok4 && ok5) || s[4] != '-' || s[7] != '-' || s[13] != ':' {
		return t, false, false
	}
	if sep := s[10]; sep != 'T' && sep != ' ' && sep != 't' {
		return t, false, false
	}
	second, ns, rest, ok := parseSeconds(s[16:])
	if !ok || hour > 23 || minute > 59 || second > 59 {
		return t, false, false
	}
	offset, zoned, ok := parseZone(rest)
	t = time.Date(year, time.Month(month), day, hour, minute, second, int(ns), time.UTC)
	if !ok || t.Day() != day || t.Month() != time.Month(month) {
		return t, false, false // 31 February would have become March
	}
	return t.Add(-offset), zoned, true
}

func parseSeconds(s string) (second int, ns int64, rest string, ok bool) {
	if s == "" || s[0] != ':' {
		return 0, 0, s, true
	}
	if second, ok = number(s, 1, 2); !ok {
		return 0, 0, s, false
	}
	s = s[3:]
	if s == "" || (s[0] != '.' && s[0] != ',') {
		return second, 0, s, true
	}
	n := digits(s[1:])
	if n < 1 || n > 9 {
		return 0, 0, s, false
	}
	return second, nanos(s[1 : 1+n]), s[1+n:], true
}

func parseZone(s string) (offset time.Duration, zoned, ok bool) {
	switch {
	case s == "":
		return 0, false, true
	case s == "Z" || s == "z":
		return 0, true, true
	case s[0] != '+' && s[0] != '-':
		return 0, false, false
	}
	hours, ok := number(s, 1, 2)
	minutes := 0
	if ok && len(s) > 3 {
		at := 3
		if s[3] == ':' {
			at = 4
		}
		minutes, ok = number(s, at, 2)
		ok = ok && len(s) == at+2
	}
	offset = time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if s[0] == '-' {
		offset = -offset
	}
	return offset, true, ok && hours < 24 && minutes < 60
}

// number reads n decimal digits at s[at:].
func number(s string, at, n int) (v int, ok bool) {
	if len(s) < at+n {
		return 0, false
	}
	for i := at; i < at+n; i++ {
		d := s[i] - '0'
		if d > 9 {
			return 0, false
		}
		v = 10*v + int(d)
	}
	return v, true
}

// nanos reads a fraction of up to nine digits.
func nanos(fraction string) (ns int64) {
	for i := range 9 {
		ns *= 10
		if i < len(fraction) {
			ns += int64(fraction[i] - '0')
		}
	}
	return ns
}
