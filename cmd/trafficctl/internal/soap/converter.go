package soap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twpayne/go-geom"

	"trafficd/cmd/trafficctl/internal/geometry"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// Converter lets the service convert: one geometry with convertGeometry, more
// of them as a job. It implements geometry.Converter.
type Converter struct {
	Client   *Client
	From, To geo.System
	Limits   geo.Limits // of what is read back
}

// Convert implements geometry.Converter. A batch that is too large for the
// service is sent in halves.
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

// one converts a geometry. A fault of the client is about that geometry, as is
// that the request is too large.
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

// job converts a batch as a job. One that is left early is deleted: nobody
// would fetch it.
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
		if err != nil {
			c.abandon(ctx, *job.ID)
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

// abandon deletes a job also when the run was interrupted.
func (c Converter) abandon(ctx context.Context, id string) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, _ = c.Client.Delete(ctx, id) // else it expires
}

// sort puts what a job made, and what failed, into the order of its request.
func (c Converter) sort(made xroute.ConvertedGeometries, n int) ([]geometry.Result, error) {
	if got := len(made.Geometries) + len(made.Failures); got != n {
		return nil, fmt.Errorf("the routing service ended a job of %d geometries as %s with %d: was it stopped, or the daemon restarted? try again", n, made.Job.Status, got)
	}
	results := make([]geometry.Result, n)
	for _, f := range made.Failures {
		if f.Index < 0 || int(f.Index) >= n {
			return nil, fmt.Errorf("the routing service tells a failure of geometry %d of %d", f.Index, n)
		}
		results[f.Index].Err = errors.New(Reason(f.Exception))
	}
	next := 0
	for i := range results {
		if results[i].Err == nil {
			if next == len(made.Geometries) {
				return nil, errors.New("the routing service tells two failures of the same geometry")
			}
			results[i] = c.result(made.Geometries[next])
			next++
		}
	}
	return results, nil
}

// options ask for WKB, which keeps every bit.
func (c Converter) options() xroute.RequestOptions {
	return xroute.RequestOptions{
		ResponseGeometry: []xroute.GeometryEncoding{xroute.EncodingWKB},
		CoordFormat:      xroute.CoordFormat(c.To.Format()), SRID: srID(c.To),
	}
}

// caller says what coordinates the geometries have (contract 3).
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
