package feeds

import (
	"io"
	"strings"
	"time"

	"trafficd/schemas/feeds/xmlstream"
)

// hongKong reads the speed, volume and occupancy of the strategic roads of Hong Kong, in several
// periods of usually 30 s.
//
//	date
//	periods / period
//	  period_from, period_to           time of day
//	  detectors / detector
//	    detector_id
//	    lanes / lane
//	      lane_id, speed, occupancy, volume (vehicles in the period), valid
type hongKong struct {
	*parser
	date, from, to, site string
	last                 time.Time // beginning of the period before, as if it were UTC
	at                   stamp
	started              bool // at is that of the current period
	lane                 map[string]string
}

func parseHongKong(p *parser, in io.Reader) error {
	h := &hongKong{parser: p, lane: map[string]string{}}
	return p.walk(in, []string{"raw_speed_volume_list", "period"}, h.start, h.end)
}

func (h *hongKong) start(x *xmlstream.Reader) {
	switch string(x.Name()) {
	case "period":
		h.from, h.to, h.started = "", "", false
	case "detector":
		h.site = ""
		if !h.started {
			h.started = true
			h.at = h.period()
		}
	case "lane":
		clear(h.lane)
	}
}

func (h *hongKong) end(x *xmlstream.Reader) {
	text := string(x.Text())
	switch name := string(x.Name()); name {
	case "date":
		h.date = text
	case "period_from":
		h.from = text
	case "period_to":
		h.to = text
	case "detector_id":
		h.site = text
	case "detector":
		h.finish(h.site, h.at)
	case "lane_id", "speed", "occupancy", "volume", "valid":
		h.lane[name] = text
	case "lane":
		h.endLane()
	}
}

func (h *hongKong) endLane() {
	perHour := 0.0 // without a period, the value has no time and is a fault
	if length := h.at.to.Sub(h.at.from); length > 0 {
		perHour = float64(time.Hour) / float64(length)
	}
	for _, column := range []struct {
		name    string
		measure Measure
		factor  float64
	}{{"speed", Speed, 1}, {"occupancy", Occupancy, 1}, {"volume", Flow, perHour}} {
		v := h.read(column.measure, []byte(h.lane[column.name]), '.', column.factor)
		// Fast Lane, Middle Lane 2
		v.lane = strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(h.lane["lane_id"]), " lane", ""), " ", "")
		if h.lane["valid"] != "Y" {
			v.reason = Equipment
		}
	}
}

// period returns the interval of the current period. The document has one date. If a period begins
// earlier in the day than the one before, it is on the next day.
func (h *hongKong) period() stamp {
	const day = 24 * time.Hour
	from, errFrom := time.Parse(time.DateTime, h.date+" "+h.from)
	to, errTo := time.Parse(time.DateTime, h.date+" "+h.to)
	if errFrom != nil || errTo != nil || h.Zone == nil {
		return stamp{stated: true}
	}
	if h.last.IsZero() {
		h.last = h.published(from)
	}
	for from.Before(h.last.Add(-day / 2)) {
		from, to = from.Add(day), to.Add(day)
	}
	for from.After(h.last.Add(day / 2)) {
		from, to = from.Add(-day), to.Add(-day)
	}
	if to.Before(from) {
		to = to.Add(day)
	}
	h.last = from
	return stamp{stated: true, from: h.resolve(from).UTC(), to: h.resolve(to).UTC()}
}

// published returns the beginning of the first period. If the document was written after midnight,
// its date is not that of a period that ended before, and the other way round. Only when it was
// published tells this apart from a document that is a day old.
func (h *hongKong) published(from time.Time) time.Time {
	const day = 24 * time.Hour
	for _, shift := range []time.Duration{-day, day} {
		if !h.Modified.IsZero() && h.Modified.Sub(h.resolve(from.Add(shift))).Abs() < 10*time.Minute {
			return from.Add(shift)
		}
	}
	return from
}
