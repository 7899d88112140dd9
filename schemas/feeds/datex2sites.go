package feeds

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"trafficd/schemas/feeds/xmlstream"
)

// siteList reads the sites of DATEX II: measurementSiteRecord (version 2), measurementSite (version
// 3) and predefined locations.
type siteList struct {
	*parser
	site  Site
	depth int // of the site; 0 outside

	named    int // depth of a name; 0 outside
	opposite int // depth of the direction that is not read; 0 outside

	characteristic Characteristic
	specific       int // depth of the characteristics with an index; 0 outside
	class          vehicles
	lane, usage    string // of version 3
	lanes          []string

	lat, lon float64
	read     int // 1 latitude, 2 longitude, 3 both
	scope    rank
	scoped   int  // depth of scope; 0 outside
	best     rank // of the position of the site
	point    int  // depth of a location reference point; 0 outside
	complete bool // the line has its last point
	text     map[string]string
}

// rank orders the positions that a site may have; the lowest is the best.
type rank int

const (
	display     rank = iota + 1 // locationForDisplay of version 2
	coordinates                 // pointByCoordinates
	fallback                    // coordinatesForDisplay of version 3
	other                       // such as the ends of a line
	openlr
	none
)

var scopes = map[string]rank{
	"locationForDisplay": display, "pointByCoordinates": coordinates, "coordinatesForDisplay": fallback,
	"openlrCoordinate": openlr, "openlrCoordinates": openlr,
}

func (s *siteList) start(x *xmlstream.Reader) {
	if s.opposite != 0 || s.class.depth != 0 {
		return
	}
	switch string(x.Name()) {
	case "measurementSiteRecord", "measurementSite", "predefinedLocation", "predefinedLocationContainer":
		s.begin(x)
	case "predefinedLocationReference":
		if kind, _ := x.Attr("type"); bytes.HasSuffix(kind, []byte("PredefinedLocation")) {
			s.begin(x)
		}
	case "measurementSiteName", "predefinedLocationName":
		s.named = x.Depth()
	case "measurementSpecificCharacteristics":
		if index, ok := x.Attr("index"); ok && s.specific == 0 {
			s.specific, s.characteristic, s.class.parts, s.lanes = x.Depth(), Characteristic{}, s.class.parts[:0], s.lanes[:0]
			s.characteristic.Index, _ = strconv.Atoi(string(index))
		}
	case "specificVehicleCharacteristics":
		s.class = vehicles{depth: x.Depth(), parts: s.class.parts[:0]}
	case "specificLane":
		s.lane, s.usage = "", ""
	case "oppositeDirection":
		s.opposite = x.Depth()
	case "openlrLocationReferencePoint", "openlrLastLocationReferencePoint":
		if s.depth != 0 && !s.complete {
			s.point = x.Depth()
			s.site.Line.Points = append(s.site.Line.Points, Point{})
			if len(s.site.Line.Points) > MaxValues {
				s.stop(errManyValues)
			}
		}
	default:
		if r, ok := scopes[string(x.Name())]; ok && s.scoped == 0 {
			s.scope, s.scoped = r, x.Depth()
		}
	}
}

// begin begins a site. A group of predefined locations is not a site, but each location in it is.
func (s *siteList) begin(x *xmlstream.Reader) {
	id, ok := x.Attr("id")
	if !ok {
		return
	}
	version, _ := x.Attr("version")
	text := s.text
	if text == nil || len(text) > MaxValues {
		text = map[string]string{}
	}
	*s = siteList{parser: s.parser, depth: x.Depth(), best: none, text: text}
	s.site = Site{ID: string(id), Version: s.intern(version), Lon: math.NaN(), Lat: math.NaN()}
}

// intern returns the text as a string that is shared: most sites have the same texts.
func (s *siteList) intern(text []byte) string {
	shared, ok := s.text[string(text)]
	if !ok {
		shared = string(text)
		s.text[shared] = shared
	}
	return shared
}

func (s *siteList) end(x *xmlstream.Reader, depth int) {
	switch {
	case s.opposite == depth:
		s.opposite = 0
		return
	case s.opposite != 0 || s.class.end(x, depth):
		return
	}
	switch depth {
	case s.depth:
		s.depth = 0
		s.parser.site(&s.site)
		return
	case s.specific:
		s.endCharacteristic()
		return
	case s.scoped:
		s.scoped, s.scope = 0, 0
	case s.point:
		s.point, s.complete = 0, string(x.Name()) == "openlrLastLocationReferencePoint"
	}
	if text := x.Text(); len(text) > 0 || string(x.Name()) == "specificLane" {
		s.endText(string(x.Name()), text)
	}
	if depth == s.named {
		s.named = 0
	}
}

func (s *siteList) endCharacteristic() {
	c := &s.characteristic
	s.specific = 0
	c.Lane = strings.Join(s.lanes, "_")
	c.Class = s.class.name()
	if s.site.Characteristics = append(s.site.Characteristics, *c); len(s.site.Characteristics) > MaxValues {
		s.stop(errManyValues)
	}
}

func (s *siteList) endText(name string, text []byte) {
	switch name {
	case "measurementSiteNumberOfLanes":
		s.site.Lanes = whole(text)
	case "measurementSide":
		if s.site.Side == "" {
			s.site.Side = s.intern(text)
		}
	case "period":
		if s.specific != 0 {
			s.characteristic.Period = seconds(text)
		}
	case "specificMeasurementValueType":
		s.characteristic.Kind = s.intern(text)
	case "laneNumber", "laneUsage", "specificLane":
		s.endLane(name, text)
	case "latitude", "longitude":
		s.endCoordinate(name == "latitude", text)
	case "posList", "pos":
		s.scope = other
		for i, field := range bytes.Fields(text) {
			if i < 2 {
				s.endCoordinate(i == 0, field)
			}
		}
	default:
		if s.named != 0 && s.site.Name == "" && (name == "value" || strings.HasSuffix(name, "Name")) {
			s.site.Name = string(text)
		}
		if s.point != 0 || strings.HasSuffix(name, "Offset") {
			s.endOpenLR(name, text)
		}
	}
}

// endLane reads a lane: in version 2 a text, in version 3 a number and a usage.
func (s *siteList) endLane(name string, text []byte) {
	switch {
	case name == "laneNumber":
		s.lane = s.intern(text)
	case name == "laneUsage" || len(text) > 0:
		s.usage = s.intern(text)
	}
	if lane := laneName(s.usage, s.lane); name == "specificLane" && lane != "" && len(s.lanes) < MaxValues {
		s.lanes = append(s.lanes, lane)
	}
}

func (s *siteList) endOpenLR(name string, text []byte) {
	line := &s.site.Line
	switch name {
	case "openlrPositiveOffset":
		line.PositiveOffset = whole(text)
		return
	case "openlrNegativeOffset":
		line.NegativeOffset = whole(text)
		return
	}
	p := &line.Points[len(line.Points)-1]
	switch name {
	case "openlrFunctionalRoadClass":
		p.FRC = class(text)
	case "openlrLowestFRCToNextLRPoint", "openlrLowestFrcToNextLRPoint":
		p.LowestFRC = class(text)
	case "openlrFormOfWay":
		p.FOW = formsOfWay[string(text)]
	case "openlrBearing":
		p.Bearing, _ = number(text, '.')
	case "openlrDistanceToNextLRPoint":
		p.Len = whole(text)
	}
}

// formsOfWay has the numbers of OpenLR's binary format.
var formsOfWay = map[string]int{
	"motorway": 1, "multipleCarriageway": 2, "singleCarriageway": 3, "roundabout": 4, "trafficSquare": 5, "slipRoad": 6, "other": 7,
}

// class reads a functional road class, such as FRC3.
func class(text []byte) int {
	return whole(bytes.TrimPrefix(text, []byte("FRC")))
}

func whole(text []byte) int {
	n, _ := strconv.Atoi(string(text))
	return n
}

// endCoordinate reads a latitude or longitude. With the second of both, the position is complete.
func (s *siteList) endCoordinate(latitude bool, text []byte) {
	n, ok := number(text, '.')
	if !ok {
		n = math.NaN()
	}
	if latitude {
		s.lat, s.read = n, s.read|1
	} else {
		s.lon, s.read = n, s.read|2
	}
	if s.read != 3 {
		return
	}
	s.read = 0
	if s.point != 0 {
		p := &s.site.Line.Points[len(s.site.Line.Points)-1]
		p.Lon, p.Lat = s.lon, s.lat
	}
	r := s.scope
	if r == 0 {
		r = other
	}
	if r < s.best && validPosition(s.lon, s.lat) {
		s.best, s.site.Lon, s.site.Lat = r, s.lon, s.lat
	}
}

// validPosition reports whether the numbers are degrees. 0,0 is what programs write for a position
// that they do not know.
func validPosition(lon, lat float64) bool {
	return lon >= -180 && lon <= 180 && lat >= -90 && lat <= 90 && (lon != 0 || lat != 0)
}

// laneName returns the part of a code for a lane, which has a number (version 3), a usage or both.
// Version 2 writes the number as a usage, such as lane1. It is empty for all lanes.
func laneName(usage, number string) string {
	switch {
	case number != "":
		return clean("lane" + number)
	case usage == "allLanesCompleteCarriageway":
		return ""
	}
	return clean(usage)
}

// vehicles reads the class of vehicles in an element.
type vehicles struct {
	depth    int // of the element; 0 outside
	known    bool
	operator string
	parts    []part
}

// end reads the end of an element, and reports whether it belongs to the class.
func (v *vehicles) end(x *xmlstream.Reader, depth int) bool {
	if v.depth == 0 {
		return false
	}
	if depth == v.depth {
		v.depth, v.known = 0, true
		return true
	}
	text := string(x.Text())
	switch name := string(x.Name()); name {
	case "comparisonOperator":
		v.operator = operators[text]
	case "vehicleLength", "vehicleWidth", "vehicleHeight", "grossVehicleWeight", "heaviestAxleWeight", "numberOfAxles":
		if n, ok := number(x.Text(), '.'); ok {
			text = strconv.FormatFloat(n, 'g', -1, 64)
		}
		v.parts = append(v.parts, part{units[name], v.operator + text})
	default:
		if text != "" && text != "anyVehicle" && len(v.parts) < MaxValues {
			v.parts = append(v.parts, part{"", text})
		}
	}
	return true
}

var units = map[string]string{
	"vehicleLength": "m", "vehicleWidth": "m-wide", "vehicleHeight": "m-high", "grossVehicleWeight": "t", "heaviestAxleWeight": "t-axle",
	"numberOfAxles": "axles",
}

// name returns the part of a code for the class.
func (v *vehicles) name() string { return className(v.parts) }
