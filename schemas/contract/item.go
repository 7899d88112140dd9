package contract

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Allowed describes the items that are accepted, for the descriptions of rejected items.
type Allowed struct {
	ProductInstance string // to which the detectors belong
	MeasureTypes    string // a phrase such as "allowed are speed, flow"; ASCII, without quotes
	FutureTolerance string // how far timestampTo may be ahead of the clock, such as 1h0m0s
}

// DetailLimit is the maximum length of the detail of a rejection: two texts with a separator.
const DetailLimit = 2*EchoLimit + 1

// detailSeparator separates the texts of a detail. It is no part of any UTF-8 text.
const detailSeparator = 0xff

// AppendDetail appends the detail of a rejection: up to EchoLimit bytes of what was seen and,
// unless it is empty, of what belongs to it, such as the allowed range.
func AppendDetail[S, M string | []byte](b []byte, seen S, more M) []byte {
	b = append(b, seen[:min(len(seen), EchoLimit)]...)
	if len(more) > 0 {
		b = append(append(b, detailSeparator), more[:min(len(more), EchoLimit)]...)
	}
	return b
}

// AppendItemDescription appends the description of a rejected item, escaped for use inside a JSON
// string. detail is that of AppendDetail, or empty. What was seen is, by the code:
//
//	INVALID_TYPE, RESERVED_FIELD          the JSON value
//	MISSING_FIELD                         the name of a similar member that the item has
//	UNKNOWN_DETECTOR                      the code; more is a similar one in the registry
//	UNKNOWN_MEASURE_TYPE                  the measure type
//	INVALID_TIMESTAMP                     the text
//	INVALID_INTERVAL, TIMESTAMP_IN_FUTURE the time, and more is timestampFrom
//	INVALID_VALUE, INVALID_QUALITY        the number; more is the allowed range
func AppendItemDescription(b []byte, code Code, field Field, detail []byte, allowed *Allowed) []byte {
	if field == FieldItem {
		b = append(b, "the item"...)
	} else {
		b = append(b, fields[field].name...)
	}
	b = append(b, ' ')
	detail, more, _ := bytes.Cut(detail[:min(len(detail), DetailLimit)], []byte{detailSeparator})
	detail = detail[:min(len(detail), EchoLimit)]
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
			b = appendQuoted(b, "", detail, "")
		case "seen":
			b = appendSeen(b, detail)
		case "alike":
			b = appendQuoted(b, "; the item has ", detail, " instead")
		case "hint":
			b = appendQuoted(b, hintStart, more, hintEnd)
		case "value":
			b = appendPlain(b, "", detail, " ")
		case "plain":
			b = appendPlain(b, ": ", detail, "")
			b = appendPlain(b, " < ", more, "")
		case "more":
			b = append(b, more...)
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

// The text around a similar detector code in a description.
const hintStart, hintEnd = "; did you mean ", "?"

// Hint returns the similar detector code that a description of UNKNOWN_DETECTOR names, or "".
func Hint(description string) string {
	_, hint, _ := strings.Cut(description, hintStart+`"`)
	hint, found := strings.CutSuffix(hint, `"`+hintEnd)
	if !found {
		return ""
	}
	return hint
}

// appendPlain appends text, which needs no escapes, unless it is empty.
func appendPlain(b []byte, before string, text []byte, after string) []byte {
	if len(text) == 0 {
		return b
	}
	return append(append(append(b, before...), text...), after...)
}

// appendQuoted appends text in quotes, unless it is empty.
func appendQuoted(b []byte, before string, text []byte, after string) []byte {
	if len(text) == 0 {
		return b
	}
	b = append(append(b, before...), `\"`...)
	b = appendEscaped(b, text)
	return append(append(b, `\"`...), after...)
}

// appendSeen appends what a JSON value is, unless it is empty. It may be truncated.
func appendSeen(b, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	switch value[0] {
	case '"':
		text := value[1:]
		if len(value) < EchoLimit {
			text = bytes.TrimSuffix(text, []byte{'"'})
		}
		if len(text) == 0 {
			return append(b, ", not an empty string"...)
		}
		return appendQuoted(b, ", not the string ", text, "")
	case '{':
		return append(b, ", not an object"...)
	case '[':
		return append(b, ", not an array"...)
	case 't', 'f', 'n':
		return appendPlain(b, ", not ", value, "")
	}
	return appendPlain(b, ", not the number ", value, "")
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
