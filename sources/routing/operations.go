package routing

import (
	"errors"
	"fmt"
	"math"
	"time"

	"trafficd/pipeline/batch"
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
	s, owner := x.service, x.client.Name
	switch r := x.request.(type) {
	case *xroute.ConvertGeometry:
		x.items = 1
		return s.convertGeometry(r)
	case *xroute.StartConvertGeometries:
		x.items = len(r.Geometries)
		return s.startConvertGeometries(owner, r)
	case *xroute.FetchConvertGeometries:
		return s.fetchConvertGeometries(owner, r, x.trace)
	case *xroute.WatchJob:
		return s.watchJob(owner, r)
	case *xroute.StopJob:
		return &xroute.StopJobResponse{Result: jobOf(s.jobs.halt(owner, r.ID))}, nil
	case *xroute.DeleteJob:
		return &xroute.DeleteJobResponse{Result: jobOf(s.jobs.remove(owner, r.ID))}, nil
	}
	return nil, fmt.Errorf("a request of type %T cannot be answered", x.request)
}

func (s *Service) convertGeometry(r *xroute.ConvertGeometry) (xroute.Response, error) {
	w, err := wishOf(&r.Options, r.CallerContext)
	if err != nil {
		return nil, err
	}
	g, err := read(r.Geometry, s.limits())
	if err != nil {
		return nil, at("geometry", err)
	}
	if err := w.convert(g); err != nil {
		return nil, at("geometry", err)
	}
	result, err := write(g, formOf(r.Geometry).kind, w.encodings)
	if err != nil {
		return nil, at("geometry", err)
	}
	points.Add(parts(g))
	return &xroute.ConvertGeometryResponse{Result: result}, nil
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
func (s *Service) startConvertGeometries(owner string, r *xroute.StartConvertGeometries) (xroute.Response, error) {
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
		x := &work.items[i]
		x.kind = kindOf(e)
		if x.geometry, x.err = read(e, s.limits()); x.err == nil {
			total += parts(x.geometry)
		}
		if total > s.cfg.MaxPoints {
			return nil, tooMany(fmt.Sprintf("the geometries have more than %d points and parts: send them as several jobs", s.cfg.MaxPoints))
		}
	}
	p, err := s.jobs.start(owner, work)
	var full *fullError
	switch {
	case errors.As(err, &full) && full.never:
		return nil, tooMany(full.text)
	case err != nil:
		return nil, &failure{class: unforeseen, message: "there is no room for another job: " + err.Error()}
	}
	return &xroute.StartConvertGeometriesResponse{Result: jobOf(p)}, nil
}

func kindOf(e xroute.EncodedGeometry) geo.Kind {
	if f := formOf(e); f != nil {
		return f.kind
	}
	return geo.Any
}

func tooMany(message string) *failure {
	return (&failure{class: illegal, message: message}).in("geometries")
}

// fetchConvertGeometries gives what a job has made, and forgets the job.
func (s *Service) fetchConvertGeometries(owner string, r *xroute.FetchConvertGeometries, trace string) (xroute.Response, error) {
	p, work := s.jobs.fetch(owner, r.ID)
	result := xroute.ConvertedGeometries{Job: jobOf(p)}
	if work != nil {
		work.(*conversion).collect(p.done(), &result, trace)
	}
	return &xroute.FetchConvertGeometriesResponse{Result: result}, nil
}

// collect gives the first pieces, which are done.
func (c *conversion) collect(done int, into *xroute.ConvertedGeometries, trace string) {
	into.Geometries, into.Failures = []xroute.EncodedGeometry{}, []xroute.ConversionFailure{}
	for i, x := range c.items[:done] {
		var e xroute.EncodedGeometry
		err := x.err
		if err == nil {
			e, err = write(x.geometry, x.kind, c.wish.encodings)
		}
		if err == nil {
			into.Geometries = append(into.Geometries, e)
			points.Add(parts(x.geometry))
			continue
		}
		f, _ := failureOf(err)
		into.Failures = append(into.Failures, xroute.ConversionFailure{
			Index: int32(i), Exception: f.in(place("geometries", i)).exception(trace),
		})
	}
}

// The bounds of watchJob (decisions.md 3).
const (
	defaultPolling  = 10 * time.Second
	defaultUpdating = time.Second
	minUpdating     = 250 * time.Millisecond
	maxUpdating     = 50 * time.Second
)

func (s *Service) watchJob(owner string, r *xroute.WatchJob) (xroute.Response, error) {
	least, most, err := waiting(r.Options, s.cfg.Jobs.MaxPoll)
	if err != nil {
		return nil, err
	}
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	default:
		return nil, batch.Unavailable("too many requests watch jobs: try again in a moment", time.Second)
	}
	watches.Inc()
	defer watches.Dec()
	return &xroute.WatchJobResponse{Result: jobOf(s.jobs.watch(owner, r.ID, least, most))}, nil
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
	p.id = p.id[:min(len(p.id), batch.EchoLimit)] // ours are shorter
	j := xroute.Job{ID: &p.id, Status: xroute.JobStatus(p.status), ElapsedTime: int32(min(p.elapsed.Milliseconds(), math.MaxInt32))}
	if p.status != unknown {
		j.Progress = &xroute.BulkProgress{Failed: int32(p.failed), Remaining: int32(p.remaining), Successful: int32(p.successful)}
	}
	return j
}
