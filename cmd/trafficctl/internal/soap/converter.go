package soap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twpayne/go-geom"

	"trafficd/cmd/trafficctl/internal/geometry"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// Converter converts with the service: one geometry with convertGeometry, several as a job. It
// implements geometry.Converter.
type Converter struct {
	Client   *Client
	From, To geo.System
	Limits   geo.Limits // of the results
}

// Convert implements geometry.Converter. It splits a batch that is too large for the service.
func (c Converter) Convert(ctx context.Context, batch []geom.T) ([]geometry.Result, error) {
	if len(batch) == 1 {
		return c.one(ctx, batch[0])
	}
	results, err := c.job(ctx, batch)
	if !tooLarge(err) {
		return results, err
	}
	half := len(batch) / 2
	first, err := c.Convert(ctx, batch[:half])
	if err != nil {
		return nil, err
	}
	second, err := c.Convert(ctx, batch[half:])
	return append(first, second...), err
}

// one converts one geometry. A client fault and a request that is too large concern that geometry only.
func (c Converter) one(ctx context.Context, g geom.T) ([]geometry.Result, error) {
	e, err := Encode(g)
	if err != nil {
		return []geometry.Result{{Err: err}}, nil
	}
	e, err = c.Client.Convert(ctx, e, c.options(), c.caller())
	var fault *Fault
	if tooLarge(err) || errors.As(err, &fault) && fault.Code == xroute.FaultClient {
		return []geometry.Result{{Err: err}}, nil
	}
	if err != nil {
		return nil, err
	}
	return []geometry.Result{c.result(e)}, nil
}

func (c Converter) result(e xroute.EncodedGeometry) geometry.Result {
	g, err := Decode(e, c.Limits)
	return geometry.Result{Geometry: g, Err: err}
}

// job converts a batch as a job. It deletes the job on an error.
func (c Converter) job(ctx context.Context, batch []geom.T) (results []geometry.Result, err error) {
	list := make([]xroute.EncodedGeometry, len(batch))
	for i, g := range batch {
		if list[i], err = Encode(g); err != nil {
			return nil, err
		}
	}
	job, err := c.Client.Start(ctx, list, c.options(), c.caller())
	if err != nil {
		return nil, err
	}
	if job.ID == nil {
		return nil, errors.New("the routing service started a job without an id")
	}
	defer func() {
		if err != nil { // also when the run was interrupted
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_, _ = c.Client.Delete(ctx, *job.ID) // otherwise it expires
		}
	}()
	if _, err = c.Client.Await(ctx, *job.ID, func(xroute.Job) {}); err != nil {
		return nil, err
	}
	made, err := c.Client.Fetch(ctx, *job.ID)
	if err != nil {
		return nil, err
	}
	return c.sort(made, len(batch))
}

// sort returns the results and failures of a job in the order of its request.
func (c Converter) sort(made xroute.ConvertedGeometries, n int) ([]geometry.Result, error) {
	if got := len(made.Geometries) + len(made.Failures); got != n {
		return nil, fmt.Errorf("the routing service ended a job of %d geometries as %s with %d; if it was stopped or the daemon restarted, try again", n, made.Job.Status, got)
	}
	results := make([]geometry.Result, n)
	for _, f := range made.Failures {
		if f.Index < 0 || int(f.Index) >= n {
			return nil, fmt.Errorf("invalid response of the routing service: failure of geometry %d of %d", f.Index, n)
		}
		results[f.Index].Err = errors.New(Reason(f.Exception))
	}
	next := 0
	for i := range results {
		if results[i].Err == nil {
			if next == len(made.Geometries) {
				return nil, errors.New("invalid response of the routing service: two failures of the same geometry")
			}
			results[i] = c.result(made.Geometries[next])
			next++
		}
	}
	return results, nil
}

// options requests WKB, which is exact.
func (c Converter) options() xroute.RequestOptions {
	return xroute.RequestOptions{
		ResponseGeometry: []xroute.GeometryEncoding{xroute.EncodingWKB},
		CoordFormat:      c.To.Format(), SRID: srID(c.To),
	}
}

// caller names the coordinate format of the geometries (contract 3).
func (c Converter) caller() *xroute.CallerContext {
	format, formatKey, sridKey := string(c.From.Format()), "CoordFormat", "SrId"
	properties := []xroute.CallerContextProperty{{Key: &formatKey, Value: &format}}
	if id := srID(c.From); id != nil {
		properties = append(properties, xroute.CallerContextProperty{Key: &sridKey, Value: id})
	}
	return &xroute.CallerContext{Properties: properties}
}

func srID(s geo.System) *string {
	if s.Format() != geo.SRID {
		return nil
	}
	text := fmt.Sprintf("EPSG:%d", s.EPSG())
	return &text
}

// Encode encodes a geometry as WKB, which is exact.
func Encode(g geom.T) (xroute.EncodedGeometry, error) {
	e := xroute.NewElement(geo.KindOf(g), nil)
	if e == nil {
		return nil, fmt.Errorf("a %T cannot be sent to the routing service", g)
	}
	wkb := geo.AppendWKB(nil, g, binary.LittleEndian)
	if id := g.SRID(); id != 0 {
		wkb = withSRID(wkb, id)
	}
	e.Encoded().WKB = wkb
	return e, nil
}

// withSRID turns WKB into PostGIS's EWKB, so that the service can detect an SRID that contradicts the
// coordinate format. WKB starts with a byte for the byte order and the geometry type.
func withSRID(wkb []byte, id int) []byte {
	const kindAt, idAt, flag = 1, 5, 0x2000_0000
	order := binary.LittleEndian
	order.PutUint32(wkb[kindAt:], order.Uint32(wkb[kindAt:])|flag)
	return slices.Insert(wkb, idAt, order.AppendUint32(nil, uint32(id))...)
}

var errNoEncoding = errors.New("the response contains no encoding of the geometry")

// Decode reads a geometry from the most exact encoding that it has.
func Decode(e xroute.EncodedGeometry, limits geo.Limits) (geom.T, error) {
	encoded, kind := e.Encoded(), xroute.KindOf(e)
	plain := xroute.PlainOf(e)
	switch {
	case encoded.WKB != nil:
		return limits.ParseWKB(encoded.WKB, kind)
	case plain != nil:
		return xroute.FromPlain(plain, limits)
	case encoded.WKT != nil:
		return limits.ParseWKT(*encoded.WKT, kind)
	case encoded.KML != nil && encoded.KML.KML != nil:
		return limits.ParseKML(kind, *encoded.KML.KML)
	case encoded.KML != nil:
		return limits.ParseKML(kind, encoded.KML.Placemarks...)
	}
	return nil, errNoEncoding
}
