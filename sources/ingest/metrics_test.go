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
	require.Equal(t, 1001, (*e.clients.Load())["a"].period.gaps, "a reload keeps the gaps")
	clients := e.clients.Load()
	e.warned.Store("a", struct{}{})
	e.UseClients(nil)
	_, warned := e.warned.Load("a")
	require.False(t, warned, "the names of removed keys do not accumulate")
	removed := e.clients.Swap(clients)
	count() // a request that loaded the clients before the removal
	e.clients.Store(removed)
	for _, vec := range []metrics.Collector{clientBatches, clientAccepted, clientRejected, clientLast, clientPeriod} {
		require.Zero(t, testutil.CollectAndCount(vec), "the key was removed")
	}
	count() // a request that was in progress
}

func TestClientPeriod(t *testing.T) {
	// f records a batch, and another one after each of the gaps, which are in seconds. It requires
	// the last estimate to be between low and high.
	f := func(low, high float64, gaps ...float64) {
		t.Helper()
		var p period
		now := time.Now()
		seconds, known := p.observe(now)
		for _, gap := range gaps {
			require.Equal(t, known, p.gaps >= periodGaps)
			now = now.Add(time.Duration(gap * float64(time.Second)))
			seconds, known = p.observe(now)
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
