package feeds

import (
	"errors"
	"io"
	"math"

	"trafficd/schemas/feeds/xmlstream"
)

// madrid reads the measuring points of Madrid: averages of five minutes.
//
//	pms
//	  fecha_hora                   local time; missing in old documents
//	  pm
//	    idelem (or codigo)
//	    intensidad                 vehicles/h
//	    ocupacion                  %
//	    velocidad                  km/h; only points of the M-30 have it
//	    error                      N, S, or Error as all values
//	    st_x, st_y                 UTM 30N with decimal commas; some documents have longitude and latitude
//
// Other members, such as carga, are computed from these.
type madrid struct {
	*parser
	at       stamp
	id, code string
	site     Site
	fault    bool
}

func parseMadrid(p *parser, in io.Reader) error {
	m := &madrid{parser: p}
	return p.walk(in, []string{"pms", "pm"}, m.start, m.end)
}

func (m *madrid) start(x *xmlstream.Reader) {
	if string(x.Name()) != "pm" {
		return
	}
	if !m.at.stated {
		if m.Modified.IsZero() {
			m.stop(errors.New("it has no time, and its server did not say when it was published"))
		}
		m.at = stamp{at: m.Modified.UTC().Truncate(m.Period), stated: true}
	}
	m.id, m.code, m.fault = "", "", false
	m.site = Site{Lon: math.NaN(), Lat: math.NaN()}
}

func (m *madrid) end(x *xmlstream.Reader) {
	text := x.Text()
	switch string(x.Name()) {
	case "fecha_hora":
		at := m.local("02/01/2006 15:04:05", string(text))
		m.at, m.Published = stamp{at: at.UTC(), stated: true}, at.UTC()
	case "idelem":
		m.id = string(text)
	case "codigo":
		m.code = string(text)
	case "descripcion":
		m.site.Name = string(text)
	case "intensidad":
		m.read(Flow, text, ',', 1)
	case "ocupacion":
		m.read(Occupancy, text, ',', 1)
	case "velocidad":
		m.read(Speed, text, ',', 1)
	case "error":
		m.fault = m.fault || string(text) != "N"
	case "st_x":
		m.site.X, _ = number(text, ',')
	case "st_y":
		m.site.Y, _ = number(text, ',')
	case "pm":
		m.endSite()
	}
}

func (m *madrid) endSite() {
	if m.id == "" {
		m.id = m.code
	}
	m.site.ID = m.id
	if validPosition(m.site.X, m.site.Y) { // some documents have degrees in these members
		m.site.Lon, m.site.Lat, m.site.X, m.site.Y = m.site.X, m.site.Y, 0, 0
	}
	if m.fault {
		m.fail(Equipment)
	}
	m.parser.site(&m.site)
	m.finish(m.id, m.at)
}
