package contract

import (
	"strings"
	"unicode/utf8"
)

// AppendItemDescription appends the description of a rejected item, escaped for use inside a JSON
// string. echo is the input to quote, which the caller has truncated to EchoLimit bytes.
func AppendItemDescription(b []byte, code Code, field Field, echo []byte) []byte {
	if field == FieldItem {
		b = append(b, "the item"...)
	} else {
		b = append(b, fields[field].name...)
	}
	if len(echo) > 0 {
		b = append(b, ` \"`...)
		b = appendEscaped(b, echo)
		b = append(b, `\"`...)
	}
	b = append(b, ' ')
	text, hasType := strings.CutSuffix(codes[code].item, "{type}")
	b = append(b, text...)
	if hasType {
		b = append(b, fields[field].kind...)
	}
	return b
}

// Echo returns the start of client input, to be quoted in a description: at most EchoLimit bytes,
// truncated at a character boundary, with U+FFFD in place of invalid UTF-8.
func Echo[T string | []byte](text T) string {
	b := []byte(text[:min(len(text), EchoLimit)])
	if len(text) > EchoLimit {
		b = wholeRunes(b)
	}
	return strings.ToValidUTF8(string(b), string(utf8.RuneError))
}

// wholeRunes removes an incomplete character at the end of b. It keeps other invalid bytes.
func wholeRunes(b []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		last := b[len(b)-n:]
		if utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return b[:len(b)-n]
			}
			break
		}
	}
	return b
}

// appendEscaped appends echo, escaped for use inside a JSON string. It replaces invalid UTF-8 with
// U+FFFD, and omits a character that was truncated at EchoLimit.
func appendEscaped(b, echo []byte) []byte {
	const hexDigits = "0123456789abcdef"
	if len(echo) == EchoLimit {
		echo = wholeRunes(echo)
	}
	for len(echo) > 0 {
		r, size := utf8.DecodeRune(echo)
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
		echo = echo[size:]
	}
	return b
}
