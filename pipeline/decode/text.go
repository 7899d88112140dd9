package decode

import (
	"encoding/binary"
	"math/bits"
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
