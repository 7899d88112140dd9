package decode

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special returns a word whose lowest set bit is in the first byte of w that is a double quote, a
// backslash, a control character or not ASCII, or 0 if there is none. Higher bits are undefined.
func special(w uint64) uint64 {
	quote, back := w^(ones*'"'), w^(ones*'\\')
	return ((quote - ones) | (back - ones) | (w - ones*0x20) | w) & highs
}

// str consumes the string at pos and keeps it, unescaped, in text.
func (l *lexer) str() bool {
	start := l.base + int64(l.pos)
	l.pos++
	l.text, l.long, l.plain = l.text[:0], false, true
	for {
		run := l.run()
		l.keep(l.buf[run:l.pos])
		switch c := l.peek(); {
		case l.pos >= l.end:
			l.ended()
			return false
		case c == '"':
			l.pos++
			l.plain = l.plain && start >= l.base
			return true
		case c == '\\':
			l.plain = false
			if !l.escape() {
				return false
			}
		case c < 0x20:
			l.syntax("control character in a string; write it as \\u00XX")
			return false
		case c >= 0x80:
			if !l.multibyte() {
				return false
			}
		}
	}
}

// run consumes plain ASCII up to the next special byte or the end of the buffer, and returns where
// it started.
func (l *lexer) run() int {
	if l.pos >= l.end {
		l.fill()
	}
	start := l.pos
	for l.pos < l.end {
		if m := special(binary.LittleEndian.Uint64(l.buf[l.pos:])); m != 0 {
			l.pos = min(l.pos+bits.TrailingZeros64(m)/8, l.end)
			return start
		}
		l.pos += 8
	}
	l.pos = l.end
	return start
}

func (l *lexer) keep(b []byte) {
	if room := maxText - len(l.text); len(b) > room {
		b, l.long = b[:room], true
	}
	l.text = append(l.text, b...)
}

// multibyte consumes the run of non-ASCII characters at pos.
func (l *lexer) multibyte() bool {
	for l.eof == nil && l.end-l.pos < utf8.UTFMax {
		l.fill()
	}
	stop := l.pos
	for stop < l.end && l.buf[stop] >= 0x80 {
		stop++
	}
	if stop == l.end && l.eof == nil { // the end of the buffer may cut a character
		for stop > l.pos && !utf8.RuneStart(l.buf[stop-1]) {
			stop--
		}
		if stop--; stop <= l.pos {
			stop = l.end
		}
	}
	if run := l.buf[l.pos:stop]; utf8.Valid(run) {
		l.keep(run)
		l.pos = stop
		return true
	}
	for l.pos < stop { // to the first invalid byte
		c, n := utf8.DecodeRune(l.buf[l.pos:stop])
		if c == utf8.RuneError && n == 1 {
			break
		}
		l.pos += n
	}
	l.syntax("invalid UTF-8 in a string")
	return false
}

var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape consumes the escape sequence at pos, or both sequences of a surrogate pair.
func (l *lexer) escape() bool {
	at := l.base + int64(l.pos)
	l.pos++
	c := l.peek()
	if l.pos >= l.end {
		l.ended()
		return false
	}
	l.pos++
	if plain := escapes[c]; plain != 0 {
		l.keep([]byte{plain})
		return true
	}
	if c != 'u' {
		l.pos--
		l.syntax("unknown escape sequence in a string")
		return false
	}
	r, ok := l.hex4()
	if ok && utf16.IsSurrogate(r) {
		for _, c := range [2]byte{'\\', 'u'} {
			if l.peek() != c {
				if l.pos >= l.end {
					l.ended()
				}
				l.syntaxAt(at, "lone surrogate in a string")
				return false
			}
			l.pos++
		}
		var low rune
		low, ok = l.hex4()
		if r = utf16.DecodeRune(r, low); ok && r == utf8.RuneError {
			l.syntaxAt(at, "lone surrogate in a string")
			return false
		}
	}
	var b [utf8.UTFMax]byte
	l.keep(b[:utf8.EncodeRune(b[:], r)])
	return ok
}

func (l *lexer) hex4() (rune, bool) {
	r := rune(0)
	for range 4 {
		c := l.peek()
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			l.unexpected("expected four hexadecimal digits after \\u")
			return 0, false
		}
		l.pos++
	}
	return r, true
}

// maxDigits is the maximum number of characters of a number to keep: more than the 767 digits that
// exact rounding needs, and fewer than the 800 beyond which strconv miscounts integer digits.
const maxDigits = 780

// exactDigits is the number of decimal digits that float64 always represents exactly. Dividing an
// integer of that many digits by an exact power of ten rounds once, and therefore correctly.
const exactDigits = 15

var powers = [16]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// readNumber reads the JSON number at p in b. next is the index after it, or -1 if there is no
// valid number or the lexer must decode it instead. The number must be followed by a byte that
// cannot be part of a number, and b must have at least seven bytes after its first digit.
func readNumber(b []byte, p int) (v float64, next int) {
	first := p
	if b[p] == '-' {
		first++
	}
	t := binary.LittleEndian.Uint64(b[first:]) ^ ones*'0'
	others := (t&^highs + ones*(0x80-10) | t) & highs // the bytes that are not digits
	if others == 0 {
		return readLong(b, p)
	}
	integer := uint(bits.TrailingZeros64(others)) &^ 7 // 8 × the number of digits before the decimal point
	digits, end := integer, first+int(integer/8)
	if b[end] == '.' {
		if others &= others - 1; others == 0 {
			return readLong(b, p)
		}
		size := uint(bits.TrailingZeros64(others)) / 8
		end = first + int(size)
		digits = size*8 - 8
		low := uint64(1)<<(integer&63) - 1
		t = t&low | t>>8&^low
		if digits == integer {
			return 0, -1
		}
	}
	if integer == 0 || integer > 8 && t&0xff == 0 {
		return 0, -1
	}
	if b[end]|0x20 == 'e' {
		return readLong(b, p)
	}
	// Combine the digits into pairs, then fours, then all eight.
	t <<= (64 - digits) & 63
	t = t*10 + t>>8
	const pairs = 0x000000ff000000ff
	t = (t&pairs*(100+1_000_000<<32) + t>>16&pairs*(1+10_000<<32)) >> 32
	v = float64(int64(t))
	if digits > integer {
		v /= powers[(digits-integer)/8&15]
	}
	if first > p {
		v = -v
	}
	return v, end
}

// readLong is like readNumber, for numbers of any length.
func readLong(b []byte, p int) (v float64, next int) {
	start := p
	negative := b[p] == '-'
	if negative {
		p++
	}
	mantissa, first := uint64(0), p
	for ; b[p]-'0' <= 9; p++ {
		mantissa = mantissa*10 + uint64(b[p]-'0')
	}
	digits := p - first
	if digits == 0 || digits > 1 && b[first] == '0' {
		return 0, -1
	}
	decimals := 0
	if b[p] == '.' {
		p++
		point := p
		for ; b[p]-'0' <= 9; p++ {
			mantissa = mantissa*10 + uint64(b[p]-'0')
		}
		if decimals = p - point; decimals == 0 {
			return 0, -1
		}
		digits += decimals
	}
	if b[p]|0x20 == 'e' || digits > exactDigits {
		return readSlow(b, start, p)
	}
	v = float64(mantissa) / powers[decimals]
	if negative {
		v = -v
	}
	return v, p
}

// readSlow reads the number that begins at start and has many digits or an exponent. p is the index
// after its mantissa.
func readSlow(b []byte, start, p int) (float64, int) {
	if b[p]|0x20 == 'e' {
		p++
		if b[p] == '+' || b[p] == '-' {
			p++
		}
		if b[p]-'0' > 9 {
			return 0, -1
		}
		for b[p]-'0' <= 9 {
			p++
		}
	}
	if p-start > maxDigits {
		return 0, -1
	}
	return parseFloat(b[start:p]), p
}

// parseFloat returns the value of a valid number, ±Inf if it overflows.
func parseFloat(text []byte) float64 {
	v, _ := strconv.ParseFloat(string(text), 64)
	return v
}

// num consumes the number at pos, however long, and stores it in text without the zeros that follow
// "0.". For digits beyond maxDigits, it records only how many are integer digits and whether any is
// nonzero.
func (l *lexer) num() bool {
	l.text, l.long = l.text[:0], false
	l.full, l.dropped, l.shift, l.exponent = false, false, 0, 0
	if l.peek() == '-' {
		l.take()
	}
	digits := 1 // digits of the current part: integer, fraction or exponent
	zero := l.peek() == '0'
	if zero {
		l.take()
	} else {
		for digits = 0; l.peek()-'0' <= 9; digits++ {
			if l.digit(); l.full {
				l.shift++
			}
		}
	}
	if digits > 0 && l.peek() == '.' {
		if l.full {
			l.pos++
		} else {
			l.take()
		}
		for digits = 0; zero && l.peek() == '0'; digits++ {
			l.pos++
			l.shift--
		}
		for ; l.peek()-'0' <= 9; digits++ {
			l.digit()
		}
	}
	if digits > 0 && l.peek()|0x20 == 'e' {
		const huge = 1 << 40 // out of range
		l.pos++
		negative := l.peek() == '-'
		if negative || l.peek() == '+' {
			l.pos++
		}
		for digits = 0; l.peek()-'0' <= 9; digits++ {
			l.exponent = min(l.exponent*10+int64(l.buf[l.pos]-'0'), huge)
			l.pos++
		}
		if negative {
			l.exponent = -l.exponent
		}
	}
	if digits == 0 {
		l.unexpected("expected a digit")
	}
	return digits > 0
}

func (l *lexer) take() {
	l.text = append(l.text, l.buf[l.pos])
	l.pos++
}

func (l *lexer) digit() {
	if l.full = l.full || len(l.text) >= maxDigits; l.full {
		l.dropped = l.dropped || l.buf[l.pos] != '0'
		l.pos++
		return
	}
	l.take()
}

// number returns the value of the number that num consumed, ±Inf if it overflows.
func (l *lexer) number() float64 {
	if l.dropped && l.shift > 0 {
		l.text = append(l.text, '.')
	}
	if n := len(l.text); l.text[n-1] == '.' { // the point was followed only by zeros, or was added above
		l.text = append(l.text, '0')
	}
	if l.dropped {
		l.text = append(l.text, '1')
	}
	if e := l.exponent + l.shift; e != 0 {
		const limit = 1 << 30
		l.text = append(l.text, 'e')
		l.text = strconv.AppendInt(l.text, max(-limit, min(e, limit)), 10)
	}
	return parseFloat(l.text)
}

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
