package generate

import (
	"bufio"
	"io"
	"strings"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// WriteNDJSON writes one measurement a line, faults included, and tells how
// many.
func (n *Network) WriteNDJSON(w io.Writer) (items int64, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	for item, err := range n.Items() {
		if err != nil {
			return items, err
		}
		if _, err := out.Write(item.JSON); err != nil {
			return items, err
		}
		if err := out.WriteByte('\n'); err != nil {
			return items, err
		}
		items++
	}
	return items, out.Flush()
}

// WriteCSV writes a table whose columns are named like the members. It has no
// faults: most kinds cannot be said in CSV.
func (n *Network) WriteCSV(w io.Writer) (items int64, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	out.WriteString(strings.Join([]string{
		measurement.DetectorCode, measurement.MeasureTypeCode, measurement.TimestampFrom,
		measurement.TimestampTo, measurement.Value, measurement.Quality,
	}, ",") + "\n")
	var line []byte
	for f := range n.Samples() {
		line = appendCSV(line[:0], f)
		if _, err := out.Write(line); err != nil {
			return items, err
		}
		items++
	}
	return items, out.Flush()
}

// appendCSV: none of the cells made here needs quotes.
func appendCSV(dst []byte, f *measurement.Fields) []byte {
	dst = append(append(dst, f.Detector...), ',')
	dst = append(append(dst, f.Type...), ',')
	dst = append(append(dst, f.From...), ',')
	dst = append(append(dst, f.To...), ',')
	dst = append(append(dst, f.Value...), ',')
	dst = append(dst, f.Quality...)
	return append(dst, '\n')
}
