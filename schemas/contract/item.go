package contract

import (
	"strings"
	"unicode/utf8"
)

// Allowed describes the items that are accepted, for the descriptions of rejected items.
type Allowed struct {
	ProductInstance string // to which the detectors belong
	MeasureTypes    string // a phrase such as "allowed are speed, flow"; ASCII, without quotes
	FutureTolerance string // how far timestampTo may be ahead of the clock, such as 1h0m0s
}

// AppendItemDescription appends the description of a rejected item, escaped for use inside a JSON
// string. detail is the input to quote or, for InvalidValue and InvalidQuality, the allowed range;
// the caller has truncated it to EchoLimit bytes.
func AppendItemDescription(b []byte, code Code, field Field, detail []byte, allowed *Allowed) []byte {
	if field == FieldItem {
		b = append(b, "the item"...)
	} else {
		b = append(b, fields[field].name...)
	}
	b = append(b, ' ')
	for rest := codes[code].item; rest != ""; {
		text, after, _ := strings.Cut(rest, "{")
		b = append(b, text...)
		text, rest, _ = strings.Cut(after, "}")
		switch text {
		case "kind":
			b = append(b, fields[field].kind...)
		case "input":
			if len(detail) == 0 {
				b = append(b, "is empty and"...)
				break
			}
			b = append(b, `\"`...)
			b = appendEscaped(b, detail)
			b = append(b, `\"`...)
		case "range":
			b = append(b, detail...)
		case "instance":
			b = appendEscaped(b, []byte(allowed.ProductInstance))
		case "types":
			b = append(b, allowed.MeasureTypes...)
		case "tolerance":
			b = append(b, allowed.FutureTolerance...)
		}
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
