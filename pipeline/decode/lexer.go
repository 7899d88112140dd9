package decode

import (
	"encoding/binary"
	"fmt"
	"io"

	"trafficd/schemas/contract"
)

const (
	bufSize = 128 << 10 // one read of the stream
	padding = 64        // bytes after the data that may be loaded, never taken
	window  = 2 << 10   // bytes wanted ahead of an item: one of usual size lies in the buffer whole
	textMax = 1 << 10   // bytes of a string that are kept; longer ones are only checked
)

// lexer reads JSON tokens from a stream through a fixed buffer. The first error
// stays in err, and every method then answers false or 0.
type lexer struct {
	r        io.Reader
	buf      []byte // bufSize + padding
	pos, end int    // unread: buf[pos:end]
	base     int64  // offset of buf[0] in the stream
	eof      error  // what the stream ended with, errEnd for a clean end
	err      error

	depth    int // objects and arrays that are open
	maxDepth int
	stack    []byte // the kinds of those being skipped

	text  []byte // the last string, unescaped, or number; at most textMax bytes
	long  bool   // the last string was longer than that
	plain bool   // the last string stood in the buffer whole and without escapes

	full, dropped   bool  // the last number had digits past the limit that were not all zero
	shift, exponent int64 // its digits past the limit before the point; its exponent
}

func (l *lexer) init(maxDepth int) {
	l.buf = make([]byte, bufSize+padding)
	l.text = make([]byte, 0, textMax+32)
	l.stack = make([]byte, 0, maxDepth)
	l.maxDepth = maxDepth
}

func (l *lexer) reset(r io.Reader) {
	l.r, l.pos, l.end, l.base = r, 0, 0, 0
	l.eof, l.err, l.depth = nil, nil, 0
}

// fill moves what is unread to the front and reads on; false at the end.
func (l *lexer) fill() bool {
	if l.eof != nil {
		return false
	}
	copy(l.buf, l.buf[l.pos:l.end])
	l.base += int64(l.pos)
	l.end -= l.pos
	l.pos = 0
	for tries := 0; tries < 100; tries++ {
		n, err := l.r.Read(l.buf[l.end:bufSize])
		l.end += n
		if err == io.EOF {
			err = errEnd
		}
		l.eof = err
		if n > 0 || err != nil {
			return n > 0
		}
	}
	l.eof = io.ErrNoProgress
	return false
}

// ahead sees to it that an item of usual size is in the buffer whole.
func (l *lexer) ahead() {
	for l.end-l.pos < window && l.eof == nil {
		l.fill()
	}
}

// mark and back return to an earlier place that is not more than window away.
func (l *lexer) mark() int64 { l.ahead(); return l.base + int64(l.pos) }

func (l *lexer) back(mark int64) {
	if pos := mark - l.base; pos >= 0 {
		l.pos = int(pos)
	}
}

// syntax records that the byte at pos makes the body no JSON.
func (l *lexer) syntax(what string) {
	l.syntaxAt(l.base+int64(l.pos), what)
}

func (l *lexer) syntaxAt(offset int64, what string) {
	if l.err == nil {
		l.err = contract.NewError(contract.InvalidJSON, fmt.Sprintf("invalid JSON at byte %d: %s", offset, what))
	}
}

// ended records that the stream ended inside a value: its own error if it had one.
func (l *lexer) ended() {
	if l.eof != errEnd && l.err == nil {
		l.err = l.eof
		return
	}
	l.pos = l.end
	l.syntax("the body ends too early")
}

// peek is the byte at pos, 0 at the end of the stream (and for a real 0, which
// is no token either).
func (l *lexer) peek() byte {
	if l.pos < l.end || l.fill() {
		return l.buf[l.pos]
	}
	return 0
}

// next skips white space and peeks.
func (l *lexer) next() byte {
	for {
		for l.pos < l.end {
			switch c := l.buf[l.pos]; c {
			case ' ', '\t', '\n', '\r':
				l.pos++
				l.skipRun(c)
			default:
				return c
			}
		}
		if !l.fill() {
			return 0
		}
	}
}

// skipRun skips repeats of a white space byte eight at a time: indentation, and
// bodies that are nothing else.
func (l *lexer) skipRun(c byte) {
	pattern := uint64(c) * ones
	for l.pos+8 <= l.end && binary.LittleEndian.Uint64(l.buf[l.pos:]) == pattern {
		l.pos += 8
	}
}

// expect takes c after white space.
func (l *lexer) expect(c byte, where string) bool {
	if l.err != nil {
		return false
	}
	if l.next() == c && l.pos < l.end {
		l.pos++
		return true
	}
	l.unexpected(fmt.Sprintf("expected '%c' %s", c, where))
	return false
}

// unexpected is syntax, or the stream's end where there is no byte at all.
func (l *lexer) unexpected(what string) {
	if l.pos >= l.end {
		l.ended()
		return
	}
	l.syntax(what)
}

func (l *lexer) skipBOM() {
	l.ahead()
	if l.end-l.pos >= 3 && string(l.buf[l.pos:l.pos+3]) == "\xef\xbb\xbf" {
		l.pos += 3
	}
}

// atEnd checks that only white space follows.
func (l *lexer) atEnd() bool {
	if l.err != nil {
		return false
	}
	l.next()
	if l.pos < l.end {
		l.syntax("something follows the end of the JSON text")
		return false
	}
	if l.eof != errEnd {
		l.err = l.eof
		return false
	}
	return true
}

// firstMember reads the name of an object's first member into text, with its
// ':'; false for '}' and on errors. The caller has taken '{'.
func (l *lexer) firstMember() bool {
	if l.next() == '}' {
		l.pos++
		return false
	}
	return l.name()
}

// nextMember does so for the members after the first.
func (l *lexer) nextMember() bool {
	if l.err != nil {
		return false
	}
	switch l.next() {
	case ',':
		l.pos++
		return l.name()
	case '}':
		l.pos++
		return false
	}
	l.unexpected("expected ',' or '}' after a member")
	return false
}

func (l *lexer) name() bool {
	if l.next() != '"' {
		l.unexpected("expected a member name in double quotes")
		return false
	}
	return l.str() && l.expect(':', "after a member name")
}
