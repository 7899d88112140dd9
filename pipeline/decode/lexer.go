package decode

import (
	"encoding/binary"
	"fmt"
	"io"

	"trafficd/schemas/contract"
)

const (
	bufSize = 128 << 10 // one read of the stream
	padding = 64        // bytes after the data that may be loaded but are never used
	window  = 2 << 10   // bytes read ahead of an item, so that one of usual size is completely in the buffer
	textMax = 1 << 10   // bytes of a string that are kept; the rest is only validated
)

// lexer reads JSON tokens from a stream through a fixed buffer. It keeps the first error in err; all methods then return false
// or 0.
type lexer struct {
	r        io.Reader
	buf      []byte // bufSize + padding
	pos, end int    // unread: buf[pos:end]
	base     int64  // offset of buf[0] in the stream
	eof      error  // error that ended the stream, errEnd at its regular end
	err      error

	depth    int // open objects and arrays
	maxDepth int
	stack    []byte // opening brackets of the value being skipped

	text  []byte // the last string, unescaped, or number
	long  bool   // the last string was longer than textMax
	plain bool   // the last string was completely in the buffer, without escapes

	full, dropped   bool  // the last number has digits past maxDigits; some are not zero
	shift, exponent int64 // number of its integer digits past maxDigits; its exponent
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

// fill moves unread bytes to the front and reads more. It returns false at the end of the stream.
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

// ahead fills the buffer with at least window bytes, unless the stream ends.
func (l *lexer) ahead() {
	for l.end-l.pos < window && l.eof == nil {
		l.fill()
	}
}

func (l *lexer) syntax(reason string) { l.syntaxAt(l.base+int64(l.pos), reason) }

func (l *lexer) syntaxAt(offset int64, reason string) {
	if l.err == nil {
		l.err = contract.NewError(contract.InvalidJSON, fmt.Sprintf("invalid JSON at byte %d: %s", offset, reason))
	}
}

// ended records that the stream ended inside a value, or the error of the stream.
func (l *lexer) ended() {
	if l.eof != errEnd && l.err == nil {
		l.err = l.eof
		return
	}
	l.pos = l.end
	l.syntax("unexpected end of the body")
}

// peek returns the byte at pos, and 0 at the end of the stream: a zero byte starts no token either.
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

// skipRun skips repeated white space eight bytes at a time: indentation, and bodies that consist of it.
func (l *lexer) skipRun(c byte) {
	pattern := uint64(c) * ones
	for l.pos+8 <= l.end && binary.LittleEndian.Uint64(l.buf[l.pos:]) == pattern {
		l.pos += 8
	}
}

// unexpected records a syntax error, or the end of the stream if it is reached.
func (l *lexer) unexpected(what string) {
	if l.pos >= l.end {
		l.ended()
		return
	}
	l.syntax(what)
}

// atEnd consumes white space and reports whether nothing follows.
func (l *lexer) atEnd() bool {
	if l.err != nil {
		return false
	}
	l.next()
	if l.pos < l.end {
		l.syntax("unexpected data after the JSON text")
		return false
	}
	if l.eof != errEnd {
		l.err = l.eof
		return false
	}
	return true
}

// firstMember reads the name of an object's first member into text and consumes the ':'. It returns false at '}' and on
// errors. The caller has consumed '{'.
func (l *lexer) firstMember() bool {
	if l.next() == '}' {
		l.pos++
		return false
	}
	return l.name()
}

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
	if !l.str() {
		return false
	}
	if l.next() != ':' {
		l.unexpected("expected ':' after a member name")
		return false
	}
	l.pos++
	return true
}

func (l *lexer) literal(word string) bool {
	for i := range len(word) {
		if l.peek() != word[i] || l.pos >= l.end {
			l.unexpected("expected " + word)
			return false
		}
		l.pos++
	}
	return true
}

func (l *lexer) scalar(c byte) bool {
	switch {
	case c == '"':
		return l.str()
	case c == '-' || '0' <= c && c <= '9':
		return l.num()
	case c == 't':
		return l.literal("true")
	case c == 'f':
		return l.literal("false")
	case c == 'n':
		return l.literal("null")
	}
	l.unexpected("expected a value")
	return false
}

// skipValue consumes and validates a value of any type.
func (l *lexer) skipValue() bool {
	l.stack = l.stack[:0]
	for l.err == nil {
		opened := false
		switch c := l.next(); c {
		case '{', '[':
			if l.depth+len(l.stack) >= l.maxDepth {
				l.syntax(fmt.Sprintf("nesting is deeper than %d", l.maxDepth))
				return false
			}
			l.pos++
			opened = true
			l.stack = append(l.stack, c)
		default:
			if !l.scalar(c) {
				return false
			}
		}
		if l.closeValues(opened) {
			return l.err == nil
		}
	}
	return false
}

// closeValues moves from the end of a value, or from an opening bracket, to the start of the next value. It returns true when
// the outermost value is complete.
func (l *lexer) closeValues(opened bool) bool {
	for l.err == nil && len(l.stack) > 0 {
		var more bool
		if l.stack[len(l.stack)-1] == '{' {
			if opened {
				more = l.firstMember()
			} else {
				more = l.nextMember()
			}
		} else {
			more = l.nextElement(opened)
		}
		if more {
			return false
		}
		opened = false
		l.stack = l.stack[:len(l.stack)-1]
	}
	return true
}

func (l *lexer) nextElement(first bool) bool {
	switch c := l.next(); {
	case c == ']':
		l.pos++
		return false
	case first:
		return true
	case c == ',':
		l.pos++
		return true
	}
	l.unexpected("expected ',' or ']' after an element")
	return false
}
