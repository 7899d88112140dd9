package routing

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twpayne/go-geom"

	"trafficd/schemas/contract"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// operation is the name of the request, or "none" where it could not be read.
func (x *exchange) operation() string {
	switch x.request.(type) {
	case *xroute.ConvertGeometry:
		return "convertGeometry"
	case *xroute.StartConvertGeometries:
		return "startConvertGeometries"
	case *xroute.FetchConvertGeometries:
		return "fetchConvertGeometries"
	case *xroute.WatchJob:
		return "watchJob"
	case *xroute.StopJob:
		return "stopJob"
	case *xroute.DeleteJob:
		return "deleteJob"
	}
	return "none"
}

// operate does what the request asks for.
func (x *exchange) operate() (xroute.Response, error) {
	jobs, owner := x.service.jobs, x.client.Name
	switch r := x.request.(type) {
	case *xroute.ConvertGeometry:
		return x.convertGeometry(r)
	case *xroute.StartConvertGeometries:
		return x.startConvertGeometries(r)
	case *xroute.FetchConvertGeometries:
		return x.fetchConvertGeometries(r)
	case *xroute.WatchJob:
		return x.watchJob(r)
	case *xroute.StopJob:
		return &xroute.StopJobResponse{Result: jobOf(jobs.halt(owner, r.ID))}, nil
	case *xroute.DeleteJob:
		return &xroute.DeleteJobResponse{Result: jobOf(jobs.remove(owner, r.ID))}, nil
	}
	return nil, fmt.Errorf("a request of type %T cannot be answered", x.request)
}

func (x *exchange) convertGeometry(r *xroute.ConvertGeometry) (xroute.Response, error) {
	x.items = 1
	w, err := wishOf(&r.Options, r.CallerContext)
	if err != nil {
		return nil, err
	}
	g, err := read(r.Geometry, x.service.limits())
	if err != nil {
		return nil, at("geometry", err)
	}
	if err := w.convert(g); err != nil {
		return nil, at("geometry", err)
	}
	if err := x.reserve(w.encodings.size(parts(g))); err != nil {
		return nil, err
	}
	return &xroute.ConvertGeometryResponse{Result: x.write(g, xroute.KindOf(r.Geometry), w.encodings)}, nil
}

// write gives a converted geometry for the answer.
func (x *exchange) write(g geom.T, kind geo.Kind, in encodings) xroute.EncodedGeometry {
	points.Add(parts(g))
	return write(g, kind, in)
}

// at adds the place of a geometry to a failure.
func at(where string, err error) error {
	var f *failure
	if errors.As(err, &f) {
		return f.in(where)
	}
	return err
}

// startConvertGeometries reads the geometries, so that it is known how much the job
// will hold, and leaves the rest to the job. A geometry that cannot be read is a
// failed one of the job.
func (x *exchange) startConvertGeometries(r *xroute.StartConvertGeometries) (xroute.Response, error) {
	s := x.service
	x.items = len(r.Geometries)
	w, err := wishOf(&r.Options, r.CallerContext)
	if err != nil {
		return nil, err
	}
	if n := len(r.Geometries); n > s.cfg.Jobs.MaxGeometries {
		return nil, tooMany(fmt.Sprintf("%d geometries are more than a job takes: send at most %d at a time", n, s.cfg.Jobs.MaxGeometries))
	}
	work := &conversion{wish: w, items: make([]item, len(r.Geometries))}
	total := 0
	for i, e := range r.Geometries {
		it := &work.items[i]
		it.kind = xroute.KindOf(e)
		if it.geometry, it.err = read(e, s.limits()); it.err == nil {
			total += parts(it.geometry)
		}
		if total > s.cfg.MaxPoints {
			return nil, tooMany(fmt.Sprintf("the geometries have more than %d points and parts: send them as several jobs", s.cfg.MaxPoints))
		}
	}
	p, err := s.jobs.start(x.client.Name, work)
	var full *fullError
	switch {
	case errors.As(err, &full) && full.never:
		return nil, tooMany(full.text)
	case err != nil:
		return nil, &failure{class: unforeseen, message: "there is no room for another job: " + err.Error()}
	}
	return &xroute.StartConvertGeometriesResponse{Result: jobOf(p)}, nil
}

func tooMany(message string) *failure {
	return (&failure{class: illegal, message: message}).in("geometries")
}

// fetchConvertGeometries gives what a job has made, and forgets the job.
func (x *exchange) fetchConvertGeometries(r *xroute.FetchConvertGeometries) (xroute.Response, error) {
	p, work, err := x.service.jobs.fetch(x.client.Name, r.ID, func(work bulk, done int) error {
		return x.reserve(work.(*conversion).answerSize(done))
	})
	if err != nil {
		return nil, err
	}
	result := xroute.ConvertedGeometries{Job: jobOf(p)}
	if work != nil {
		x.collect(work.(*conversion), p.done(), &result)
	}
	return &xroute.FetchConvertGeometriesResponse{Result: result}, nil
}

// collect gives the first pieces of a job, which are done.
func (x *exchange) collect(c *conversion, done int, into *xroute.ConvertedGeometries) {
	into.Geometries, into.Failures = []xroute.EncodedGeometry{}, []xroute.ConversionFailure{}
	for i, it := range c.items[:done] {
		if it.err == nil {
			into.Geometries = append(into.Geometries, x.write(it.geometry, it.kind, c.wish.encodings))
			continue
		}
		f, _ := failureOf(it.err)
		into.Failures = append(into.Failures, xroute.ConversionFailure{
			Index: int32(i), Exception: f.in(place("geometries", i)).exception(x.trace),
		})
	}
}

// The bounds of watchJob (contract 3).
const (
	defaultPolling  = 10 * time.Second
	defaultUpdating = time.Second
	minUpdating     = 250 * time.Millisecond
	maxUpdating     = 50 * time.Second
)

func (x *exchange) watchJob(r *xroute.WatchJob) (xroute.Response, error) {
	s := x.service
	least, most, err := waiting(r.Options, s.cfg.Jobs.MaxPoll)
	if err != nil {
		return nil, err
	}
	if apiErr := s.watches.take(x.client.Name, 1); apiErr != nil {
		return nil, apiErr
	}
	defer s.watches.give(x.client.Name, 1)
	return &xroute.WatchJobResponse{Result: jobOf(s.jobs.watch(x.client.Name, r.ID, least, most))}, nil
}

// waiting gives how long a watch waits at least, for progress, and at most.
func waiting(o *xroute.WatchOptions, limit time.Duration) (least, most time.Duration, err error) {
	least, most = defaultUpdating, defaultPolling
	if o != nil && o.ProgressUpdatePeriod != nil {
		least = min(max(milliseconds(*o.ProgressUpdatePeriod), minUpdating), maxUpdating)
	}
	if o != nil && o.MaximumPollingPeriod != nil {
		if most = milliseconds(*o.MaximumPollingPeriod); most < 0 {
			const path = "options/@maximumPollingPeriod"
			return 0, 0, &failure{class: illegal, context: []string{path}, message: fmt.Sprintf("%s is %d: it has to be 0 or more milliseconds", path, *o.MaximumPollingPeriod)}
		}
	}
	return least, min(most, limit), nil
}

func milliseconds(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

// jobOf is the progress as a client is told it. Of a job that is unknown there is none.
func jobOf(p progress) xroute.Job {
	p.id = p.id[:min(len(p.id), contract.EchoLimit)] // ours are shorter
	j := xroute.Job{ID: &p.id, Status: p.status, ElapsedTime: int32(min(p.elapsed.Milliseconds(), math.MaxInt32))}
	if p.status != unknown {
		j.Progress = &xroute.BulkProgress{Failed: int32(p.failed), Remaining: int32(p.remaining), Successful: int32(p.successful)}
	}
	return j
}
