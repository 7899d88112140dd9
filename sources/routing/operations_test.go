package routing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/xroute"
)

// startJob starts a job for points with these coordinates.
func (s *server) startJob(coordinates ...string) xroute.Job {
	s.t.Helper()
	return ask[*xroute.StartConvertGeometriesResponse](s, startMessage(coordinates...)).Result
}

func startMessage(coordinates ...string) string {
	list := ""
	for _, c := range coordinates {
		list += `<c:EncodedGeometry xsi:type="c:Point" wkt="POINT (` + c + `)"/>`
	}
	return envelope(`<r:startConvertGeometries><r:geometries>` + list + `</r:geometries>` + xmlOptions(`coordFormat="VENDOR_GEODECIMAL"`, "WKT") + `</r:startConvertGeometries>`)
}

// jobRequest returns a request for an operation on a job. rest follows the id.
func jobRequest(operation, id, rest string) string {
	return envelope(`<r:` + operation + `><r:id>` + id + `</r:id>` + rest + `</r:` + operation + `>`)
}

func watchOptions(timeout, interval int) string {
	return fmt.Sprintf(`<r:options maximumPollingPeriod="%d" progressUpdatePeriod="%d"/>`, timeout, interval)
}

func (s *server) watch(id, options string) xroute.Job {
	s.t.Helper()
	return ask[*xroute.WatchJobResponse](s, jobRequest("watchJob", id, options)).Result
}

// watchToTheEnd watches a job until it has ended. A watch may return earlier to report progress.
func (s *server) watchToTheEnd(id string) xroute.Job {
	s.t.Helper()
	for {
		if j := s.watch(id, ""); j.Status != xroute.StatusQueuing && j.Status != xroute.StatusRunning {
			return j
		}
	}
}

func (s *server) fetch(id string, headers ...string) xroute.ConvertedGeometries {
	s.t.Helper()
	return ask[*xroute.FetchConvertGeometriesResponse](s, jobRequest("fetchConvertGeometries", id, ""), headers...).Result
}

// requireUnknown requires the response for an unknown id, which is not a fault.
func requireUnknown(t *testing.T, id string, j xroute.Job) {
	t.Helper()
	require.Equal(t, xroute.Job{ID: &id, Status: xroute.StatusUnknown}, j)
}

func TestJobFromStartToFetch(t *testing.T) {
	s := start(t, nil)
	j := s.startJob("8 48", "181 48", "x", "9 49")
	require.Contains(t, []xroute.JobStatus{xroute.StatusQueuing, xroute.StatusRunning, xroute.StatusSucceeded}, j.Status)
	require.GreaterOrEqual(t, len(*j.ID), 26)

	done := s.watchToTheEnd(*j.ID)
	require.Equal(t, xroute.StatusSucceeded, done.Status)
	require.Equal(t, &xroute.BulkProgress{Failed: 2, Successful: 2}, done.Progress)

	other := ask[*xroute.FetchConvertGeometriesResponse](s, jobRequest("fetchConvertGeometries", *j.ID, ""), "Authorization", "apiKey b").Result
	requireUnknown(t, *j.ID, other.Job)
	require.Nil(t, other.Geometries)

	r := s.fetch(*j.ID, "Authorization", "apiKey a2") // the client may have replaced its key in the meantime
	require.Equal(t, done, r.Job)
	require.Len(t, r.Geometries, 2)
	require.Equal(t, "POINT (800000 4800000)", *r.Geometries[0].Encoded().WKT)
	require.Equal(t, "POINT (900000 4900000)", *r.Geometries[1].Encoded().WKT)
	require.Len(t, r.Failures, 2)
	f := func(failure xroute.ConversionFailure, index int32, code xroute.ErrorCode) {
		t.Helper()
		require.Equal(t, index, failure.Index)
		require.IsType(t, &xroute.XServiceException{}, failure.Exception)
		stack := failure.Exception.Base().StackElement
		require.Equal(t, string(code), *stack.ErrorKey)
		require.Equal(t, place("geometries", int(index)), stack.Context[0])
	}
	f(r.Failures[0], 1, xroute.CodeCoordinateFormat)
	f(r.Failures[1], 2, xroute.CodeInvalidWKT)

	again := s.fetch(*j.ID)
	requireUnknown(t, *j.ID, again.Job)
	require.Nil(t, again.Geometries)
	requireUnknown(t, *j.ID, s.watch(*j.ID, watchOptions(0, 250)))
}

func TestJobsThatEndImmediately(t *testing.T) {
	s := start(t, nil)
	f := func(want xroute.JobStatus, fails int, coordinates ...string) {
		t.Helper()
		j := s.startJob(coordinates...)
		require.Equal(t, want, s.watchToTheEnd(*j.ID).Status)
		r := s.fetch(*j.ID)
		require.Equal(t, want, r.Job.Status)
		require.Len(t, r.Failures, fails)
		require.Len(t, r.Geometries, len(coordinates)-fails)
	}
	f(xroute.StatusSucceeded, 0)
	f(xroute.StatusSucceeded, 0, "1 1")
	f(xroute.StatusFailed, 1, "x")
	f(xroute.StatusFailed, 2, "x", "1 91")
}

// startGatedJob starts a job of client a. Its items end when the test sends their errors to
// work.gate.
func (s *server) startGatedJob(items int) (id string, work *gated) {
	s.t.Helper()
	work = newGated(items)
	p, err := s.service.jobs.start("city\x00client a", work.conversion)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { close(work.gate) })
	return p.id, work
}

func TestStopAndDelete(t *testing.T) {
	s := start(t, func(c *Config) { c.Jobs.Workers = 1 })
	id, work := s.startGatedJob(3)
	work.gate <- nil
	require.Eventually(t, func() bool {
		return s.watch(id, watchOptions(0, 250)).Progress.(*xroute.BulkProgress).Successful == 1
	}, waitLimit, time.Millisecond)

	waiting := s.startJob("8 48")
	require.Equal(t, xroute.StatusQueuing, s.watch(*waiting.ID, watchOptions(0, 250)).Status)
	early := s.fetch(*waiting.ID)
	require.Equal(t, xroute.StatusQueuing, early.Job.Status)
	require.Nil(t, early.Geometries)

	stopped := ask[*xroute.StopJobResponse](s, jobRequest("stopJob", *waiting.ID, "")).Result
	require.Equal(t, xroute.StatusFailed, stopped.Status, "no worker had started it")
	require.Equal(t, &xroute.BulkProgress{Failed: 1}, stopped.Progress)
	require.Equal(t, xroute.StatusFailed, s.watch(*waiting.ID, "").Status)
	r := s.fetch(*waiting.ID)
	require.Equal(t, xroute.StatusFailed, r.Job.Status)
	require.Empty(t, r.Geometries)
	require.Len(t, r.Failures, 1)
	require.IsType(t, &xroute.BusinessException{}, r.Failures[0].Exception)
	require.Regexp(t, "^stopped", *r.Failures[0].Exception.Base().StackElement.Message)
	requireUnknown(t, *waiting.ID, s.watch(*waiting.ID, watchOptions(0, 250)))

	for range 2 {
		gone := ask[*xroute.DeleteJobResponse](s, jobRequest("deleteJob", id, "")).Result
		require.Equal(t, xroute.StatusDeleted, gone.Status)
	}
	require.Equal(t, xroute.StatusDeleted, s.watch(id, "").Status)
	require.Equal(t, xroute.StatusDeleted, ask[*xroute.StopJobResponse](s, jobRequest("stopJob", id, "")).Result.Status)
	r = s.fetch(id)
	require.Equal(t, xroute.StatusDeleted, r.Job.Status)
	require.Nil(t, r.Geometries)

	requireUnknown(t, "none", ask[*xroute.StopJobResponse](s, jobRequest("stopJob", "none", "")).Result)
	requireUnknown(t, "none", ask[*xroute.DeleteJobResponse](s, jobRequest("deleteJob", "none", "")).Result)
}

// TestWatchEndsWithDrain checks that a watch ends with the drain, and does not block other
// requests before it.
func TestWatchEndsWithDrain(t *testing.T) {
	s := start(t, func(c *Config) { c.Concurrency = 1 })
	id, _ := s.startGatedJob(1)
	watched := make(chan xroute.Job)
	for range 3 {
		go func() { watched <- s.watch(id, watchOptions(60_000, 50_000)) }()
	}
	require.Eventually(t, func() bool { return s.service.watches.Total() == 3 }, waitLimit, time.Millisecond)
	requireUnknown(t, "none", s.watch("none", watchOptions(0, 250)))
	s.service.Drain()
	for range 3 {
		require.Equal(t, xroute.StatusRunning, (<-watched).Status)
	}
	require.Equal(t, xroute.StatusRunning, s.watch(id, "").Status)
}

func TestWatchTimes(t *testing.T) {
	f := func(timeout, interval *int32, wantInterval, wantTimeout time.Duration) {
		t.Helper()
		gotInterval, gotTimeout, err := watchTimes(&xroute.WatchOptions{MaximumPollingPeriod: timeout, ProgressUpdatePeriod: interval}, time.Minute)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{wantInterval, wantTimeout}, []time.Duration{gotInterval, gotTimeout})
	}
	f(nil, nil, time.Second, 10*time.Second)
	f(new(int32(0)), new(int32(0)), 250*time.Millisecond, 0)
	f(new(int32(1)), new(int32(-7)), 250*time.Millisecond, time.Millisecond)
	f(new(int32(60_000)), new(int32(251)), 251*time.Millisecond, time.Minute)
	f(new(int32(60_001)), new(int32(50_001)), 50*time.Second, time.Minute)
	interval, timeout, err := watchTimes(nil, 3*time.Second)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{time.Second, 3 * time.Second}, []time.Duration{interval, timeout})
}

// TestNoRoomForJob checks that the fault contains advice, and that a job that can never fit is an
// error of the client.
func TestNoRoomForJob(t *testing.T) {
	f := func(want string, class xroute.Exception, geometries int, change func(*Config)) {
		t.Helper()
		s := start(t, change)
		s.startGatedJob(1)
		fault, _ := s.requireFault(class, "", startMessage(strings.Split(strings.Repeat(",8 48", geometries)[1:], ",")...))
		require.Contains(t, fault.Text, want)
	}
	f("this client has 1 jobs", &xroute.UnexpectedException{}, 1, func(c *Config) { c.Jobs.Max = 3 })
	f("into several jobs", &xroute.IllegalParameterException{}, 2, func(c *Config) { c.Jobs.MaxBytes = 2048 })
}

// TestRestartForgetsJobs checks that a restart forgets all jobs.
func TestRestartForgetsJobs(t *testing.T) {
	before := start(t, nil)
	j := before.startJob("8 48")
	require.Equal(t, xroute.StatusSucceeded, before.watchToTheEnd(*j.ID).Status)
	after := start(t, nil)
	requireUnknown(t, *j.ID, after.watch(*j.ID, watchOptions(0, 250)))
	requireUnknown(t, *j.ID, after.fetch(*j.ID).Job)
}

// TestJobOfAnotherReplica checks that the error for a job of another replica names the cause.
func TestJobOfAnotherReplica(t *testing.T) {
	one := start(t, func(c *Config) { c.Jobs.Replica = "one" })
	two := start(t, func(c *Config) { c.Jobs.Replica = "two" })
	j := one.startJob("8 48")
	for _, operation := range []string{"watchJob", "fetchConvertGeometries", "stopJob", "deleteJob"} {
		_, place := two.requireFault(&xroute.IllegalParameterException{}, "", jobRequest(operation, *j.ID, ""))
		require.Contains(t, *place.Message, "another replica started this job")
	}
	require.Equal(t, xroute.StatusSucceeded, one.watchToTheEnd(*j.ID).Status)
	const uuid = "0123456789abcdef0123456789abcdef"
	require.Len(t, uuid, len(*j.ID))
	requireUnknown(t, uuid, one.watch(uuid, watchOptions(0, 250)))
}
