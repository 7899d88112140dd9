package soap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twpayne/go-geom"

	"trafficd/cmd/trafficctl/internal/geometry"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// Converter converts geometries with jobs of the service. It implements geometry.Converter.
type Converter struct {
	Client   *Client
	From, To geo.System
}

// Convert implements geometry.Converter. It splits a batch that is too large for the service. The
// result for a single geometry that is too large is an error.
func (c Converter) Convert(ctx context.Context, batch []geom.T) ([]geometry.Result, error) {
	id, err := c.start(ctx, batch)
	switch {
	case err == nil:
		return c.results(ctx, id, len(batch))
	case !tooLarge(err):
		return nil, err
	case len(batch) == 1:
		return []geometry.Result{{Err: err}}, nil
	}
	half := len(batch) / 2
	first, err := c.Convert(ctx, batch[:half])
	if err != nil {
		return nil, err
	}
	second, err := c.Convert(ctx, batch[half:])
	return append(first, second...), err
}

// start starts a job that converts a batch, and returns its ID.
func (c Converter) start(ctx context.Context, batch []geom.T) (id string, err error) {
	list := make([]xroute.EncodedGeometry, len(batch))
	for i, g := range batch {
		if list[i], err = Encode(g); err != nil {
			return "", err
		}
	}
	options := xroute.RequestOptions{
		ResponseGeometry: []xroute.GeometryEncoding{xroute.EncodingWKB}, // exact
		CoordFormat:      c.To.Format(),
		SRID:             srID(c.To),
	}
	properties := []xroute.CallerContextProperty{{Key: new("CoordFormat"), Value: new(string(c.From.Format()))}} // contract 3
	if id := srID(c.From); id != nil {
		properties = append(properties, xroute.CallerContextProperty{Key: new("SrId"), Value: id})
	}
	job, err := c.Client.Start(ctx, list, options, &xroute.CallerContext{Properties: properties})
	if err == nil && job.ID == nil {
		err = errors.New("the routing service started a job without an id, so its results cannot be fetched: " +
			"report this to the operator of the service")
	}
	if err != nil {
		return "", err
	}
	return *job.ID, nil
}

// results waits for a job and returns the results of its n geometries. It deletes the job after an
// error.
func (c Converter) results(ctx context.Context, id string, n int) (_ []geometry.Result, err error) {
	defer func() {
		if err != nil { // including interruption
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_, _ = c.Client.Delete(ctx, id) // if this fails, the job expires
		}
	}()
	if _, err = c.Client.Await(ctx, id, func(xroute.Job) {}); err != nil {
		return nil, err
	}
	fetched, err := c.Client.Fetch(ctx, id)
	if err != nil {
		return nil, err
	}
	if got := len(fetched.Geometries) + len(fetched.Failures); got != n {
		return nil, fmt.Errorf("the routing service returned results for %d of %d geometries, with the job status %s; "+
			"if the job was stopped or the daemon restarted, try again", got, n, fetched.Job.Status)
	}
	results := make([]geometry.Result, n) // in the order of the request
	for _, f := range fetched.Failures {
		if f.Index < 0 || int(f.Index) >= len(results) || results[f.Index].Err != nil {
			return nil, fmt.Errorf("invalid response from the routing service: failure of geometry %d of %d", f.Index, len(results))
		}
		results[f.Index].Err = errors.New(Reason(f.Exception))
	}
	for i := range results {
		if r := &results[i]; r.Err == nil {
			r.Geometry, r.Err = Decode(fetched.Geometries[0])
			fetched.Geometries = fetched.Geometries[1:]
		}
	}
	return results, nil
}

func srID(s geo.System) *string {
	if s.Format() != geo.SRID {
		return nil
	}
	return new(fmt.Sprintf("EPSG:%d", s.EPSG()))
}

// Encode encodes a geometry as WKB, which is exact. It includes the SRID as in PostGIS's EWKB, so
// that the service can detect an SRID that contradicts the coordinate format.
func Encode(g geom.T) (xroute.EncodedGeometry, error) {
	e := xroute.NewElement(geo.KindOf(g), nil)
	if e == nil {
		return nil, fmt.Errorf("cannot send a %T to the routing service", g)
	}
	order := binary.LittleEndian
	wkb := geo.AppendWKB(nil, g, order)
	if id := g.SRID(); id != 0 {
		const kindAt, idAt, flag = 1, 5, 0x2000_0000 // the first byte is the byte order
		order.PutUint32(wkb[kindAt:], order.Uint32(wkb[kindAt:])|flag)
		wkb = slices.Insert(wkb, idAt, order.AppendUint32(nil, uint32(id))...)
	}
	e.Encoded().WKB = wkb
	return e, nil
}

// Decode decodes a geometry in a response from its first encoding.
func Decode(e xroute.EncodedGeometry) (geom.T, error) {
	for _, r := range xroute.Readings(e) {
		return r.Read(geo.Limits{Points: math.MaxInt, Depth: maxDepth}) // the size of the response was limited
	}
	return nil, errors.New("the response contains no encoding of the geometry")
}
