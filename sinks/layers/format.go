package layers

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

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

// zone is a time zone in which the layer is built.
type zone struct {
	name        string
	json        []byte       // name, quoted
	until       time.Time    // when it is dropped; zero: it is in use
	asked       [2]*demand   // of the horizons, of the whole layer
	compressors *compressors // shared by all zones
}

func newZone(name string, now time.Time, compressors *compressors) *zone {
	return &zone{name: name, json: quote(name), asked: [2]*demand{newDemand(now), newDemand(now)}, compressors: compressors}
}

// demand returns which forms of a scope's documents clients ask for.
func (z *zone) demand(whole bool) *demand {
	if whole {
		return z.asked[1]
	}
	return z.asked[0]
}

// writer appends streets to a document. It is scratch memory.
type writer struct {
	picked  []*period
	message []byte
	inner   []byte
}

// append appends what the piece shows.
func (w *writer) append(f format, dst []byte, p *piece) []byte {
	start := len(dst)
	for _, s := range p.streets {
		if w.picked, _ = p.view.pick(w.picked[:0], s); len(w.picked) == 0 && !p.every {
			continue
		}
		if f == protobuf {
			dst = w.appendProto(dst, p.zone, s, w.picked)
			continue
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = w.appendJSON(dst, p.zone, s, w.picked)
	}
	return dst
}

// appendProto appends an entry of StreetForecastResponse.streetForecast, with the field numbers of
// forecast.proto. proto3 omits zero values except that of speed_valid, whose absence would mean true.
func (w *writer) appendProto(dst []byte, z *zone, s *street, periods []*period) []byte {
	m := appendInt(w.message[:0], 1, s.id.street)
	m = appendInt(m, 2, s.id.fromnode)
	m = appendString(m, 3, s.code)
	for _, p := range periods {
		times := p.span.Value()
		in := appendString(w.inner[:0], 1, times.start)
		in = appendString(in, 2, times.end)
		if p.flowValid {
			in = appendBool(in, 3, true)
		}
		in = appendBool(in, 4, p.speedValid)
		in = appendDouble(in, 5, p.speed)
		in = appendDouble(in, 6, p.flow)
		in = appendString(in, 7, z.name)
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
func (w *writer) appendJSON(dst []byte, z *zone, s *street, periods []*period) []byte {
	dst = strconv.AppendInt(append(dst, `{"street":`...), int64(s.id.street), 10)
	dst = strconv.AppendInt(append(dst, `,"fromnode":`...), int64(s.id.fromnode), 10)
	dst = append(append(dst, `,"openLRcode":`...), quote(s.code)...)
	dst = append(dst, `,"forecast":[`...)
	for i, p := range periods {
		if i > 0 {
			dst = append(dst, ',')
		}
		times := p.span.Value()
		dst = append(append(dst, `{"start":"`...), times.start...) // times need no escapes
		dst = append(append(dst, `","end":"`...), times.end...)
		dst = strconv.AppendBool(append(dst, `","flow_valid":`...), p.flowValid)
		dst = strconv.AppendBool(append(dst, `,"speed_valid":`...), p.speedValid)
		dst = appendNumber(append(dst, `,"speed":`...), p.speed)
		dst = appendNumber(append(dst, `,"flow":`...), p.flow)
		dst = append(append(dst, `,"timezone":`...), z.json...)
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
