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

type record struct {
	place string // "line 7"
	data  []byte // valid until the next record
}

// records splits the input into records, each limited to most bytes. An error ends the sequence.
func records(in io.Reader, e Encoding, most int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		in := bufio.NewReader(in)
		switch magic, _ := in.Peek(2); {
		case string(magic) == "\x1f\x8b":
			yield(record{}, errors.New("the input is compressed with gzip; decompress it first, for example with zcat"))
		case e == KML:
			placemarks(in, most)(yield)
		case e != WKB:
			lines(in, most)(yield)
		default:
			data, err := io.ReadAll(io.LimitReader(in, int64(most)+1))
			if err != nil {
				err = fmt.Errorf("cannot read the input: %w", err)
			} else if len(data) > most {
				err = tooLong("the input", most)
			}
			yield(record{"the input", data}, err)
		}
	}
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

// deepest bounds the nesting of elements.
const deepest = 256

var (
	kmlGeometries = []string{"Point", "LineString", "LinearRing", "Polygon", "MultiGeometry"}
	kmlContainers = []string{"kml", "Document", "Folder", "Placemark"}
)

// placemarks splits KML into placemarks and top-level geometries. The input may contain several
// documents.
func placemarks(in io.Reader, most int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		bounded := &boundedReader{Reader: bufio.NewReaderSize(in, 64<<10), most: most}
		d := xml.NewDecoder(bounded)
		d.CharsetReader = func(charset string, _ io.Reader) (io.Reader, error) {
			return nil, fmt.Errorf("unsupported encoding %s; convert the file to UTF-8, for example with iconv", charset)
		}
		depth, isSomething, isKML := 0, false, false
		for {
			bounded.read = 0
			line, _ := d.InputPos()
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				if isSomething && !isKML {
					yield(record{}, errors.New("cannot read KML: no placemark or geometry found; check --from and the file name"))
				}
				return
			}
			var found record
			switch token := token.(type) {
			case xml.CharData:
				isSomething = isSomething || len(bytes.TrimSpace(token)) > 0
			case xml.EndElement:
				depth--
			case xml.StartElement:
				name := token.Name.Local
				isRecord := name == "Placemark" || depth == 0 && slices.Contains(kmlGeometries, name)
				isSomething, isKML = true, isKML || isRecord || slices.Contains(kmlContainers, name)
				if isRecord {
					var content struct {
						XML []byte `xml:",innerxml"`
					}
					err = d.DecodeElement(&content, &token)
					found = record{fmt.Sprintf("line %d", line), fmt.Appendf(nil, "<%s>%s</%[1]s>", name, content.XML)}
				} else if depth++; depth > deepest {
					err = fmt.Errorf("elements are nested deeper than %d", deepest)
				}
			}
			if err != nil {
				line, column := d.InputPos()
				yield(record{}, fmt.Errorf("cannot read KML: line %d, column %d: %w", line, column, err))
				return
			}
			if found.data != nil && !yield(found, nil) {
				return
			}
		}
	}
}

// boundedReader bounds the number of bytes between two resets of read. The XML decoder only calls
// ReadByte.
type boundedReader struct {
	*bufio.Reader
	read, most int
}

func (b *boundedReader) ReadByte() (byte, error) {
	if b.read++; b.read > b.most {
		return 0, tooLong("here", b.most)
	}
	return b.Reader.ReadByte()
}
