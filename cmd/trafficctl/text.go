package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"trafficd/pipeline/batch"
)

// grouped formats n with thousands separators: 14,274,722.
func grouped[N int | int32 | int64 | uint64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// plural formats a number and its noun: 1 segment, 2 segments.
func plural[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		noun = stem + "ie"
	}
	return grouped(n) + " " + noun + "s"
}

// timestamp formats t in UTC with milliseconds.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// megabytes formats numbers of bytes. A total of 0 or less is unknown.
func megabytes(done, total int64) string {
	const mega = 1e6
	if total <= 0 {
		return fmt.Sprintf("%.1f MB", float64(done)/mega)
	}
	return fmt.Sprintf("%.1f of %.1f MB (%.0f%%)", float64(done)/mega, float64(total)/mega, 100*float64(done)/float64(total))
}

// printable returns text with U+FFFD for each character that is not printed, such as a line break
// or the start of an escape sequence: text from clients and stores must not control the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// short returns text on a single line, truncated if it is long.
func short(text string) string {
	const maxLength = 160
	text = printable(strings.Join(strings.Fields(text), " "))
	if len(text) <= maxLength {
		return text
	}
	end := maxLength
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// position formats p as a frame number and, unless p is the frame's first row, the row number.
func position(p batch.Position) string {
	if p.Row == 0 {
		return fmt.Sprintf("frame %d", p.Frame)
	}
	return fmt.Sprintf("frame %d, row %d", p.Frame, p.Row)
}
