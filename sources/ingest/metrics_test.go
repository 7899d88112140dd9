package ingest

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/metrics"
	"trafficd/schemas/contract"
)

// TestErrorsAreCounted checks that each outcome other than a 207 is counted under its own code.
func TestErrorsAreCounted(t *testing.T) {
	for code, counter := range batches {
		if counter == nil || contract.Code(code) == contract.OK {
			continue
		}
		before := testutil.ToFloat64(counter)
		countError(contract.NewError(contract.Code(code), "for a test"))
		require.Equal(t, before+1, testutil.ToFloat64(counter), contract.Code(code).String())
	}
	require.NotNil(t, batches[contract.Forbidden], "the product instance has no feed")
	require.NotNil(t, batches[contract.MissingField])
	require.Nil(t, batches[contract.UnknownDetector])
	require.Nil(t, itemsRejected[contract.OK])
	before := testutil.ToFloat64(noResponse)
	countError(batch.ErrNoResponse)
	require.Equal(t, before+1, testutil.ToFloat64(noResponse))
}

func TestClientMetrics(t *testing.T) {
	e := &Endpoint{}
	a, b := &contract.Client{Name: "a", Rights: contract.RightIngest}, &contract.Client{Name: "b", Rights: contract.RightForecast}
	e.UseClients([]*contract.Client{a, b})
	r := &batch.Result{Items: 3, Accepted: 2}
	r.Add(1, contract.UnknownDetector, contract.FieldDetectorCode, []byte("x"))
	count := func() {
		e.count("a", r)
		e.count("b", r) // has no right to send batches
	}
	count()
	require.Zero(t, testing.AllocsPerRun(1000, count)) // many runs, because other goroutines allocate too
	require.Equal(t, 1002.0, testutil.ToFloat64(clientBatches.WithLabelValues("a")))
	require.Equal(t, 2004.0, testutil.ToFloat64(clientAccepted.WithLabelValues("a")))
	require.Equal(t, 1002.0, testutil.ToFloat64(clientRejected.WithLabelValues("a")))
	require.Positive(t, testutil.ToFloat64(clientLast.WithLabelValues("a")))
	require.Equal(t, 1, testutil.CollectAndCount(clientBatches))
	require.Equal(t, 1, testutil.CollectAndCount(clientPeriod))

	e.UseClients([]*contract.Client{a})
	require.Equal(t, 1002.0, testutil.ToFloat64(clientBatches.WithLabelValues("a")), "a reload keeps the counts")
	require.Equal(t, 1001, (*e.clients.Load())["a"].pace.period.count, "a reload keeps the gaps")
	clients := e.clients.Load()
	e.warned.Store("a", struct{}{})
	e.UseClients(nil)
	_, warned := e.warned.Load("a")
	require.False(t, warned, "the names of removed keys do not accumulate")
	removed := e.clients.Swap(clients)
	count() // a request that loaded the clients before the removal
	e.clients.Store(removed)
	for _, vec := range []metrics.Collector{clientBatches, clientAccepted, clientRejected, clientLast, clientPeriod, clientNewest, clientLag} {
		require.Zero(t, testutil.CollectAndCount(vec), "the key was removed")
	}
	count() // a request that was in progress
}

func TestClientPeriod(t *testing.T) {
	// f records a batch, and another one after each of the gaps, which are in seconds. It requires
	// the last estimate to be between low and high.
	f := func(low, high float64, gaps ...float64) {
		t.Helper()
		var p usual
		now := time.Now()
		seconds, known := p.observe(time.Time{}, now)
		for _, gap := range gaps {
			require.Equal(t, known, p.count >= usualMinimum)
			last := now
			now = now.Add(time.Duration(gap * float64(time.Second)))
			seconds, known = p.observe(last, now)
		}
		require.True(t, known)
		require.GreaterOrEqual(t, seconds, low)
		require.LessOrEqual(t, seconds, high)
	}
	repeat := func(n int, gaps ...float64) []float64 { return slices.Repeat(gaps, n) }
	f(60, 60, repeat(9, 60)...)
	f(59, 60.1, repeat(20, 60, .1, .1, .2)...)                               // bursts of four batches
	f(59, 61, repeat(50, 55, 65)...)                                         // jitter
	f(60, 70, append(append(repeat(50, 60), 6*3600), repeat(500, 60)...)...) // an outage is forgotten
	f(850, 950, append(repeat(50, 60), repeat(20, 900)...)...)               // a new period
}

// TestClientFreshness checks that the newest interval of a client, and the lag that is usual for
// it, follow batches with newer intervals only, and that a detector whose clock is ahead does not
// hide that nothing newer comes.
func TestClientFreshness(t *testing.T) {
	const client = "fresh"
	var p pace
	start := time.Unix(1_800_000_000, 0)
	newest := func(at time.Time) float64 { return at.Sub(start).Seconds() - 90 }
	send := func(minute int, to time.Time) time.Time {
		now := start.Add(time.Duration(minute) * time.Minute)
		p.update(client, now, to.UnixNano())
		return now
	}
	for minute := range 60 { // an interval every 5 minutes, 90 s late; between them, the batch has nothing new
		send(minute, start.Add(time.Duration(minute/5*5)*time.Minute-90*time.Second))
	}
	gauge := func() float64 {
		return testutil.ToFloat64(clientNewest.WithLabelValues(client)) - float64(start.Unix())
	}
	lag := func() float64 { return testutil.ToFloat64(clientLag.WithLabelValues(client)) }
	require.InDelta(t, newest(start.Add(55*time.Minute)), gauge(), 1e-3)
	require.InDelta(t, 390, lag(), 1e-3)
	require.InDelta(t, 60, testutil.ToFloat64(clientPeriod.WithLabelValues(client)), 1e-3)
	for minute := range 60 {
		p.update(client, send(60+minute, start.Add(55*time.Minute-90*time.Second)), 0) // the same again, and a replay
	}
	require.InDelta(t, newest(start.Add(55*time.Minute)), gauge(), 1e-3)
	now := send(120, start.Add(3*time.Hour)) // a clock that is ahead
	require.InDelta(t, now.Sub(start).Seconds(), gauge(), 1e-3)
	send(126, start.Add(125*time.Minute))
	require.InDelta(t, 125*60, gauge(), 1e-3)
	p.remove(client)
	send(130, start.Add(130*time.Minute))
	require.Zero(t, testutil.CollectAndCount(clientNewest))
}

// TestDryRunsAreNotCounted checks that a dry run changes no counter of batches or items.
func TestDryRunsAreNotCounted(t *testing.T) {
	var h fasthttp.RequestHeader
	h.Set("Prefer", "validate-only")
	unavailable := batches[contract.ServiceUnavailable]
	before := testutil.ToFloat64(unavailable)
	e := New(DefaultConfig(), notReady{}, zerolog.Nop())
	require.NotNil(t, e.Admit(&contract.Client{}, &h))
	require.Equal(t, before, testutil.ToFloat64(unavailable))
	h.Del("Prefer")
	require.NotNil(t, e.Admit(&contract.Client{}, &h))
	require.Equal(t, before+1, testutil.ToFloat64(unavailable))
}

type notReady struct{ Pipeline }

func (notReady) Ready(string) *contract.APIError {
	return contract.Unavailable("for a test", time.Second)
}
