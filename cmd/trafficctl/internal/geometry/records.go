package geometry

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

// record is one geometry in the input.
type record struct {
	place string // "line 7"
	data  []byte // valid until the next record
}

// records splits the input into records, each limited to most bytes. An error ends the sequence.
func records(in io.Reader, e Encoding, most int) iter.Seq2[record, error] {
	b := bufio.NewReader(in)
	if magic, _ := b.Peek(2); string(magic) == "\x1f\x8b" {
		return func(yield func(record, error) bool) {
			yield(record{}, errors.New("the input is compressed with gzip; decompress it first, for example with zcat"))
		}
	}
	in = b
	switch e {
	case WKB:
		return whole(in, most)
	case KML:
		return placemarks(in, most)
	}
	return lines(in, most)
}

func tooLong(place string, most int) error {
	return fmt.Errorf("%s: a geometry exceeds %d bytes; increase --max-bytes", place, most)
}

// lines skips blank lines.
func lines(in io.Reader, most int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		const first = 64 << 10
		scanner := bufio.NewScanner(in)
		scanner.Buffer(make([]byte, 0, min(first, most)), most)
		n := 0
		for scanner.Scan() {
			n++
			line := bytes.TrimSpace(scanner.Bytes())
			if n == 1 {
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			if len(line) > 0 && !yield(record{fmt.Sprintf("line %d", n), line}, nil) {
				return
			}
		}
		switch err := scanner.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(record{}, tooLong(fmt.Sprintf("line %d", n+1), most))
		case err != nil:
			yield(record{}, fmt.Errorf("cannot read the input after line %d: %w", n, err))
		}
	}
}

// whole returns the input as one record.
func whole(in io.Reader, most int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		data, err := io.ReadAll(io.LimitReader(in, int64(most)+1))
		switch {
		case err != nil:
			yield(record{}, fmt.Errorf("cannot read the input: %w", err))
		case len(data) > most:
			yield(record{}, tooLong("the input", most))
		default:
			yield(record{"the input", data}, nil)
		}
	}
}

// deepest bounds the nesting of elements.
const deepest = 256

// placemarks splits KML into placemarks, and top-level geometries. The input may contain several
// documents.
func placemarks(in io.Reader, most int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		c := newCutter(in, most)
		for {
			r, err := c.next()
			if errors.Is(err, io.EOF) {
				if !c.isKML && c.isSomething {
					yield(record{}, errors.New("cannot read KML: no placemark or geometry found; check --from and the file name"))
				}
				return
			}
			if err != nil {
				line, column := c.xml.InputPos()
				yield(record{}, fmt.Errorf("cannot read KML: line %d, column %d: %w", line, column, err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// cutter parses elements and keeps the bytes of the current record.
type cutter struct {
	xml   *xml.Decoder
	kept  *keeper
	depth int

	isSomething bool // not only white space
	isKML       bool // contains a KML element
}

func newCutter(in io.Reader, most int) *cutter {
	kept := &keeper{in: bufio.NewReaderSize(in, 64<<10), most: most}
	c := &cutter{xml: xml.NewDecoder(kept), kept: kept}
	c.xml.CharsetReader = func(charset string, _ io.Reader) (io.Reader, error) {
		return nil, fmt.Errorf("unsupported encoding %s; convert the file to UTF-8, for example with iconv", charset)
	}
	return c
}

// next returns the next record, io.EOF after the last.
func (c *cutter) next() (record, error) {
	for {
		start := c.xml.InputOffset()
		c.kept.forget(start)
		line, _ := c.xml.InputPos()
		token, err := c.token()
		if err != nil {
			return record{}, err
		}
		if e, ok := token.(xml.StartElement); ok && c.isRecord(e) {
			if err := c.end(); err != nil {
				return record{}, err
			}
			return record{fmt.Sprintf("line %d", line), c.kept.upTo(c.xml.InputOffset())}, nil
		}
	}
}

func (c *cutter) isRecord(e xml.StartElement) bool {
	return e.Name.Local == "Placemark" || c.depth == 1 && isGeometry(e.Name.Local)
}

func isGeometry(name string) bool {
	switch name {
	case "Point", "LineString", "LinearRing", "Polygon", "MultiGeometry":
		return true
	}
	return false
}

// isKML reports whether KML can start with this element.
func isKML(name string, depth int) bool {
	switch name {
	case "kml", "Document", "Folder", "Placemark":
		return true
	}
	return depth == 1 && isGeometry(name)
}

// end skips to the end of the open element.
func (c *cutter) end() error {
	for depth := c.depth; c.depth >= depth; {
		if _, err := c.token(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cutter) token() (xml.Token, error) {
	token, err := c.xml.Token()
	switch token := token.(type) {
	case xml.CharData:
		c.isSomething = c.isSomething || len(bytes.TrimSpace(token)) > 0
	case xml.StartElement:
		c.depth++
		c.isSomething = true
		c.isKML = c.isKML || isKML(token.Name.Local, c.depth)
		if c.depth > deepest {
			return nil, fmt.Errorf("elements are nested deeper than %d", deepest)
		}
	case xml.EndElement:
		c.depth--
	}
	return token, err
}

// keeper passes single bytes to the decoder and keeps those since the last forget, which are the
// current record.
type keeper struct {
	in   *bufio.Reader
	buf  []byte
	base int64 // offset of buf in the input
	most int
}

// ReadByte implements io.ByteReader.
func (k *keeper) ReadByte() (byte, error) {
	if len(k.buf) > k.most {
		return 0, tooLong("here", k.most)
	}
	b, err := k.in.ReadByte()
	if err == nil {
		k.buf = append(k.buf, b)
	}
	return b, err
}

// Read implements io.Reader. The decoder does not call it.
func (k *keeper) Read(p []byte) (int, error) {
	n, err := k.in.Read(p)
	k.buf = append(k.buf, p[:n]...)
	return n, err
}

func (k *keeper) forget(before int64) {
	k.buf = slices.Delete(k.buf, 0, int(before-k.base))
	k.base = before
}

func (k *keeper) upTo(offset int64) []byte { return k.buf[:offset-k.base] }
