package decode

import (
	"bytes"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

// quotable is the maximum length of an item of which a description quotes parts. Such an item is
// always completely in the buffer, so the text does not depend on how the body arrives.
const quotable = lookahead - Padding

// quote adds the part of a faulty item that the description of its first fault quotes. item is
// valid JSON, with white space before it.
func quote(it *batch.Items, fault *batch.Fault, item []byte) {
	code, field := fault.First()
	item = bytes.TrimLeft(item, " \t\r\n")
	switch {
	case code == contract.DuplicateField:
		return
	case field == contract.FieldItem:
		it.Quote(it.Count, field, item)
		return
	}
	for rest := item[1:]; ; {
		start := bytes.IndexByte(rest, '"')
		if start < 0 {
			return
		}
		rest = rest[start:]
		n := valueEnd(rest)
		name := rest[1 : n-1]
		rest = rest[n+bytes.IndexByte(rest[n:], ':')+1:]
		rest = bytes.TrimLeft(rest, " \t\r\n")
		n = valueEnd(rest)
		switch {
		case code == contract.MissingField && alike(name, field.String()):
			it.Quote(it.Count, field, name)
			return
		case code != contract.MissingField && string(name) == field.String():
			it.Quote(it.Count, field, rest[:n])
			return
		}
		rest = rest[n:]
	}
}

// valueEnd returns the length of the valid JSON value at the start of text.
func valueEnd(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 { // the end of what a number or a literal is in
				return i
			}
			depth--
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}

// alike reports whether a name differs from a member's only in case, underscores and hyphens.
func alike(name []byte, member string) bool {
	i := 0
	for _, c := range name {
		switch {
		case c == '_' || c == '-':
		case i < len(member) && c|0x20 == member[i]|0x20:
			i++
		default:
			return false
		}
	}
	return i == len(member) && string(name) != member
}
