package feed

import (
	"fmt"
	"strconv"
	"strings"
)

// appendNumber appends a cell as a JSON number. What is one already is passed
// on digit by digit; "+5", ".5", "5." and, where it is set, the decimal comma
// are put into JSON's form.
func appendNumber(dst []byte, cell string, decimal byte) ([]byte, error) {
	if decimal == ',' {
		cell = strings.Replace(cell, ",", ".", 1)
	}
	if isJSONNumber(cell) {
		return append(dst, cell...), nil
	}
	v, err := strconv.ParseFloat(cell, 64)
	if err != nil || strings.Trim(cell, "0123456789+-.eE") != "" { // no NaN, 0x1p4, 1_000
		return dst, fmt.Errorf("%q is not a number", cut(cell))
	}
	return strconv.AppendFloat(dst, v, 'g', -1, 64), nil
}

// isJSONNumber follows the grammar of RFC 8259, section 6.
func isJSONNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	whole := digits(s)
	if whole == 0 || (whole > 1 && s[0] == '0') {
		return false
	}
	if s = s[whole:]; s != "" && s[0] == '.' {
		n := digits(s[1:])
		if n == 0 {
			return false
		}
		s = s[1+n:]
	}
	return s == "" || isExponent(s)
}

func isExponent(s string) bool {
	if s[0] != 'e' && s[0] != 'E' {
		return false
	}
	s = s[1:]
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	return s != "" && digits(s) == len(s)
}

func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// cut shortens what a message repeats of the input.
func cut(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
