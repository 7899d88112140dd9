package feeds

import (
	"io"
	"math"

	"trafficd/schemas/feeds/xmlstream"
)

// miv reads Meten-in-Vlaanderen of Flanders: the values of one minute, per detector (which is one
// lane) and class of vehicles, and the document with the positions of the detectors.
//
//	meetpunt unieke_id
//	  tijd_waarneming, defect
//	  meetdata klasse_id
//	    verkeersintensiteit            vehicles in the minute
//	    voertuigsnelheid_rekenkundig   arithmetic mean of the speeds
//	    voertuigsnelheid_harmonisch    harmonic mean
//	  rekendata / bezettingsgraad      occupancy
//
// The member geldig, which means valid, is 0 for almost all detectors, although their values are
// real. It is not read.
type miv struct {
	*parser
	site   Site
	inside bool // of a meetpunt
	class  string
	at     stamp
	defect bool
}

func parseMIV(p *parser, in io.Reader) error {
	m := &miv{parser: p}
	return p.walk(in, []string{"miv", "mivconfig", "meetpunt"}, m.start, m.end)
}

func (m *miv) start(x *xmlstream.Reader) {
	switch string(x.Name()) {
	case "meetpunt":
		id, _ := x.Attr("unieke_id")
		*m = miv{parser: m.parser, inside: true, site: Site{ID: string(id), Lon: math.NaN(), Lat: math.NaN()}}
	case "meetdata":
		class, _ := x.Attr("klasse_id")
		m.class = "class" + string(class)
	}
}

func (m *miv) end(x *xmlstream.Reader) {
	text := x.Text()
	if string(x.Name()) == "tijd_publicatie" {
		m.Published = m.time(text)
	}
	if !m.inside || len(text) == 0 && x.Depth() > 2 {
		return
	}
	switch string(x.Name()) {
	case "meetpunt":
		m.endSite()
	case "tijd_waarneming":
		m.at = stamp{at: m.time(text), stated: true}
	case "defect":
		m.defect = string(text) != "0"
	case "meetdata":
		m.class = ""
	case "verkeersintensiteit":
		m.read(Flow, text, ',', 60).class = m.class
	case "voertuigsnelheid_rekenkundig":
		m.read(Speed, text, ',', 1).class = m.class
	case "voertuigsnelheid_harmonisch":
		v := m.read(Speed, text, ',', 1)
		v.class, v.statistic = m.class, "harmonic"
	case "bezettingsgraad":
		m.read(Occupancy, text, ',', 1).class = m.class
	case "volledige_naam":
		m.site.Name = string(text) + m.site.Name
	case "Rijstrook":
		m.site.Name += " " + string(text)
	case "lengtegraad_EPSG_4326":
		m.site.Lon = degrees(text)
	case "breedtegraad_EPSG_4326":
		m.site.Lat = degrees(text)
	}
}

// endSite finishes a detector: with values in one document, with a position in the other.
func (m *miv) endSite() {
	m.inside = false
	if len(m.values) == 0 {
		m.site.checkPosition()
		m.parser.site(&m.site)
		return
	}
	if m.defect {
		m.fail(Equipment)
	}
	m.finish(m.site.ID, m.at)
}

// degrees reads a coordinate with a decimal comma.
func degrees(text []byte) float64 {
	n, ok := number(text, ',')
	if !ok {
		return math.NaN()
	}
	return n
}
