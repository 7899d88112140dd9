package routing

import (
	"errors"
	"slices"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// The properties of a CallerContext that specify the coordinate system of a request (contract 3).
const (
	formatProperty = "CoordFormat"
	sridProperty   = "SrId"
)

// options holds the coordinate conversion and the encodings that a request asks for.
type options struct {
	conversion geo.Conversion
	encodings  []xroute.GeometryEncoding
}

// optionsOf returns the options of a request. The error is a *failure.
func optionsOf(r *xroute.RequestOptions, caller *xroute.CallerContext, vendorPrefix string) (o options, err error) {
	for _, e := range r.ResponseGeometry { // without the many duplicates that a request may contain
		if !slices.Contains(o.encodings, e) {
			o.encodings = append(o.encodings, e)
		}
	}
	if len(o.encodings) == 0 {
		const reason = "no encoding is requested: request at least one of PLAIN, WKB, WKT, KML"
		return o, serviceFailure(xroute.CodeGeometryEncoding, reason, nil).inContext("options/wrappedResponseGeometry")
	}
	format, srID := geo.Canonical(property(caller, formatProperty), vendorPrefix), property(caller, sridProperty)
	if format == "" {
		format = string(geo.GeoDecimal)
	}
	const properties = "callerContext/wrappedProperties: "
	from, err := system(format, srID, properties+formatProperty, properties+sridProperty)
	if err != nil {
		return o, err
	}
	srID = ""
	if r.SRID != nil {
		srID = *r.SRID
	}
	to, err := system(string(r.CoordFormat), srID, "options/@coordFormat", "options/@srId")
	if err != nil {
		return o, err
	}
	o.conversion = geo.NewConversion(from, to)
	return o, nil
}

// system returns a coordinate system. Errors contain formatPath or sridPath, the paths of format
// and srID in the request.
func system(format, srID, formatPath, sridPath string) (geo.System, error) {
	s, err := geo.ParseSystem(format, srID)
	path := formatPath
	if geo.Format(format) == geo.SRID {
		path = sridPath
	}
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, geo.ErrNoSRID):
		return s, &failure{class: notSet, context: []string{path}, message: path + ": " + err.Error()}
	}
	return s, serviceFailure(xroute.CodeCoordinateFormat, "invalid coordinate system", err).inContext(path)
}

// property returns the value of the first property with the given key, or "".
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

// convert converts the coordinates of g in place, and checks that g can be written in the requested
// encodings.
func (o options) convert(g *geo.Geometry) *failure {
	if slices.Contains(o.encodings, xroute.EncodingPlain) && xroute.HasEmptyPoint(g) {
		const reason = "the encoding PLAIN cannot represent a point without coordinates: request another one"
		return serviceFailure(xroute.CodeGeometryObject, reason, nil)
	}
	err := o.conversion.Apply(g)
	if err == nil {
		return nil
	}
	f := serviceFailure(xroute.CodeCoordinateFormat, "the coordinates cannot be converted", err)
	if outside, ok := errors.AsType[*geo.DomainError](err); ok {
		f = f.inContext(place("point", outside.Point))
	}
	return f
}

// conversion is the work of a job: items that succeed or fail one by one. For each item in order, a
// worker calls do and, if do returns an error, fail. For the remaining items of a stopped job, only
// fail is called. A conversion converts coordinates in place, so its size is known before the job
// is accepted.
type conversion struct {
	options options
	items   []item
	step    func(i int) error // instead of converting an item; set by tests
}

// item is a geometry, or the error that replaced it.
type item struct {
	kind     geo.Kind
	geometry *geo.Geometry
	err      error
}

const (
	itemBytes   = 512 // estimated size of an item without its coordinates and the text of its error
	memberBytes = 120 // estimated size of a member of a collection without its coordinates
)

// bytes estimates the memory used by an item without its coordinates, and the size of its error in
// a response.
func (it *item) bytes() int {
	size := itemBytes
	for err := it.err; err != nil; err = errors.Unwrap(err) {
		size += len(err.Error()) // which includes the text of its cause
	}
	return size
}

func (c *conversion) len() int { return len(c.items) }

// size estimates the memory used until the job is discarded.
func (c *conversion) size() (size int64) {
	for i := range c.items {
		size += int64(c.items[i].bytes())
		if g := c.items[i].geometry; g != nil {
			size += int64(geo.Count(g)) * 3 * 8 // a point has at most three coordinates; a part needs less
			for p := range geo.Parts(g) {
				if p.In == geo.GeometryCollection && !p.End {
					size += memberBytes
				}
			}
		}
	}
	return size
}

// responseSize estimates the size in bytes of a response with the first done items.
func (c *conversion) responseSize(done int) (size int) {
	for _, it := range c.items[:done] {
		if it.err == nil {
			size += responseSize(c.options.encodings, geo.Count(it.geometry))
		} else {
			size += it.bytes()
		}
	}
	return size
}

func (c *conversion) do(i int) error {
	if c.step != nil {
		return c.step(i)
	}
	if err := c.items[i].err; err != nil {
		return err
	}
	if f := c.options.convert(c.items[i].geometry); f != nil {
		return f
	}
	return nil
}

// fail replaces an item with an error.
func (c *conversion) fail(i int, err error) {
	c.items[i].geometry, c.items[i].err = nil, err
}
