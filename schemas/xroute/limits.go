package xroute

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
)

// Limits bounds the cost of reading an envelope. A value of zero or less means the default.
type Limits struct {
	Bytes      int64 // maximum size of the envelope in UTF-8
	Depth      int   // maximum nesting depth of elements
	Attributes int   // maximum number of attributes per element, and of namespaces in scope

	VendorPrefix string // accepted besides VENDOR in CoordFormat values; may be empty
}

// DefaultLimits returns limits that allow a geometry with about 300,000 points.
func DefaultLimits() Limits {
	return Limits{Bytes: 16 << 20, Depth: 64, Attributes: 64}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	l.Bytes = cmp.Or(max(l.Bytes, 0), d.Bytes)
	l.Depth = cmp.Or(max(l.Depth, 0), d.Depth)
	l.Attributes = cmp.Or(max(l.Attributes, 0), d.Attributes)
	return l
}

func tooMany(limit int64, what string) *Error {
	return &Error{Kind: KindLimit, Reason: fmt.Sprintf("the limit is %d %s: send less in one request", limit, what)}
}

// meter passes the envelope to the XML decoder byte by byte. It counts the bytes and, by their
// opening quotes, the attributes of a tag, because the decoder limits neither.
type meter struct {
	*bufio.Reader
	limits     Limits
	bytes      int64
	attributes int
	state      byte // one of the constants below, or the quote that ends the current value
	last       byte
	utf16      bool
	failed     error // error of the underlying reader other than io.EOF
}

const (
	atStart byte = iota // at the start of a token
	atName              // after <
	inTag
	inOther // in text, a comment or a declaration, where quotes have no special meaning
)

// newMeter returns a meter for r. It detects the encoding from the first bytes, as in appendix F of
// XML 1.0, skips a UTF-8 byte order mark, and converts UTF-16 to UTF-8.
func newMeter(r io.Reader, limits Limits) *meter {
	m := &meter{Reader: bufio.NewReader(r), limits: limits}
	mark, _ := m.Peek(3) // if there are fewer bytes, the decoder fails
	var utf16 encoding.Encoding
	switch {
	case bytes.HasPrefix(mark, []byte("\xEF\xBB\xBF")):
		m.Discard(3) //nolint:errcheck // the bytes are in the buffer
	case bytes.HasPrefix(mark, []byte("\xFE\xFF")), bytes.HasPrefix(mark, []byte("\xFF\xFE")):
		utf16 = unicode.UTF16(unicode.BigEndian, unicode.ExpectBOM)
	case bytes.HasPrefix(mark, []byte("\x00<")):
		utf16 = unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	case bytes.HasPrefix(mark, []byte("<\x00")):
		utf16 = unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	}
	if m.utf16 = utf16 != nil; m.utf16 {
		m.Reader = bufio.NewReader(utf16.NewDecoder().Reader(m.Reader))
	}
	return m
}

// ReadByte implements io.ByteReader. Beyond a limit, it returns an *Error of KindLimit.
func (m *meter) ReadByte() (byte, error) {
	c, err := m.Reader.ReadByte()
	if err != nil {
		if err != io.EOF {
			m.failed = err
		}
		return 0, err
	}
	if m.bytes++; m.bytes > m.limits.Bytes {
		return 0, tooMany(m.limits.Bytes, "bytes")
	}
	m.updateState(c)
	if m.attributes > m.limits.Attributes {
		return 0, tooMany(int64(m.limits.Attributes), "attributes per element")
	}
	return c, nil
}

// next must be called before each token. The decoder reads only to the end of a token or, for text,
// to the < that follows it.
func (m *meter) next() {
	m.state, m.attributes = atStart, 0
	if m.last == '<' {
		m.state = atName
	}
}

func (m *meter) updateState(c byte) {
	m.last = c
	switch m.state {
	case atStart:
		m.state = inOther
		if c == '<' {
			m.state = atName
		}
	case atName:
		m.state = inTag
		if c == '!' || c == '?' {
			m.state = inOther
		}
	case inTag:
		if c == '"' || c == '\'' {
			m.state = c
			m.attributes++
		}
	case inOther:
	default:
		if c == m.state {
			m.state = inTag
		}
	}
}

// charset is the CharsetReader of the xml.Decoder, which calls it for any declared encoding other
// than UTF-8. It accepts all for UTF-16, which newMeter has converted.
func (m *meter) charset(label string, in io.Reader) (io.Reader, error) {
	if m.utf16 {
		return in, nil
	}
	return nil, &Error{Kind: KindSyntax, Reason: "the encoding " + echo(label) + " is not supported: send UTF-8"}
}
