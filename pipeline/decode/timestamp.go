package decode

import "time"

const (
	second = int64(1e9)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour

	// maxTimestamp is the length of 2006-01-02T15:04:05.123456789+00:00.
	maxTimestamp = 35
)

// parseTimestamp parses an ISO 8601 extended date-time in UTC according to rule 9 of contract 1.2.
func parseTimestamp(s []byte) (ns int64, ok bool) {
	if len(s) < len("2006-01-02T15:04Z") || len(s) > maxTimestamp || s[10]|0x20 != 't' {
		return 0, false
	}
	days, ok := date(s)
	h, okH := two(s[11:])
	m, okM := two(s[14:])
	if !ok || !okH || !okM || s[13] != ':' || h > 23 || m > 59 {
		return 0, false
	}
	sec, frac, zone, ok := seconds(s[16:], h == 23 && m == 59)
	z := string(zone)
	if !ok || z != "Z" && z != "z" && z != "+00:00" && z != "-00:00" && z != "+00" && z != "-00" {
		return 0, false
	}
	return days*day + int64(h)*hour + int64(m)*minute + int64(sec)*second + frac, true
}

// seconds parses what follows the minutes: ":05.123" or nothing, then the zone.
func seconds(s []byte, lastMinute bool) (sec int, frac int64, zone []byte, ok bool) {
	if s[0] != ':' {
		return 0, 0, s, true
	}
	if len(s) < len(":05Z") {
		return 0, 0, nil, false
	}
	sec, ok = two(s[1:])
	if !ok || sec > 60 || sec == 60 && !lastMinute {
		return 0, 0, nil, false
	}
	if s[3] != '.' && s[3] != ',' {
		return sec, 0, s[3:], true
	}
	frac, n := fraction(s[4:])
	return sec, frac, s[4+n:], n > 0
}

// fraction parses 1–9 digits as nanoseconds. n is their number, or 0 if there are none or too many.
func fraction(s []byte) (ns int64, n int) {
	for n < len(s) && s[n]-'0' <= 9 {
		if n == 9 {
			return 0, 0
		}
		ns = ns*10 + int64(s[n]-'0')
		n++
	}
	for k := n; k < 9; k++ {
		ns *= 10
	}
	return ns, n
}

// date parses "2006-01-02" as days since the Unix epoch.
func date(s []byte) (days int64, ok bool) {
	hi, ok1 := two(s)
	lo, ok2 := two(s[2:])
	m, ok3 := two(s[5:])
	d, ok4 := two(s[8:])
	y := 100*hi + lo
	t := time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC) // 30 February becomes 2 March
	valid := ok1 && ok2 && ok3 && ok4 && s[4] == '-' && s[7] == '-' && y >= 1970 && y <= 2261
	return t.Unix() / 86400, valid && t.Month() == time.Month(m) && t.Day() == d
}

func two(s []byte) (int, bool) {
	a, b := s[0]-'0', s[1]-'0'
	return int(a)*10 + int(b), a <= 9 && b <= 9
}
