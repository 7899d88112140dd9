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

// deepest bounds how deep elements lie in one another.
const deepest = 256

// placemarks cuts KML into its placemarks, and geometries that are documents of
// their own. Several documents may follow one another.
func placemarks(in io.Reader, most int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		c := newCutter(in, most)
		for {
			r, err := c.next()
			if errors.Is(err, io.EOF) {
				if !c.isKML && c.isSomething {
					yield(record{}, errors.New("cannot read KML: no placemark and no geometry is in it: is it KML, as --from or the name of the file says?"))
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

// cutter follows the elements, and keeps the bytes of the record under way.
type cutter struct {
	xml   *xml.Decoder
	kept  *keeper
	depth int

	isSomething bool // there is more than blanks
	isKML       bool // there is an element that KML has
}

func newCutter(in io.Reader, most int) *cutter {
	kept := &keeper{in: bufio.NewReaderSize(in, 64<<10), most: most}
	c := &cutter{xml: xml.NewDecoder(kept), kept: kept}
	c.xml.CharsetReader = func(charset string, _ io.Reader) (io.Reader, error) {
		return nil, fmt.Errorf("it is in %s: convert it to UTF-8, as with iconv", charset)
	}
	return c
}

// next gives the next record, io.EOF behind the last.
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

// isKML knows the elements that KML begins with.
func isKML(name string, depth int) bool {
	switch name {
	case "kml", "Document", "Folder", "Placemark":
		return true
	}
	return depth == 1 && isGeometry(name)
}

// end passes over all up to the end of the element that has been opened.
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
			return nil, fmt.Errorf("elements deeper than %d", deepest)
		}
	case xml.EndElement:
		c.depth--
	}
	return token, err
}

// keeper hands the decoder a byte at a time, and keeps those since the last
// forget, so that a record can be had as it stands.
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

// Read implements io.Reader; the decoder does not use it.
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
