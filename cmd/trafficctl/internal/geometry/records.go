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
	position string // such as "line 7"
	data     []byte // valid until the next record
}

// records splits the input into records of at most limit bytes each. An error ends the sequence.
func records(in io.Reader, e Encoding, limit int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		switch e {
		case KML:
			placemarks(in, limit)(yield)
		case WKB:
			data, err := io.ReadAll(io.LimitReader(in, int64(limit)+1))
			if err == nil && len(data) > limit {
				err = tooLong(limit)
			}
			if err != nil {
				err = fmt.Errorf("cannot read the input: %w", err)
			}
			yield(record{"the input", data}, err)
		default:
			lines(in, limit)(yield)
		}
	}
}

func tooLong(limit int) error {
	return fmt.Errorf("a geometry exceeds %d bytes; increase --max-bytes", limit)
}

// lines splits the input into lines and skips blank ones.
func lines(in io.Reader, limit int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		scanner := bufio.NewScanner(in)
		scanner.Buffer(make([]byte, 0, min(64<<10, limit)), limit)
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
			yield(record{}, fmt.Errorf("line %d: %w", n+1, tooLong(limit)))
		case err != nil:
			yield(record{}, fmt.Errorf("cannot read the input after line %d: %w", n, err))
		}
	}
}

const maxDepth = 256

var (
	kmlGeometries = []string{"Point", "LineString", "LinearRing", "Polygon", "MultiGeometry"}
	kmlContainers = []string{"kml", "Document", "Folder", "Placemark"}
)

// placemarks splits KML into placemarks and top-level geometries. The input may contain several
// documents.
func placemarks(in io.Reader, limit int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		bounded := &boundedReader{Reader: bufio.NewReaderSize(in, 64<<10), limit: limit}
		d := xml.NewDecoder(bounded)
		d.CharsetReader = func(charset string, _ io.Reader) (io.Reader, error) {
			return nil, fmt.Errorf("unsupported encoding %s; convert the file to UTF-8, for example with iconv", charset)
		}
		depth, hasContent, isKML, hasRecord := 0, false, false, false
		for {
			bounded.read = 0
			line, _ := d.InputPos()
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				if hasContent && !hasRecord {
					yield(record{}, noRecord(isKML))
				}
				return
			}
			var found record
			switch token := token.(type) {
			case xml.CharData:
				hasContent = hasContent || len(bytes.TrimSpace(token)) > 0
			case xml.EndElement:
				depth--
			case xml.StartElement:
				name := token.Name.Local
				isRecord := name == "Placemark" || depth == 0 && slices.Contains(kmlGeometries, name)
				hasContent, isKML = true, isKML || isRecord || slices.Contains(kmlContainers, name)
				hasRecord = hasRecord || isRecord
				if isRecord {
					var content struct {
						XML []byte `xml:",innerxml"`
					}
					err = d.DecodeElement(&content, &token)
					found = record{fmt.Sprintf("line %d", line), fmt.Appendf(nil, "<%s>%s</%[1]s>", name, content.XML)}
				} else if depth++; depth > maxDepth {
					err = fmt.Errorf("elements are nested deeper than %d", maxDepth)
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

// noRecord returns the error for an input without placemarks and geometries.
func noRecord(isKML bool) error {
	if !isKML {
		return errors.New("cannot read KML: no placemark or geometry found; check --from and the file name")
	}
	return errors.New("cannot read KML: it has no placemark; a file with only a NetworkLink or overlays has no geometries")
}

// boundedReader fails once more than limit bytes have been read since read was last set to 0. It
// overrides only ReadByte, the one method that the XML decoder calls.
type boundedReader struct {
	*bufio.Reader
	read, limit int
}

func (b *boundedReader) ReadByte() (byte, error) {
	if b.read++; b.read > b.limit {
		return 0, tooLong(b.limit)
	}
	return b.Reader.ReadByte()
}
