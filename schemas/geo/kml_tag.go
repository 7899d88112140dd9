package geo

import (
	"fmt"
	"strings"
)

// longestTag bounds what the XML decoder keeps of a tag: each attribute takes more
// than ten times the memory of its text. KML has names and namespaces there.
const longestTag = 16 << 10

// tagMeter is the text on its way to the XML decoder, which takes one byte at a time.
// It lets no longer tag through.
type tagMeter struct {
	in    *strings.Reader
	at    int // bytes of the token so far
	last  byte
	inTag bool
}

// next is called before each token. The decoder looks no further than to the end of a
// token, but for the < at which text ends.
func (m *tagMeter) next() {
	m.at = 0
	if m.last == '<' {
		m.at = 1
	}
}

// ReadByte implements io.ByteReader.
func (m *tagMeter) ReadByte() (byte, error) {
	c, err := m.in.ReadByte()
	if err != nil {
		return 0, err
	}
	if m.at <= 1 { // a tag is <, and then neither ! nor ?, which begin comments and the like
		m.inTag = m.at == 0 && c == '<' || m.at == 1 && m.last == '<' && c != '!' && c != '?'
	}
	m.last = c
	if m.at++; m.inTag && m.at > longestTag {
		return 0, fmt.Errorf("%w: a tag of more than %d bytes", ErrTooLarge, longestTag)
	}
	return c, nil
}

// Read is there for the decoder to take a tagMeter at all; it calls ReadByte.
func (m *tagMeter) Read(p []byte) (int, error) {
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
