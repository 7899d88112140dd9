package xmlstream

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// What a byte is, or which bytes a text contains.
const (
	isSpace uint8 = 1 << iota
	isReturn
	isReference // &
	isSpecial   // < and ], which may begin ]]>
	isHigh      // part of a character that is not ASCII
	isName      // may be part of a name
	isPlain     // anything else that may occur
	isControl   // must not occur
)

var class = func() (c [256]uint8) {
	for b := range c {
		switch {
		case b == '\t' || b == '\n' || b == ' ':
			c[b] = isSpace
		case b == '\r':
			c[b] = isSpace | isReturn
		case b < ' ':
			c[b] = isControl
		case b >= utf8.RuneSelf:
			c[b] = isHigh | isName
		case 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '_' || b == '-' || b == '.' || b == ':':
			c[b] = isName
		default:
			c[b] = isPlain
		}
	}
	c['&'], c['<'], c[']'] = isReference, isSpecial, isSpecial
	return c
}()

func scan(text []byte) (flags uint8) {
	for _, b := range text {
		flags |= class[b]
	}
	return flags
}

func blank(flags uint8) bool { return flags&^(isSpace|isReturn) == 0 }

// valid checks the characters of a text. It fails if there are any that must not occur.
func (r *Reader) valid(text []byte, flags uint8) bool {
	switch {
	case flags&isControl != 0:
		return r.fail("a control character in a text")
	case flags&isSpecial != 0 && bytes.Contains(text, closeCDATA):
		return r.fail("]]> in a text")
	case flags&isHigh == 0:
		return true
	case !utf8.Valid(text):
		return r.fail("a text is not valid UTF-8")
	case bytes.Contains(text, []byte("\uFFFE")) || bytes.Contains(text, []byte("\uFFFF")):
		return r.fail("U+FFFE or U+FFFF in a text")
	}
	return true
}

var entities = map[string]string{"lt": "<", "gt": ">", "amp": "&", "apos": "'", "quot": `"`}

// unescape appends text with its references replaced and its line ends as \n. It fails if a
// reference is invalid.
func (r *Reader) unescape(dst, text []byte, flags uint8) []byte {
	if flags&(isReference|isReturn) == 0 {
		return append(dst, text...)
	}
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '\r':
			dst = append(dst, '\n')
			if i+1 < len(text) && text[i+1] == '\n' {
				i++
			}
		case b == '&' && flags&isReference != 0:
			size := bytes.IndexByte(text[i:], ';')
			if size < 0 {
				r.fail("& without a reference")
				return dst
			}
			if dst = r.reference(dst, string(text[i+1:i+size])); r.err != nil {
				return dst
			}
			i += size
		default:
			dst = append(dst, b)
		}
	}
	return dst
}

func (r *Reader) reference(dst []byte, name string) []byte {
	if text, ok := entities[name]; ok {
		return append(dst, text...)
	}
	if len(name) > 1 && name[0] == '#' {
		digits, base := name[1:], 10
		if digits[0] == 'x' {
			digits, base = digits[1:], 16
		}
		n, err := strconv.ParseUint(digits, base, 21)
		c := rune(n)
		if err == nil && (c >= ' ' || c == '\t' || c == '\n' || c == '\r') && utf8.ValidRune(c) && c != 0xFFFE && c != 0xFFFF {
			return utf8.AppendRune(dst, c)
		}
	}
	r.fail("invalid reference &%.32s;", strconv.QuoteToASCII(name))
	return dst
}

func skipSpace(w []byte, i int) int {
	for i < len(w) && class[w[i]]&isSpace != 0 {
		i++
	}
	return i
}

func trim(text []byte) []byte {
	from, to := 0, len(text)
	for from < to && class[text[from]]&isSpace != 0 {
		from++
	}
	for from < to && class[text[to-1]]&isSpace != 0 {
		to--
	}
	return text[from:to]
}
