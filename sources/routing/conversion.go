package routing

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twpayne/go-geom"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// The properties of a CallerContext that say what coordinates the request's
// geometries have (contract 3).
const (
	formatProperty = "CoordFormat"
	sridProperty   = "SrId"
)

// wish is what a request asks for: other coordinates, and these encodings.
type wish struct {
	conversion geo.Conversion
	encodings  encodings
}

// wishOf reads the options. The error is a *failure.
func wishOf(options *xroute.RequestOptions, caller *xroute.CallerContext) (w wish, err error) {
	if w.encodings, err = encodingsOf(options.ResponseGeometry); err != nil {
		return w, err
	}
	format, srID := property(caller, formatProperty), property(caller, sridProperty)
	if format == "" {
		format = string(geo.GeoDecimal)
	}
	from, err := system(format, srID, "callerContext/wrappedProperties: "+formatProperty, "callerContext/wrappedProperties: "+sridProperty)
	if err != nil {
		return w, err
	}
	srID = ""
	if options.SRID != nil {
		srID = *options.SRID
	}
	to, err := system(string(options.CoordFormat), srID, "options/@coordFormat", "options/@srId")
	if err != nil {
		return w, err
	}
	w.conversion = geo.NewConversion(from, to)
	return w, nil
}

func encodingsOf(list []xroute.GeometryEncoding) (e encodings, err error) {
	for _, name := range list {
		switch name {
		case xroute.EncodingPlain:
			e.plain = true
		case xroute.EncodingWKB:
			e.wkb = true
		case xroute.EncodingWKT:
			e.wkt = true
		case xroute.EncodingKML:
			e.kml = true
		}
	}
	if e == (encodings{}) {
		return e, serviceFailure(xroute.CodeGeometryEncoding, "no encoding is asked for: name some of PLAIN, WKB, WKT, KML", nil).in("options/wrappedResponseGeometry")
	}
	return e, nil
}

// system finds a coordinate system; the paths say where format and srID stand.
func system(format, srID, formatPath, sridPath string) (geo.System, error) {
	if geo.Format(format) == geo.SRID && strings.TrimSpace(srID) == "" {
		return geo.System{}, &failure{
			class: notSet, context: []string{sridPath},
			message: fmt.Sprintf("%s: OG_SRID needs an srId, such as EPSG:25832", sridPath),
		}
	}
	s, err := geo.ParseSystem(format, srID)
	if err == nil {
		return s, nil
	}
	path := formatPath
	if geo.Format(format) == geo.SRID {
		path = sridPath
	}
	return s, serviceFailure(xroute.CodeCoordinateFormat, "the coordinate format is unknown", err).in(path)
}

// property gives a property's value, empty without one. Of several the first counts.
func property(caller *xroute.CallerContext, key string) string {
	if caller == nil {
		return ""
	}
	for _, p := range caller.Properties {
		if p.Key != nil && *p.Key == key && p.Value != nil {
			return *p.Value
		}
	}
	return ""
}

// convert turns the coordinates of a geometry, in place. After nil it can be written as
// it is wanted. The error is a *failure.
func (w wish) convert(g geom.T) error {
	if w.encodings.plain && xroute.HasEmptyPoint(g) {
		return serviceFailure(xroute.CodeGeometryObject, "a point without coordinates has no form in the encoding PLAIN: ask for another one", nil)
	}
	err := w.conversion.Apply(g)
	if err == nil {
		return nil
	}
	f := serviceFailure(xroute.CodeCoordinateFormat, "the coordinates cannot be converted", err)
	var outside *geo.DomainError
	if errors.As(err, &outside) {
		f = f.in(place("point", outside.Point))
	}
	return f
}

// conversion is the bulk of a job. What it holds are coordinates, converted in
// place: 8 bytes each, known before the job is taken.
type conversion struct {
	wish  wish
	items []item
}

// item is a geometry, or the reason why there is none.
type item struct {
	kind     geo.Kind
	geometry geom.T
	err      error
}

// itemBytes is about what an item takes beside its coordinates, or what a reason takes.
const itemBytes = 512

func (c *conversion) len() int { return len(c.items) }

// memberBytes is about what a geometry takes as member of another one, without its
// coordinates.
const memberBytes = 96

func (c *conversion) size() int64 {
	size := int64(len(c.items)) * itemBytes
	for i := range c.items {
		if g := c.items[i].geometry; g != nil {
			size += int64(parts(g)) * 3 * 8 // a point has three coordinates at most, a part has less
			size += int64(members(g)) * memberBytes
		}
	}
	return size
}

// answerSize is about how many bytes the answer takes that has the first pieces.
func (c *conversion) answerSize(done int) (size int) {
	for _, it := range c.items[:done] {
		if it.err == nil {
			size += c.wish.encodings.size(parts(it.geometry))
		} else {
			size += itemBytes
		}
	}
	return size
}

// members counts all geometries that are in a collection, and in those in it.
func members(g geom.T) int {
	c, ok := g.(*geom.GeometryCollection)
	if !ok {
		return 0
	}
	n := c.NumGeoms()
	for _, member := range c.Geoms() {
		n += members(member)
	}
	return n
}

func (c *conversion) do(i int) error {
	if err := c.items[i].err; err != nil {
		return err
	}
	return c.wish.convert(c.items[i].geometry)
}

func (c *conversion) fail(i int, err error) {
	c.items[i].geometry, c.items[i].err = nil, err
}
