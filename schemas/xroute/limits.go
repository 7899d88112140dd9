package xroute

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
)

// Limits bound what reading an envelope may cost. A value of zero or less is
// the default.
type Limits struct {
	Bytes      int64 // of the envelope, as UTF-8
	Depth      int   // of elements in one another
	Attributes int   // of one element; and namespaces in scope at one place
}

// DefaultLimits take a geometry of some 300,000 points.
func DefaultLimits() Limits {
	return Limits{Bytes: 16 << 20, Depth: 64, Attributes: 64}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	if l.Bytes <= 0 {
		l.Bytes = d.Bytes
	}
	if l.Depth <= 0 {
		l.Depth = d.Depth
	}
	if l.Attributes <= 0 {
		l.Attributes = d.Attributes
	}
	return l
}

func tooMany(limit int64, what string) *Error {
	return &Error{Kind: KindLimit, Reason: fmt.Sprintf("the limit is %d %s: send less in one request", limit, what)}
}

// A meter stands between the bytes and the XML decoder, which takes one byte
// at a time. It counts bytes, and the attributes of a tag by their opening
// quotes: the decoder itself would keep any number of them before it lets
// anyone count.
type meter struct {
	in         *bufio.Reader
	limits     Limits
	bytes      int64
	attributes int
	state      byte // one of those below, or the quote that ends a value
	last       byte
	utf16      bool
	failed     error // what the reader beneath said, unless it was io.EOF
}

const (
	atStart byte = iota // of a token
	atName              // after <
	inTag
	inOther // text, a comment or the like: quotes mean nothing there
)

// newMeter looks at the first bytes, as XML 1.0 says in its appendix F: a byte order
// mark of UTF-8 is left out, and UTF-16, with one or without, is turned into UTF-8.
func newMeter(r io.Reader, limits Limits) *meter {
	m := &meter{in: bufio.NewReader(r), limits: limits}
	mark, _ := m.in.Peek(3) // too short: no mark, and the decoder meets the error
	switch {
	case bytes.HasPrefix(mark, []byte("\xEF\xBB\xBF")):
		m.in.Discard(3) //nolint:errcheck // these bytes are in the buffer
	case bytes.HasPrefix(mark, []byte("\xFE\xFF")), bytes.HasPrefix(mark, []byte("\xFF\xFE")):
		m.decode(unicode.UTF16(unicode.BigEndian, unicode.ExpectBOM))
	case bytes.HasPrefix(mark, []byte("\x00<")):
		m.decode(unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM))
	case bytes.HasPrefix(mark, []byte("<\x00")):
		m.decode(unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM))
	}
	return m
}

func (m *meter) decode(from encoding.Encoding) {
	m.utf16 = true
	m.in = bufio.NewReader(from.NewDecoder().Reader(m.in))
}

// ReadByte gives the next byte, or an Error of KindLimit.
func (m *meter) ReadByte() (byte, error) {
	c, err := m.in.ReadByte()
	if err != nil {
		if err != io.EOF {
			m.failed = err
		}
		return 0, err
	}
	if m.bytes++; m.bytes > m.limits.Bytes {
		return 0, tooMany(m.limits.Bytes, "bytes")
	}
	m.follow(c)
	if m.attributes > m.limits.Attributes {
		return 0, tooMany(int64(m.limits.Attributes), "attributes of one element")
	}
	return c, nil
}

// next is called before each token. The decoder looks no further than to the
// end of a token, but for the < at which text ends.
func (m *meter) next() {
	m.state, m.attributes = atStart, 0
	if m.last == '<' {
		m.state = atName
	}
}

func (m *meter) follow(c byte) {
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

// Read is there for the decoder to take a meter at all; it calls ReadByte.
func (m *meter) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c, err := m.ReadByte()
	if err != nil {
		return 0, err
	}
	p[0] = c
	return 1, nil
}

// charset is asked for any declared encoding but UTF-8.
func (m *meter) charset(label string, in io.Reader) (io.Reader, error) {
	if m.utf16 {
		return in, nil
	}
	return nil, &Error{Kind: KindSyntax, Reason: "the encoding " + echo(label) + " is not supported: send UTF-8"}
}
