package feed

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-faster/jx"

	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/schemas/contract"
)

// eachRecord reads CSV. The first row is the header unless the column names are configured.
func (s *Source) eachRecord(yield yieldFunc) error {
	mapping := DefaultMapping()
	if s.cfg.Mapping != nil {
		mapping = *s.cfg.Mapping
	}
	header := s.cfg.Columns
	r := s.newReader(mapping)
	r.FieldsPerRecord = len(header) // 0: as many as the first row has
	if len(header) == 0 {
		record, err := r.Read()
		if errors.As(err, new(*csv.ParseError)) {
			return fmt.Errorf("%w; check --format and --separator", err)
		}
		if err != nil {
			return ignoreEOF(err) // an empty file has no measurements
		}
		header = slices.Clone(record)
	}
	columns, err := mapping.bind(header)
	if err != nil {
		return err
	}
	a := newAssembler(mapping, &s.Counts)
	cells := make([]string, len(columns))
	for row := int64(1); ; row++ {
		s.row.left = MaxRow
		record, err := r.Read()
		var fault *csv.ParseError
		bad := errors.As(err, &fault) && !errors.Is(err, io.EOF) // encoding/csv continues with the next line
		switch {
		case err != nil && !bad:
			return ignoreEOF(err)
		case row <= s.cfg.SkipRows:
			continue
		case (!bad || errors.Is(err, csv.ErrFieldCount)) && isBlank(record):
			s.Blank++
			continue
		case bad:
			reason := fault.Err
			if errors.Is(err, csv.ErrFieldCount) {
				reason = fmt.Errorf("number of columns %d, in the rows before %d", len(record), r.FieldsPerRecord)
			}
			err = yieldRowError(yield, measurement.Position{Row: row, Line: int64(fault.StartLine)}, reason)
		default:
			for i, column := range columns {
				cells[i] = ""
				if column >= 0 {
					cells[i] = record[column]
				}
			}
			line, _ := r.FieldPos(0)
			err = a.emit(cells, measurement.Position{Row: row, Line: int64(line)}, yield)
		}
		if err != nil {
			return err
		}
	}
}

// newReader returns a reader of the rows, without the line sep=; that spreadsheets write to name
// their separator. If none is set, it is detected from the first line.
func (s *Source) newReader(m Mapping) *csv.Reader {
	line := s.firstLine()
	separator := s.cfg.Separator
	text, marked := strings.CutPrefix(strings.TrimRight(string(line), "\r\n"), "sep=")
	named, size := utf8.DecodeRuneInString(text)
	marked = marked && size > 0 && size == len(text)
	switch {
	case separator != 0:
	case marked:
		separator = named
	default:
		separator = separatorOf(line, m, s.cfg.Columns)
	}
	var in io.Reader = s.text
	if marked {
		s.Blank++
		_, _ = s.text.Discard(len(line))                     // buffered
		in = io.MultiReader(strings.NewReader("\n"), s.text) // keeps the numbers of the lines
	}
	r := csv.NewReader(in)
	r.Comma, r.ReuseRecord = separator, true
	return r
}

// firstLine returns the first line with its line break, without consuming it, or the start of a
// line that does not fit into the buffer.
func (s *Source) firstLine() []byte {
	for n := 1 << 9; ; n *= 2 {
		text, err := s.text.Peek(min(n, s.text.Size()))
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			return text[:end+1]
		}
		if err != nil || n >= s.text.Size() {
			return text
		}
	}
}

// separatorOf returns the separator with which the first line has the columns that m needs, or as
// many as columns; failing that, the one that divides it most.
func separatorOf(line []byte, m Mapping, columns []string) rune {
	best, most := ',', 1
	for _, c := range []rune{',', ';', '\t', '|'} {
		r := csv.NewReader(bytes.NewReader(line))
		r.Comma = c
		cells, err := r.Read()
		if err != nil {
			continue
		}
		found := len(cells) == len(columns)
		if len(columns) == 0 && !m.Wide {
			_, err := m.bind(cells)
			found = err == nil
		}
		if found {
			return c
		}
		if len(cells) > most {
			best, most = c, len(cells)
		}
	}
	return best
}

func isBlank(record []string) bool {
	return record != nil && !slices.ContainsFunc(record, func(cell string) bool { return strings.TrimSpace(cell) != "" })
}

// bind returns, for each cell, the index of its column in header, or -1 if it has none. For a wide
// table, it also sets m.detectors.
func (m *Mapping) bind(header []string) ([]int, error) {
	for i, name := range header {
		if header[i] = strings.TrimSpace(name); !utf8.ValidString(name) {
			return nil, fmt.Errorf("the header %q is not valid UTF-8; %s", header, toUTF8)
		}
	}
	if m.Wide {
		return m.bindWide(header)
	}
	names := m.names()
	columns := make([]int, len(names))
	for i, name := range names {
		columns[i] = slices.Index(header, name)
		if name == "" {
			columns[i] = -1
		} else if columns[i] < 0 && !(i == cellQuality && m.QualityOptional) {
			return nil, fmt.Errorf("no column %q; the columns are %q; trafficctl send --sniff FILE prints the flags for them; "+
				"or set --detector, --from, --melt and so on (see --help), or check --separator", name, header)
		}
	}
	return columns, nil
}

func (m *Mapping) bindWide(header []string) ([]int, error) {
	timeColumn := 0
	if m.From != "" {
		timeColumn = slices.Index(header, m.From)
	}
	if timeColumn < 0 {
		return nil, fmt.Errorf("no column %q; set --from to the time column", m.From)
	}
	columns := []int{-1, -1, timeColumn, -1, -1}
	for i, name := range header {
		if i == timeColumn {
			continue
		}
		if name == "" || slices.Contains(m.detectors, name) {
			return nil, fmt.Errorf("column %d of the header must be a unique detector code, but is %q", i+1, name)
		}
		m.detectors = append(m.detectors, name)
		columns = append(columns, i)
	}
	if len(m.detectors) == 0 {
		return nil, errors.New("the header contains no detector code; check --separator")
	}
	return columns, nil
}

// eachLine reads NDJSON: one measurement per line. It skips blank lines.
func (s *Source) eachLine(yield yieldFunc) error {
	objects := s.newObjects(yield)
	position := measurement.Position{}
	for {
		s.row.left = MaxRow
		line, err := ReadLine(s.text, 2*MaxRow) // never exceeded: s.row's limit is lower
		if err != nil {
			return ignoreEOF(err)
		}
		position.Line++
		if len(line) == 0 {
			continue
		}
		if position.Row++; position.Row <= s.cfg.SkipRows {
			continue
		}
		if err := objects.emit(line, position); err != nil {
			return err
		}
	}
}

// ReadLine returns the next line, trimmed, or io.EOF after the last one. The line is valid until
// the next call. A line longer than limit bytes is an error.
func ReadLine(r *bufio.Reader, limit int) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(line) <= limit {
			var more []byte
			more, err = r.ReadSlice('\n')
			line = append(line, more...)
		}
	}
	if len(line) > limit {
		return nil, fmt.Errorf("the line is longer than %d bytes; check that the file has the right format", limit)
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	return bytes.TrimSpace(line), err
}

// eachElement reads {"measurements":[…]} or […].
func (s *Source) eachElement(yield yieldFunc) error {
	objects := s.newObjects(yield)
	d := jx.Decode(s.text, 64<<10)
	position := measurement.Position{}
	element := func(d *jx.Decoder) error {
		s.row.left = MaxRow
		raw, err := d.Raw()
		if err != nil {
			return err
		}
		if position.Row++; position.Row <= s.cfg.SkipRows {
			return nil
		}
		return objects.emit(raw, position)
	}
	err := errors.New(`the input must be {"measurements":[…]} or […]; use --format for NDJSON or CSV`)
	switch d.Next() {
	case jx.Array:
		err = d.Arr(element)
	case jx.Object:
		found := false
		err = d.Obj(func(d *jx.Decoder, key string) error {
			if key != "measurements" {
				return d.Skip()
			}
			found = true
			return d.Arr(element)
		})
		if err == nil && !found {
			err = errors.New(`no member "measurements"; use --format ndjson for one object per line`)
		}
	}
	if err == nil && !atEnd(d) {
		err = errors.New("data follows the JSON value; use --format ndjson for one object per line")
	}
	if err != nil && position.Row > 0 {
		return fmt.Errorf("after item %d: %w", position.Row, withoutPath(err))
	}
	return withoutPath(err)
}

var jxPath = regexp.MustCompile(`^(callback|skip|object|array): `)

// withoutPath returns an error of jx without the path of calls before it, such as "callback: skip:
// ".
func withoutPath(err error) error {
	for errors.Unwrap(err) != nil && jxPath.MatchString(err.Error()) {
		err = errors.Unwrap(err)
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// atEnd reports whether only white space follows. Next alone does not detect an incomplete value.
func atEnd(d *jx.Decoder) bool { return d.Next() == jx.Invalid && errors.Is(d.Skip(), io.EOF) }

// fromRejected is the advice for a line that trafficctl resubmit cannot read.
const fromRejected = "use a file written by trafficctl send --rejected"

// objects converts JSON values to items, with a mapping or unchanged.
type objects struct {
	yield  yieldFunc
	member string
	d      *jx.Decoder
	names  []string   // member name for each cell; without a mapping, only that of the detector code
	cells  []string   // of the current value
	build  *assembler // nil without a mapping
}

func (s *Source) newObjects(yield yieldFunc) *objects {
	o := &objects{yield: yield, member: s.cfg.Member, d: jx.DecodeBytes(nil), names: []string{contract.FieldDetectorCode.String()}}
	if m := s.cfg.Mapping; m != nil {
		o.names, o.build = m.names(), newAssembler(*m, &s.Counts)
	}
	o.cells = make([]string, len(o.names))
	return o
}

func (o *objects) emit(raw []byte, position measurement.Position) error {
	item := raw
	if o.member != "" {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return yieldRowError(o.yield, position, errors.New("not a JSON object; "+fromRejected))
		}
		if item = members[o.member]; item == nil {
			return yieldRowError(o.yield, position, fmt.Errorf("no member %q; "+fromRejected, o.member))
		}
	}
	err := o.read(item)
	switch {
	case err != nil:
		return yieldRowError(o.yield, position, err)
	case o.build != nil:
		return o.build.emit(o.cells, position, o.yield)
	case !o.yield(measurement.Item{JSON: item, Detector: o.cells[0], Position: position}, nil):
		return errStopped
	}
	return nil
}

// read validates the JSON of an item and extracts the cells.
func (o *objects) read(item []byte) (err error) {
	// jx accepts invalid UTF-8 and lone surrogates, for which the daemon rejects the whole batch.
	if !utf8.Valid(item) {
		return errors.New("invalid UTF-8; " + toUTF8)
	}
	if hasLoneSurrogate(item) {
		return errors.New(`lone surrogate in a \u escape`)
	}
	clear(o.cells)
	o.d.ResetBytes(item)
	switch {
	case o.d.Next() == jx.Object:
		err = o.d.ObjBytes(o.readMember)
	case o.build != nil:
		return errors.New("not a JSON object")
	default:
		err = o.d.Skip() // the daemon rejects the item
	}
	if err == nil && !atEnd(o.d) {
		err = errors.New("data follows the value on the same line")
	}
	if err != nil {
		return fmt.Errorf("invalid JSON: %w", withoutPath(err))
	}
	return nil
}

func (o *objects) readMember(d *jx.Decoder, key []byte) (err error) {
	name := string(key)
	if name == "" || !slices.Contains(o.names, name) {
		return d.Skip()
	}
	text := "" // as in a CSV cell
	kind := d.Next()
	switch kind {
	case jx.String:
		text, err = d.Str()
	case jx.Null:
		err = d.Null()
	default: // only a number is of use; anything else must not seem empty
		var raw jx.Raw
		raw, err = d.Raw()
		text = string(raw)
	}
	for i := range o.names {
		if o.names[i] != name {
			continue
		}
		o.cells[i] = text
		if kind == jx.Number && i >= cellQuality && o.build.mapping.Decimal == ',' { // JSON numbers always have points
			o.cells[i] = swapSeparators.Replace(text)
		}
	}
	return err
}

// escapes matches an escape sequence or a surrogate pair. The group matches only a lone surrogate.
var escapes = regexp.MustCompile(`\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)`)

func hasLoneSurrogate(item []byte) bool {
	return bytes.Contains(item, []byte(`\u`)) &&
		slices.ContainsFunc(escapes.FindAllSubmatchIndex(item, -1), func(at []int) bool { return at[2] >= 0 })
}
