package layers

import (
	"encoding/json"
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
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

// appendText appends the streets that the piece shows to dst, which must be empty.
func (p *piece) appendText(dst []byte, f format) []byte {
	var picked []int
	var scratch []*pb.ForecastPeriod
	for _, s := range p.streets {
		if picked, _, _ = p.view.pick(picked, s); len(picked) == 0 && !p.every {
			continue
		}
		if f == protobuf {
			dst = appendProto(dst, p.zone, s, picked, p.view.all, &scratch)
			continue
		}
		if len(dst) > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSON(dst, p.zone, s, picked, p.view.all)
	}
	return dst
}

// appendProto appends an entry of StreetForecastResponse.streetForecast. Responses with one entry
// each, one after the other, are a response with all entries. scratch is reused for each street.
func appendProto(dst []byte, z *zone, s *street, periods []int, all bool, scratch *[]*pb.ForecastPeriod) []byte {
	for len(*scratch) < len(periods) {
		*scratch = append(*scratch, &pb.ForecastPeriod{Timezone: z.name})
	}
	for n, i := range periods {
		p, m := &s.periods[i], (*scratch)[n]
		times := p.span.Value()
		m.Start, m.End, m.FlowValid, m.SpeedValid, m.Speed, m.Flow = times.start, times.end, p.flowValid, &p.speedValid, p.speed, p.flow
		if all {
			m.SpeedLow, m.SpeedHigh, m.Basis, m.Closed = known(&p.low), known(&p.high), nil, nil
			if basis := p.basis.Value(); basis != "" {
				m.Basis = &basis
			}
			if p.closedKnown {
				m.Closed = &p.closed
			}
		}
	}
	entry := &pb.StreetForecast{Street: s.id.street, Fromnode: s.id.fromnode, OpenLRcode: s.code, Forecast: (*scratch)[:len(periods)]}
	if all && s.length > 0 {
		entry.Length = &s.length
	}
	if all && s.freeFlow > 0 {
		entry.FreeFlowSpeed = &s.freeFlow
	}
	response := &pb.StreetForecastResponse{StreetForecast: []*pb.StreetForecast{entry}}
	dst, _ = proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, response) // fails only if a text is not UTF-8, which feeds reject
	return dst
}

// known returns v, or nil if it is NaN.
func known(v *float64) *float64 {
	if math.IsNaN(*v) {
		return nil
	}
	return v
}

// The text around the streets of a JSON document.
const (
	jsonOpen  = `{"streetForecast":[`
	jsonClose = `]}`
)

// appendJSON appends an entry of streetForecast in protobuf's JSON mapping, with proto field names
// and unpopulated fields. It does not use protojson, because its random spaces would make replicas
// serve different bytes.
func appendJSON(dst []byte, z *zone, s *street, periods []int, all bool) []byte {
	dst = strconv.AppendInt(append(dst, `{"street":`...), int64(s.id.street), 10)
	dst = strconv.AppendInt(append(dst, `,"fromnode":`...), int64(s.id.fromnode), 10)
	code, _ := json.Marshal(s.code) // cannot fail for a string
	dst = append(append(dst, `,"openLRcode":`...), code...)
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
		dst = appendNumber(append(dst, `,"speed":`...), p.speed)
		dst = appendNumber(append(dst, `,"flow":`...), p.flow)
		dst = append(append(dst, `,"timezone":"`...), z.name...) // names of time zones need none either
		dst = append(dst, '"')
		if all {
			dst = p.appendOptional(dst)
		}
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	if all && s.length > 0 {
		dst = appendNumber(append(dst, `,"length":`...), s.length)
	}
	if all && s.freeFlow > 0 {
		dst = appendNumber(append(dst, `,"free_flow_speed":`...), s.freeFlow)
	}
	return append(dst, '}')
}

// appendOptional appends the optional members that are known.
func (p *period) appendOptional(dst []byte) []byte {
	if !math.IsNaN(p.low) {
		dst = appendNumber(append(dst, `,"speed_low":`...), p.low)
	}
	if !math.IsNaN(p.high) {
		dst = appendNumber(append(dst, `,"speed_high":`...), p.high)
	}
	if basis := p.basis.Value(); basis != "" { // feeds have checked that it needs no escaping
		dst = append(append(append(dst, `,"basis":"`...), basis...), '"')
	}
	if p.closedKnown {
		dst = strconv.AppendBool(append(dst, `,"closed":`...), p.closed)
	}
	return dst
}

// appendNumber appends a finite number as protobuf's JSON mapping does.
func appendNumber(dst []byte, v float64) []byte {
	form := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		form = 'e'
	}
	return strconv.AppendFloat(dst, v, form, -1, 64)
}
