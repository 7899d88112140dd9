package decode

import (
	"encoding/binary"
	"fmt"
	"io"

	"trafficd/schemas/contract"
)

const (
	lookahead = 2 << 10 // bytes read ahead of an item, so that an item of typical size is completely in the buffer
	maxText   = 1 << 10 // bytes of a string that are kept; the rest is only validated
)

// Text is the text of a body.
type Text interface {
	// Next returns the last keep bytes of the previous result followed by more text, at least one byte
	// unless there is an error. At the end of the text the error is io.EOF. keep is at most 32 KiB.
	// Next is not called again after an error. The result is valid until the next call, and the
	// decoder does not change it. It must have at least Padding bytes of capacity after its end, which
	// the decoder may overwrite.
	Next(keep int) ([]byte, error)
}

// Padding is the number of spare bytes that a Text must have after what it returns.
const Padding = 64

// lexer reads JSON tokens from a Text. It keeps the first error in err; all methods then return
// false or 0.
type lexer struct {
	from     Text
	buf      []byte // the last result of Next, with Padding
	pos, end int    // unread: buf[pos:end]
	base     int64  // offset of buf[0] in the text
	eof      error  // error that ended the text, errEnd if it ended regularly
	err      error

	depth    int // open objects and arrays
	maxDepth int
	stack    []byte // opening brackets of the value being skipped

	text  []byte // the last string, unescaped, or number
	long  bool   // the last string was longer than maxText
	plain bool   // the last string was completely in the buffer, without escapes

	full, dropped   bool  // the last number has digits past maxDigits; some of those are not zero
	shift, exponent int64 // power of ten that makes up for dropped digits and zeros; the last number's exponent
}

func (l *lexer) init(maxDepth int) {
	l.text = make([]byte, 0, maxText+32)
	l.stack = make([]byte, 0, maxDepth)
	l.maxDepth = maxDepth
}

func (l *lexer) reset(from Text) {
	l.from, l.buf, l.pos, l.end, l.base = from, nil, 0, 0, 0
	l.eof, l.err, l.depth = nil, nil, 0
}

// fill reads more text after the unread bytes. It returns false at the end of the text.
func (l *lexer) fill() bool {
	if l.eof != nil {
		return false
	}
	unread := l.end - l.pos
	text, err := l.from.Next(unread)
	l.base += int64(l.pos)
	l.buf, l.pos, l.end = text[:min(len(text)+Padding, cap(text))], 0, len(text) // an empty text may be nil
	if l.end < len(l.buf) {
		l.buf[l.end] = 0 // ends a number
	}
	if err == io.EOF {
		err = errEnd
	}
	l.eof = err
	return len(text) > unread
}

// ahead fills the buffer with at least lookahead bytes, unless the stream ends.
func (l *lexer) ahead() {
	for l.end-l.pos < lookahead && l.eof == nil {
		l.fill()
	}
}

func (l *lexer) syntax(reason string) { l.syntaxAt(l.base+int64(l.pos), reason) }

func (l *lexer) syntaxAt(offset int64, reason string) {
	if l.err == nil {
		l.err = contract.NewError(contract.InvalidJSON, fmt.Sprintf("invalid JSON at byte %d of the decompressed body: %s", offset, reason))
	}
}

// ended records the error of the source or, without one, that the text ended too early.
func (l *lexer) ended() {
	if l.eof != errEnd && l.err == nil {
		l.err = l.eof
		return
	}
	l.pos = l.end
	l.syntax("unexpected end of the body")
}

// peek returns the byte at pos, or 0 at the end of the text. No token starts with a zero byte.
func (l *lexer) peek() byte {
	if l.pos < l.end || l.fill() {
		return l.buf[l.pos]
	}
	return 0
}

// next skips white space and returns the next byte, like peek.
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

// skipRun skips a run of the white space character c, such as indentation, eight bytes at a time.
func (l *lexer) skipRun(c byte) {
	pattern := uint64(c) * ones
	for l.pos+8 <= l.end && binary.LittleEndian.Uint64(l.buf[l.pos:]) == pattern {
		l.pos += 8
	}
}

// unexpected records a syntax error or, at the end of the text, that it ended too early.
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

// firstMember reads the name of an object's first member into text and consumes the ':'. It returns
// false at '}' and on errors. The caller has consumed '{'.
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

// closeValues moves from the end of a value, or from an opening bracket, to the start of the next
// value. It returns true when the outermost value is complete.
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
