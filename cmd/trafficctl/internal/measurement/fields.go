// Package measurement defines one measurement on its way to the daemon, as JSON (contract 5.1). Packages feed
// and generate produce items, package send consumes them; none of the three imports another.
package measurement

import "time"

// Names of the members of a measurement (contract 5.1).
const (
	DetectorCode    = "detectorCode"
	MeasureTypeCode = "measureTypeCode"
	TimestampFrom   = "timestampFrom"
	TimestampTo     = "timestampTo"
	Value           = "value"
	Quality         = "quality"
)

// Fields are the members of one measurement. The byte slices hold JSON text without quotes.
type Fields struct {
	Detector string // any valid UTF-8
	Type     string // any valid UTF-8
	From, To []byte // see AppendTime
	Value    []byte // a JSON number
	Quality  []byte // a JSON number, or empty
}

// AppendJSON appends the measurement as a JSON object.
func (f *Fields) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"detectorCode":`...)
	dst = AppendString(dst, f.Detector)
	dst = append(dst, `,"measureTypeCode":`...)
	dst = AppendString(dst, f.Type)
	dst = append(dst, `,"timestampFrom":"`...)
	dst = append(dst, f.From...)
	dst = append(dst, `","timestampTo":"`...)
	dst = append(dst, f.To...)
	dst = append(dst, `","value":`...)
	dst = append(dst, f.Value...)
	if len(f.Quality) > 0 {
		dst = append(dst, `,"quality":`...)
		dst = append(dst, f.Quality...)
	}
	return append(dst, '}')
}

// AppendTime appends t in UTC as RFC 3339, with a fraction only if it has one.
func AppendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, time.RFC3339Nano)
}

// AppendString appends s as a JSON string. s must be valid UTF-8.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscape(dst, c)
		start = i + 1
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	if c == '"' || c == '\\' {
		return append(dst, '\\', c)
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
