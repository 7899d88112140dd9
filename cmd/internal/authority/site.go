package authority

import (
	"math"

	"trafficd/schemas/feeds"
	"trafficd/schemas/openlr"
)

// Entry is an entry of the list that trafficd reads as registry.feeds[].http.
type Entry struct {
	DetectorCode string   `json:"detectorCode"`
	Name         string   `json:"name,omitempty"`
	Longitude    *float64 `json:"longitude,omitempty"`
	Latitude     *float64 `json:"latitude,omitempty"`
	Lanes        int      `json:"lanes,omitempty"`
	Side         string   `json:"side,omitempty"`
	OpenLR       string   `json:"openlr,omitempty"`
	Version      string   `json:"version,omitempty"`
}

// EntryOf returns the entry of a site.
func EntryOf(s *feeds.Site) Entry {
	e := Entry{DetectorCode: s.ID, Name: s.Name, Lanes: s.Lanes, Side: s.Side, Version: s.Version}
	if !math.IsNaN(s.Lon) && !math.IsNaN(s.Lat) {
		e.Longitude, e.Latitude = &s.Lon, &s.Lat
	}
	if code, err := openLR(&s.Line); err == nil { // a site without a valid reference is still a site
		e.OpenLR = code
	}
	return e
}

// openLR returns the binary format of a reference in base64, or "" if there is none.
func openLR(l *feeds.Line) (string, error) {
	if len(l.Points) < 2 {
		return "", nil
	}
	first, last := l.Points[0], l.Points[len(l.Points)-2]
	line := openlr.Line{PositiveOffset: part(l.PositiveOffset, first.Len), NegativeOffset: part(l.NegativeOffset, last.Len)}
	for _, p := range l.Points {
		line.Points = append(line.Points, openlr.Point{
			Lon: p.Lon, Lat: p.Lat, Bearing: p.Bearing, Distance: p.Len,
			FRC: openlr.FunctionalRoadClass(p.FRC), FOW: openlr.FormOfWay(p.FOW), LowestFRC: openlr.FunctionalRoadClass(p.LowestFRC),
		})
	}
	return openlr.Encode(line)
}

// part returns an offset in metres as a fraction of the length of a section.
func part(offset, length int) float64 {
	if length == 0 {
		return 0
	}
	return float64(offset) / float64(length)
}
