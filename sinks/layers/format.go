package layers

import (
	"encoding/json"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// format is the serialization of a document.
type format int

// The formats. Protobuf is the default.
const (
	protobuf format = iota
	jsonText
	formats
)

var mediaTypes = [formats][]byte{[]byte("application/x-protobuf"), []byte("application/json")}

// writer appends streets to a document. It holds scratch memory and is for one goroutine.
type writer struct {
	zone     string
	zoneJSON []byte // zone, quoted
	message  []byte
	inner    []byte
}

func newWriter(zone string) *writer {
	return &writer{zone: zone, zoneJSON: quote(zone)}
}

func (w *writer) append(f format, dst []byte, s *street, periods []*period) []byte {
	if f == jsonText {
		return w.appendJSON(dst, s, periods)
	}
	return w.appendProto(dst, s, periods)
}

// appendProto appends an entry of StreetForecastResponse.streetForecast, with the field numbers of
// forecast.proto. proto3 omits zero values except that of speed_valid, whose absence would mean true.
func (w *writer) appendProto(dst []byte, s *street, periods []*period) []byte {
	m := appendInt(w.message[:0], 1, s.id.street)
	m = appendInt(m, 2, s.id.fromnode)
	m = appendString(m, 3, s.code)
	for _, p := range periods {
		in := appendString(w.inner[:0], 1, p.start.Value())
		in = appendString(in, 2, p.end.Value())
		if p.flowValid {
			in = appendBool(in, 3, true)
		}
		in = appendBool(in, 4, p.speedValid)
		in = appendDouble(in, 5, p.speed)
		in = appendDouble(in, 6, p.flow)
		in = appendString(in, 7, w.zone)
		m = protowire.AppendBytes(protowire.AppendTag(m, 4, protowire.BytesType), in)
		w.inner = in
	}
	w.message = m
	return protowire.AppendBytes(protowire.AppendTag(dst, 1, protowire.BytesType), m)
}

func appendInt(b []byte, field protowire.Number, v int32) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

func appendBool(b []byte, field protowire.Number, v bool) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), protowire.EncodeBool(v))
}

func appendDouble(b []byte, field protowire.Number, v float64) []byte {
	if bits := math.Float64bits(v); bits != 0 { // -0 is not omitted
		return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), bits)
	}
	return b
}

func appendString(b []byte, field protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// What encloses the streets of a JSON document.
const (
	jsonOpen  = `{"streetForecast":[`
	jsonClose = `]}`
)

// appendJSON appends an entry of streetForecast in protobuf's JSON mapping with proto names and
// unpopulated fields. protojson inserts random blanks on purpose, so that replicas could not agree on
// ETags.
func (w *writer) appendJSON(dst []byte, s *street, periods []*period) []byte {
	dst = strconv.AppendInt(append(dst, `{"street":`...), int64(s.id.street), 10)
	dst = strconv.AppendInt(append(dst, `,"fromnode":`...), int64(s.id.fromnode), 10)
	dst = append(append(dst, `,"openLRcode":`...), quote(s.code)...)
	dst = append(dst, `,"forecast":[`...)
	for i, p := range periods {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, `{"start":"`...), p.start.Value()...) // times need no escapes
		dst = append(append(dst, `","end":"`...), p.end.Value()...)
		dst = strconv.AppendBool(append(dst, `","flow_valid":`...), p.flowValid)
		dst = strconv.AppendBool(append(dst, `,"speed_valid":`...), p.speedValid)
		dst = appendNumber(append(dst, `,"speed":`...), p.speed)
		dst = appendNumber(append(dst, `,"flow":`...), p.flow)
		dst = append(append(dst, `,"timezone":`...), w.zoneJSON...)
		dst = append(dst, '}')
	}
	return append(dst, `]}`...)
}

// appendNumber appends a number in protobuf's JSON mapping, which has strings for NaN and infinity.
func appendNumber(dst []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	}
	form := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		form = 'e'
	}
	return strconv.AppendFloat(dst, v, form, -1, 64)
}

// quote returns a JSON string.
func quote(s string) []byte {
	text, _ := json.Marshal(s) // cannot fail for a string
	return text
}
