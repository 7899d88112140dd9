package geo

import (
	"math"
	"strconv"
)

// appendNumber appends the shortest text that reads back as the same number,
// with an exponent only where there would be more than 21 digits otherwise.
func appendNumber(dst []byte, v float64) []byte {
	if a := math.Abs(v); v != 0 && (a < 1e-6 || a >= 1e21) {
		dst = strconv.AppendFloat(dst, v, 'e', -1, 64)
		if n := len(dst); dst[n-2] == '0' && dst[n-3] == '-' { // e-07 is one longer than needed
			dst = append(dst[:n-2], dst[n-1])
		}
		return dst
	}
	return strconv.AppendFloat(dst, v, 'f', -1, 64)
}

// numberLen is the length of what may be a number at the start of the text.
func numberLen[T string | []byte](text T) int {
	for i := range len(text) {
		switch c := text[i]; {
		case '0' <= c && c <= '9', c == '.', c == '-', c == '+', c == 'e', c == 'E':
		default:
			return i
		}
	}
	return len(text)
}

// spaceLen is the length of the white space at the start of the text.
func spaceLen[T string | []byte](text T) int {
	for i := range len(text) {
		switch text[i] {
		case ' ', '\t', '\n', '\r', '\v', '\f':
		default:
			return i
		}
	}
	return len(text)
}
