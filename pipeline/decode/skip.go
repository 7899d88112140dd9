package decode

import "fmt"

// literal consumes true, false or null.
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

// scalar takes a value that is neither object nor array.
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
