package layers

import (
	"encoding/json"
	"iter"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// format is the representation of a document.
type format int

// The formats. Protobuf is the default.
const (
	protobuf format = iota
	jsonText
	numFormats
)

var mediaTypes = [numFormats][]byte{[]byte("application/x-protobuf"), []byte("application/json")}

// zone is a time zone in which the layer is built.
type zone struct {
	name        string
	json        []byte       // name, quoted
	proto       []byte       // the field timezone
	until       time.Time    // when it is dropped; zero while a client uses it
	asked       [2]demand    // index 0: the horizons; index 1: the whole layer
	compressors *compressors // shared by all zones
}

// newZone returns a time zone. Its horizons are built in advance as gzipped protobuf, which map
// clients request, so that the first client does not wait.
func newZone(name string, now time.Time, compressors *compressors) *zone {
	z := &zone{name: name, json: quote(name), proto: appendString(nil, 7, name), compressors: compressors}
	z.demand(false).any.note(now)
	z.demand(false).last[protobuf][gzipped].note(now)
	return z
}

// demand returns the demand for the whole layer or for the horizons.
func (z *zone) demand(whole bool) *demand {
	if whole {
		return &z.asked[1]
	}
	return &z.asked[0]
}

// writer serialises pieces. Its fields are scratch memory and results for the last piece.
type writer struct {
	picked      []int   // indexes of periods
	from, until instant // the text is the same for every view.at in [from, until)
	header      []byte
	bare        street  // what is shown of a street without its code
	values      []value // of the text
}

// append appends the streets that the piece shows to dst, which must be empty.
func (w *writer) append(f format, dst []byte, p *piece) []byte {
	w.values = w.values[:0]
	for s, periods := range w.shown(p) {
		if f == protobuf {
			dst = w.appendProto(dst, p.zone, s, periods)
			continue
		}
		if len(dst) > 0 {
			dst = append(dst, ',')
		}
		dst = w.appendJSON(dst, p.zone, s, periods)
	}
	return dst
}

// shown yields the streets that the piece shows, each with the indexes of its periods; both are
// valid until the next iteration. It sets w.from and w.until.
func (w *writer) shown(p *piece) iter.Seq2[*street, []int] {
	return func(yield func(*street, []int) bool) {
		w.from, w.until = -never, never
		for i, s := range p.streets {
			if i >= len(p.streets)-p.bare {
				w.bare = street{id: s.id, label: s.label, periods: s.periods, from: s.from, step: s.step}
				s = &w.bare
			}
			var from, until instant
			w.picked, from, until = p.view.pick(w.picked[:0], s)
			w.from, w.until = max(w.from, from), min(w.until, until)
			if (len(w.picked) > 0 || p.every) && !yield(s, w.picked) {
				return
			}
		}
	}
}

func (w *writer) addValue(dst []byte, from int) {
	w.values = append(w.values, value{from, len(dst)})
}

// appendProto appends an entry of StreetForecastResponse.streetForecast, with the field numbers of
// forecast.proto. It omits zero values, as proto3 does, but always writes speed_valid, because an
// absent one means true.
func (w *writer) appendProto(dst []byte, z *zone, s *street, periods []int) []byte {
	h := appendInt(w.header[:0], 1, s.id.street)
	h = appendInt(h, 2, s.id.fromnode)
	h = appendString(h, 3, s.code)
	w.header = h
	size := len(h)
	for _, i := range periods {
		size += 1 + protowire.SizeBytes(s.periods[i].size(z))
	}
	from := len(dst)
	dst = protowire.AppendVarint(protowire.AppendTag(dst, 1, protowire.BytesType), uint64(size))
	dst = append(dst, h...)
	w.addValue(dst, from)
	for _, i := range periods {
		p := &s.periods[i]
		dst = protowire.AppendVarint(protowire.AppendTag(dst, 4, protowire.BytesType), uint64(p.size(z)))
		times := p.span.Value()
		dst = appendString(dst, 1, times.start)
		dst = appendString(dst, 2, times.end)
		if p.flowValid {
			dst = appendBool(dst, 3, true)
		}
		dst = appendBool(dst, 4, p.speedValid)
		dst = w.appendDouble(dst, 5, p.speed)
		dst = w.appendDouble(dst, 6, p.flow)
		dst = append(dst, z.proto...)
	}
	return dst
}

// size returns the size of the message that appendProto appends for a period.
func (p *period) size(z *zone) int {
	times := p.span.Value()
	size := 1 + protowire.SizeBytes(len(times.start)) + 1 + protowire.SizeBytes(len(times.end)) + 2 + len(z.proto)
	if p.flowValid {
		size += 2
	}
	for _, v := range [...]float64{p.speed, p.flow} {
		if math.Float64bits(v) != 0 {
			size += 9
		}
	}
	return size
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

func (w *writer) appendDouble(dst []byte, field protowire.Number, v float64) []byte {
	if bits := math.Float64bits(v); bits != 0 { // -0 is not omitted
		dst = protowire.AppendFixed64(protowire.AppendTag(dst, field, protowire.Fixed64Type), bits)
		w.addValue(dst, len(dst)-8)
	}
	return dst
}

func appendString(b []byte, field protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// The text around the streets of a JSON document.
const (
	jsonOpen  = `{"streetForecast":[`
	jsonClose = `]}`
)

// appendJSON appends an entry of streetForecast in protobuf's JSON mapping, with proto field names
// and unpopulated fields. It does not use protojson, because its random spaces would make replicas
// serve different bytes.
func (w *writer) appendJSON(dst []byte, z *zone, s *street, periods []int) []byte {
	from := len(dst)
	dst = strconv.AppendInt(append(dst, `{"street":`...), int64(s.id.street), 10)
	dst = strconv.AppendInt(append(dst, `,"fromnode":`...), int64(s.id.fromnode), 10)
	dst = append(append(dst, `,"openLRcode":`...), quote(s.code)...)
	w.addValue(dst, from)
	dst = append(dst, `,"forecast":[`...)
	for n, i := range periods {
		if n > 0 {
			dst = append(dst, ',')
		}
		p := &s.periods[i]
		times := p.span.Value()
		dst = append(append(dst, `{"start":"`...), times.start...) // times need no escaping
		dst = append(append(dst, `","end":"`...), times.end...)
		dst = strconv.AppendBool(append(dst, `","flow_valid":`...), p.flowValid)
		dst = strconv.AppendBool(append(dst, `,"speed_valid":`...), p.speedValid)
		from := len(dst)
		dst = appendNumber(append(dst, `,"speed":`...), p.speed)
		dst = appendNumber(append(dst, `,"flow":`...), p.flow)
		w.addValue(dst, from)
		dst = append(append(dst, `,"timezone":`...), z.json...)
		dst = append(dst, '}')
	}
	return append(dst, `]}`...)
}

// appendNumber appends v in protobuf's JSON mapping, which uses strings for NaN and infinity.
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

func quote(s string) []byte {
	text, _ := json.Marshal(s) // cannot fail for a string
	return text
}
