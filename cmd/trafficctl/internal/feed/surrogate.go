package feed

import (
	"strconv"
	"unicode/utf16"
)

// hasLoneSurrogate looks for a \uD800–\uDFFF escape without its other half.
func hasLoneSurrogate(b []byte) bool {
	for i := 0; i+1 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		high, ok := escaped(b[i:])
		if !ok {
			i++ // another escape: its second byte starts nothing
			continue
		}
		i += 5
		if !utf16.IsSurrogate(high) {
			continue
		}
		low, _ := escaped(b[i+1:])
		if utf16.DecodeRune(high, low) == '\uFFFD' {
			return true
		}
		i += 6
	}
	return false
}

// escaped reads an escape of four hexadecimal digits, such as \u0041, at the start of b.
func escaped(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(v), err == nil
}
