package routing

import (
	"fmt"
	"math"
	"strings"
	"time"

	"trafficd/schemas/contract"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// operation returns the name of the operation, or "none" if the request could not be read.
func (x *exchange) operation() string {
	if x.request == nil {
		return "none"
	}
	return xroute.Operation(x.request)
}

// checkProperties rejects known keys in the wrong case, because ignoring them would change the
// meaning of the request.
func checkProperties(caller *xroute.CallerContext) error {
	if caller == nil {
		return nil
	}
	for i, p := range caller.Properties {
		for _, key := range []string{formatProperty, sridProperty} {
			if p.Key != nil && *p.Key != key && strings.EqualFold(*p.Key, key) {
				return &failure{
					class: illegal, context: []string{"callerContext", place("wrappedProperties", i)},
					message: fmt.Sprintf("invalid property key %q: use %s", *p.Key, key),
				}
			}
		}
	}
	return nil
}

func (x *exchange) operate() (xroute.Response, error) {
	if err := checkProperties(xroute.Caller(x.request)); err != nil {
		return nil, err
	}
	jobs, owner := x.service.jobs, x.client.Owner
	if id, ok := xroute.JobID(x.request); ok && jobs.isForeign(id) {
		return nil, &failure{
			class: illegal, context: []string{"id"},
			message: "another replica started this job: configure the load balancer to send all requests of a client to the same replica",
		}
	}
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
		return &xroute.StopJobResponse{Result: jobOf(jobs.stop(owner, r.ID))}, nil
	case *xroute.DeleteJob:
		return &xroute.DeleteJobResponse{Result: jobOf(jobs.delete(owner, r.ID))}, nil
	}
	return nil, fmt.Errorf("cannot process a request of type %T", x.request)
}

func (x *exchange) convertGeometry(r *xroute.ConvertGeometry) (xroute.Response, error) {
	x.items = 1
	o, err := optionsOf(&r.Options, r.CallerContext, x.service.cfg.VendorPrefix)
	if err != nil {
		return nil, err
	}
	g, f := read(r.Geometry, x.service.limits)
	if f == nil {
		f = o.convert(g)
	}
	if f != nil {
		return nil, f.inContext("geometry")
	}
	if err := x.reserve(responseSize(o.encodings, geo.Count(g))); err != nil {
		return nil, err
	}
	points.Add(float64(geo.Count(g)))
	return &xroute.ConvertGeometryResponse{Result: write(g, xroute.KindOf(r.Geometry), o.encodings)}, nil
}

// startConvertGeometries reads the geometries, so that the memory that the job needs is known, and
// starts the job. Invalid geometries become failed items of the job.
func (x *exchange) startConvertGeometries(r *xroute.StartConvertGeometries) (xroute.Response, error) {
	s := x.service
	x.items = len(r.Geometries)
	o, err := optionsOf(&r.Options, r.CallerContext, x.service.cfg.VendorPrefix)
	if err != nil {
		return nil, err
	}
	if n := len(r.Geometries); n > s.cfg.Jobs.MaxGeometries {
		return nil, tooMany(fmt.Sprintf("%d geometries are too many for a job: send at most %d at a time", n, s.cfg.Jobs.MaxGeometries))
	}
	work := &conversion{options: o, items: make([]item, len(r.Geometries))}
	total := 0
	for i, e := range r.Geometries {
		it := &work.items[i]
		it.kind = xroute.KindOf(e)
		var f *failure
		if it.geometry, f = read(e, s.limits); f == nil {
			total += geo.Count(it.geometry)
		} else {
			it.err = f
		}
		if total > s.cfg.MaxPoints {
			return nil, tooMany(fmt.Sprintf("the geometries have more than %d points and parts: split them into several jobs", s.cfg.MaxPoints))
		}
	}
	p, err := s.jobs.start(x.client.Owner, work)
	if err != nil {
		return nil, err
	}
	return &xroute.StartConvertGeometriesResponse{Result: jobOf(p)}, nil
}

func tooMany(message string) *failure {
	return &failure{class: illegal, context: []string{"geometries"}, message: message}
}

func (x *exchange) fetchConvertGeometries(r *xroute.FetchConvertGeometries) (xroute.Response, error) {
	p, c, err := x.service.jobs.fetch(x.client.Owner, r.ID, func(c *conversion, done int) error {
		return x.reserve(c.responseSize(done))
	})
	if err != nil {
		return nil, err
	}
	result := xroute.ConvertedGeometries{Job: jobOf(p)}
	if c != nil {
		result.Geometries, result.Failures = []xroute.EncodedGeometry{}, []xroute.ConversionFailure{}
		for i, it := range c.items[:p.done()] {
			if it.err != nil {
				f, _ := failureOf(it.err)
				exception := f.inContext(place("geometries", i)).exception(x.trace, x.service.cfg.VendorPrefix)
				result.Failures = append(result.Failures, xroute.ConversionFailure{Index: int32(i), Exception: exception})
				continue
			}
			points.Add(float64(geo.Count(it.geometry)))
			result.Geometries = append(result.Geometries, write(it.geometry, it.kind, c.options.encodings))
		}
	}
	return &xroute.FetchConvertGeometriesResponse{Result: result}, nil
}

// The defaults and bounds of watchJob (contract 3).
const (
	defaultTimeout  = 10 * time.Second
	defaultInterval = time.Second
	minInterval     = 250 * time.Millisecond
	maxInterval     = 50 * time.Second
)

func (x *exchange) watchJob(r *xroute.WatchJob) (xroute.Response, error) {
	s := x.service
	interval, timeout, err := watchTimes(r.Options, s.cfg.Jobs.MaxPoll)
	if err != nil {
		return nil, err
	}
	if apiErr := s.watches.Acquire(x.client.Owner, 1); apiErr != nil {
		return nil, apiErr
	}
	defer s.watches.Release(x.client.Owner, 1)
	discardUnquoted(r)
	return &xroute.WatchJobResponse{Result: jobOf(s.jobs.watch(x.client.Owner, r.ID, interval, timeout))}, nil
}

// discardUnquoted truncates what the response and the log will quote of a request, and discards the
// rest. Otherwise, each request that waits could use as much memory as the largest body.
func discardUnquoted(r *xroute.WatchJob) {
	texts := []*string{&r.ID} // truncation never changes our own IDs
	if caller := r.CallerContext; caller != nil {
		caller.Properties = nil
		texts = append(texts, caller.Log1, caller.Log2, caller.Log3)
	}
	for _, text := range texts {
		if text != nil {
			*text = contract.Echo(*text)
		}
	}
}

// watchTimes returns the interval at which a watch checks for progress, and its maximum duration.
func watchTimes(o *xroute.WatchOptions, limit time.Duration) (interval, timeout time.Duration, err error) {
	interval, timeout = defaultInterval, defaultTimeout
	if o != nil && o.ProgressUpdatePeriod != nil {
		interval = min(max(time.Duration(*o.ProgressUpdatePeriod)*time.Millisecond, minInterval), maxInterval)
	}
	if o != nil && o.MaximumPollingPeriod != nil {
		timeout = time.Duration(*o.MaximumPollingPeriod) * time.Millisecond
	}
	if timeout < 0 {
		const path = "options/@maximumPollingPeriod"
		message := fmt.Sprintf("%s is %d: it must be 0 or more milliseconds", path, *o.MaximumPollingPeriod)
		return 0, 0, &failure{class: illegal, context: []string{path}, message: message}
	}
	return interval, min(timeout, limit), nil
}

// jobOf converts p to an xroute.Job. An unknown job has no progress.
func jobOf(p progress) xroute.Job {
	p.id = contract.Echo(p.id) // never truncates our own IDs
	j := xroute.Job{ID: &p.id, Status: p.status, ElapsedTime: int32(min(p.elapsed.Milliseconds(), math.MaxInt32))}
	if p.status != unknown {
		j.Progress = &xroute.BulkProgress{Failed: int32(p.failed), Remaining: int32(p.remaining), Successful: int32(p.successful)}
	}
	return j
}
