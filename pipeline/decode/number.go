package decode

import (
	"encoding/binary"
	"math/bits"
	"strconv"
)

// maxDigits is the maximum number of characters of a number to keep: more than the 767 digits that
// exact rounding needs, and fewer than the 800 beyond which strconv miscounts integer digits.
const maxDigits = 780

// exactDigits is the number of decimal digits that float64 always represents exactly. Dividing an
// integer of that many digits by an exact power of ten rounds once, and therefore correctly.
const exactDigits = 15

var powers = [16]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// readNumber reads the JSON number at p in b. next is the index after it, or -1 if there is no
// valid number or the lexer must decode it instead. The number must be followed by a byte that
// cannot be part of a number, and b must have at least seven bytes after its first digit.
func readNumber(b []byte, p int) (v float64, next int) {
	first := p
	if b[p] == '-' {
		first++
	}
	t := binary.LittleEndian.Uint64(b[first:]) ^ ones*'0'
	others := (t&^highs + ones*(0x80-10) | t) & highs // the bytes that are not digits
	if others == 0 {
		return readLong(b, p)
	}
	integer := uint(bits.TrailingZeros64(others)) &^ 7 // 8 × the number of digits before the decimal point
	digits, end := integer, first+int(integer/8)
	if b[end] == '.' {
		if others &= others - 1; others == 0 {
			return readLong(b, p)
		}
		size := uint(bits.TrailingZeros64(others)) / 8
		end = first + int(size)
		digits = size*8 - 8
		low := uint64(1)<<(integer&63) - 1
		t = t&low | t>>8&^low
		if digits == integer {
			return 0, -1
		}
	}
	if integer == 0 || integer > 8 && t&0xff == 0 {
		return 0, -1
	}
	if b[end]|0x20 == 'e' {
		return readLong(b, p)
	}
	// Combine the digits into pairs, then fours, then all eight.
	t <<= (64 - digits) & 63
	t = t*10 + t>>8
	const pairs = 0x000000ff000000ff
	t = (t&pairs*(100+1_000_000<<32) + t>>16&pairs*(1+10_000<<32)) >> 32
	v = float64(int64(t))
	if digits > integer {
		v /= powers[(digits-integer)/8&15]
	}
	if first > p {
		v = -v
	}
	return v, end
}

// readLong is like readNumber, for numbers of any length.
func readLong(b []byte, p int) (v float64, next int) {
	start := p
	negative := b[p] == '-'
	if negative {
		p++
	}
	mantissa, first := uint64(0), p
	for ; b[p]-'0' <= 9; p++ {
		mantissa = mantissa*10 + uint64(b[p]-'0')
	}
	digits := p - first
	if digits == 0 || digits > 1 && b[first] == '0' {
		return 0, -1
	}
	decimals := 0
	if b[p] == '.' {
		p++
		point := p
		for ; b[p]-'0' <= 9; p++ {
			mantissa = mantissa*10 + uint64(b[p]-'0')
		}
		if decimals = p - point; decimals == 0 {
			return 0, -1
		}
		digits += decimals
	}
	if b[p]|0x20 == 'e' || digits > exactDigits {
		return readSlow(b, start, p)
	}
	v = float64(mantissa) / powers[decimals]
	if negative {
		v = -v
	}
	return v, p
}

// readSlow reads the number that begins at start and has many digits or an exponent. p is the index
// after its mantissa.
func readSlow(b []byte, start, p int) (float64, int) {
	if b[p]|0x20 == 'e' {
		p++
		if b[p] == '+' || b[p] == '-' {
			p++
		}
		if b[p]-'0' > 9 {
			return 0, -1
		}
		for b[p]-'0' <= 9 {
			p++
		}
	}
	if p-start > maxDigits {
		return 0, -1
	}
	return parseFloat(b[start:p]), p
}

// parseFloat returns the value of a valid number, ±Inf if it overflows.
func parseFloat(text []byte) float64 {
	v, _ := strconv.ParseFloat(string(text), 64)
	return v
}

// num consumes the number at pos, however long, and stores it in text without the zeros that follow
// "0.". For digits beyond maxDigits, it records only how many are integer digits and whether any is
// nonzero.
func (l *lexer) num() bool {
	l.text, l.long = l.text[:0], false
	l.full, l.dropped, l.shift, l.exponent = false, false, 0, 0
	if l.peek() == '-' {
		l.take()
	}
	digits := 1 // digits of the current part: integer, fraction or exponent
	zero := l.peek() == '0'
	if zero {
		l.take()
	} else {
		for digits = 0; l.peek()-'0' <= 9; digits++ {
			if l.digit(); l.full {
				l.shift++
			}
		}
	}
	if digits > 0 && l.peek() == '.' {
		if l.full {
			l.pos++
		} else {
			l.take()
		}
		for digits = 0; zero && l.peek() == '0'; digits++ {
			l.pos++
			l.shift--
		}
		for ; l.peek()-'0' <= 9; digits++ {
			l.digit()
		}
	}
	if digits > 0 && l.peek()|0x20 == 'e' {
		const huge = 1 << 40 // out of range
		l.pos++
		negative := l.peek() == '-'
		if negative || l.peek() == '+' {
			l.pos++
		}
		for digits = 0; l.peek()-'0' <= 9; digits++ {
			l.exponent = min(l.exponent*10+int64(l.buf[l.pos]-'0'), huge)
			l.pos++
		}
		if negative {
			l.exponent = -l.exponent
		}
	}
	if digits == 0 {
		l.unexpected("expected a digit")
	}
	return digits > 0
}

func (l *lexer) take() {
	l.text = append(l.text, l.buf[l.pos])
	l.pos++
}

func (l *lexer) digit() {
	if l.full = l.full || len(l.text) >= maxDigits; l.full {
		l.dropped = l.dropped || l.buf[l.pos] != '0'
		l.pos++
		return
	}
	l.take()
}

// number returns the value of the number that num consumed, ±Inf if it overflows.
func (l *lexer) number() float64 {
	if l.dropped && l.shift > 0 {
		l.text = append(l.text, '.')
	}
	if n := len(l.text); l.text[n-1] == '.' { // the point was followed only by zeros, or was added above
		l.text = append(l.text, '0')
	}
	if l.dropped {
		l.text = append(l.text, '1')
	}
	if e := l.exponent + l.shift; e != 0 {
		const limit = 1 << 30
		l.text = append(l.text, 'e')
		l.text = strconv.AppendInt(l.text, max(-limit, min(e, limit)), 10)
	}
	return parseFloat(l.text)
}
