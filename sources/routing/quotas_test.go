package routing

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/admission"
	"trafficd/schemas/contract"
	"trafficd/schemas/xroute"
)

// TestWatchesLeaveSlot checks that a client with as many watches as it may have can still stop a
// job.
func TestWatchesLeaveSlot(t *testing.T) {
	c := DefaultConfig()
	p, w := admission.New(c.AdmissionRequests, slots), admission.New(int64(c.MaxWatches), watches)
	for w.Acquire("a", 1) == nil {
		require.Nil(t, p.Acquire("a", 1))
	}
	require.Nil(t, p.Acquire("a", 1))
}

// requireQuotaExceeded requires the 503 of a client whose quota is used up.
func requireQuotaExceeded(t testing.TB, resp *http.Response, text []byte, what string) {
	t.Helper()
	requireAPIError(t, resp, text, 503, contract.ServiceUnavailable)
	require.Regexp(t, "^[12]$", resp.Header.Get("Retry-After"))
	require.Contains(t, string(text), "this client has "+what)
}

var asB = []string{"Authorization", "apiKey b"}

// TestClientsTakeTurns checks that a client with many waiting requests does not delay the request
// of another client until all of them have been processed.
func TestClientsTakeTurns(t *testing.T) {
	s := start(t, func(c *Config) { c.Concurrency = 1 })
	var order []string // clients whose requests are processed; only one is at a time
	started, proceed := make(chan struct{}, 5), make(chan struct{})
	s.service.operate = func(x *exchange) (xroute.Response, error) {
		started <- struct{}{}
		<-proceed
		order = append(order, x.client.Name)
		return x.operate()
	}
	done := make(chan struct{})
	post := func(waiting int, headers ...string) {
		go func() {
			ask[*xroute.ConvertGeometryResponse](s, simple, headers...)
			done <- struct{}{}
		}()
		require.Eventually(t, func() bool { return s.service.cpu.Depth() == waiting }, waitLimit, time.Millisecond)
	}
	post(0)
	<-started
	for i := range 3 {
		post(i + 1)
	}
	post(4, asB...)
	close(proceed)
	for range 5 {
		<-done
	}
	require.Equal(t, []string{"client a", "client a", "client b", "client a", "client a"}, order)
}

// TestSlowClientLeavesSlots checks that a client that does not complete its bodies gets at most
// half of the slots.
func TestSlowClientLeavesSlots(t *testing.T) {
	s := start(t, func(c *Config) { c.AdmissionRequests, c.MaxWatches = 4, 1 })
	var slow []*peer
	for range 2 {
		slow = append(slow, s.dial(fmt.Sprintf("Content-Length: %d\r\n", len(simple))).send(simple[:1]))
	}
	require.Eventually(t, func() bool { return s.service.receiver.Slots.Total() == 2 }, waitLimit, time.Millisecond)
	resp, text := s.post(simple)
	requireQuotaExceeded(t, resp, text, "2 requests in progress")
	ask[*xroute.ConvertGeometryResponse](s, simple, asB...)
	for _, p := range slow {
		resp, _ := p.send(simple[1:]).response()
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	ask[*xroute.ConvertGeometryResponse](s, simple)
}

// TestSlowClientLeavesMemory checks that the bodies of a client that does not complete them take
// at most half of the memory.
func TestSlowClientLeavesMemory(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxBodyBytes, c.AdmissionBytes = 10_000, 80_000 })
	large := simple + strings.Repeat(" ", 9_000)
	f := func(sent, held int) {
		t.Helper()
		s.dial(fmt.Sprintf("Content-Length: %d\r\n", len(large))).send(large[:sent])
		require.Eventually(t, func() bool { return s.service.memory.Total() == int64(held) }, waitLimit, time.Millisecond)
	}
	f(4097, 8192)
	for i := range 7 {
		f(1, 8192+(i+1)*4096)
	}
	resp, text := s.post(simple)
	requireQuotaExceeded(t, resp, text, "36864 bytes of requests and responses; 4096 more")
	ask[*xroute.ConvertGeometryResponse](s, large, asB...)
}

// TestClientThatDoesNotReadResponses checks that a client gets at most its quota of the memory for
// responses, that other clients get responses in the meantime, even large ones, and that the
// client is served again when it reads.
func TestClientThatDoesNotReadResponses(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxBodyBytes, c.AdmissionBytes = 1<<20, 8<<20 })
	points := strings.Repeat("8 48, ", 15_000) + "8 48"
	large := convert(`LineString" wkt="LINESTRING (`+points+`)"`, "", xmlOptions(`coordFormat="VENDOR_MERCATOR"`, "PLAIN", "WKB", "WKT", "KML"), "")
	before := testutil.ToFloat64(apiErrors.WithLabelValues(contract.ServiceUnavailable.String()))
	var peers []*peer
	for range 6 {
		p := s.dial(fmt.Sprintf("Content-Length: %d\r\n", len(large)))
		require.NoError(t, p.Conn.(*net.TCPConn).SetReadBuffer(64<<10)) // a response must not fit into socket buffers
		peers = append(peers, p.send(large))
	}
	require.Eventually(t, func() bool {
		return testutil.ToFloat64(apiErrors.WithLabelValues(contract.ServiceUnavailable.String())) == before+5
	}, waitLimit, time.Millisecond)
	require.Eventually(t, func() bool { return s.service.receiver.Slots.Total() == 0 }, waitLimit, time.Millisecond)
	require.Greater(t, s.service.memory.Total(), int64(2<<20))

	for range 3 {
		ask[*xroute.ConvertGeometryResponse](s, large, append(asB, "Accept-Encoding", "identity")...)
	}
	ask[*xroute.ConvertGeometryResponse](s, simple)
	resp, text := s.post(large)
	requireQuotaExceeded(t, resp, text, "")
	require.Contains(t, string(text), "read the pending responses")

	served := 0
	for _, p := range peers {
		resp, text := p.response()
		if resp.StatusCode == http.StatusOK {
			served++
			continue
		}
		requireQuotaExceeded(t, resp, text, "")
	}
	require.Equal(t, 1, served)
	require.Eventually(t, func() bool { return s.service.memory.Total() == 0 }, waitLimit, time.Millisecond)
	ask[*xroute.ConvertGeometryResponse](s, large)
}

// TestFetchWithoutMemory checks that without memory for the response, a job can be fetched later.
func TestFetchWithoutMemory(t *testing.T) {
	s := start(t, nil)
	j := s.startJob("8 48")
	require.Equal(t, xroute.StatusSucceeded, s.watchToTheEnd(*j.ID).Status)
	request := jobRequest("fetchConvertGeometries", *j.ID, "")
	p := s.dial(fmt.Sprintf("Content-Length: %d\r\n", len(request))).send(request[:1])
	require.Eventually(t, func() bool { return s.service.memory.Total() > 0 }, waitLimit, time.Millisecond)
	waiting := newResponseBody(s.service.memory, "city\x00client a", make([]byte, s.service.cfg.AdmissionBytes/2))
	resp, text := p.send(request[1:]).response()
	requireQuotaExceeded(t, resp, text, "")
	require.NoError(t, waiting.Close())
	require.Len(t, s.fetch(*j.ID).Geometries, 1)
}

// TestClientGetsHalfOfTheWatches checks that one client gets half of the watches.
func TestClientGetsHalfOfTheWatches(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxWatches = 4 })
	id, _ := s.startGatedJob(1)
	watched := make(chan xroute.Job)
	for range 2 {
		go func() { watched <- s.watch(id, watchOptions(60_000, 50_000)) }()
	}
	require.Eventually(t, func() bool { return s.service.watches.Total() == 2 }, waitLimit, time.Millisecond)
	resp, text := s.post(jobRequest("watchJob", id, ""))
	requireQuotaExceeded(t, resp, text, "2 watches of jobs")
	other := ask[*xroute.WatchJobResponse](s, jobRequest("watchJob", id, ""), asB...).Result
	requireUnknown(t, id, other)
	s.service.Drain()
	for range 2 {
		require.Equal(t, xroute.StatusRunning, (<-watched).Status)
	}
}

// TestWatchesUseLittleMemory checks that requests do not use memory for their content while they
// wait.
func TestWatchesUseLittleMemory(t *testing.T) {
	const watching, size = 16, 1 << 20
	s := start(t, nil)
	waits, long := watchOptions(60_000, 50_000), strings.Repeat("x", size)
	list := strings.Repeat("<v:CallerContextProperty/>", size/len("<v:CallerContextProperty/>"))
	bodies := []string{
		zip(jobRequest("watchJob", long, waits)),
		zip(jobRequest("watchJob", "none", waits+`<r:callerContext log1="`+long+`"><v:wrappedProperties/></r:callerContext>`)),
		zip(jobRequest("watchJob", "none", waits+`<r:callerContext><v:wrappedProperties>`+list+`</v:wrappedProperties></r:callerContext>`)),
	}
	before, done := heap(), make(chan struct{})
	for i := range watching {
		go func() {
			defer func() { done <- struct{}{} }()
			s.post(bodies[i%len(bodies)], "Content-Encoding", "gzip")
		}()
	}
	require.Eventually(t, func() bool { return s.service.watches.Total() == watching }, waitLimit, time.Millisecond)
	require.Less(t, int64(heap()-before), int64(watching*size/4))
	s.service.Drain()
	for range watching {
		<-done
	}
}

// TestClientKeysShareQuota checks that a second key of the client does not get another
// quota.
func TestClientKeysShareQuota(t *testing.T) {
	s := start(t, nil)
	const owner = "city\x00client a"
	for s.service.memory.Acquire(owner, firstBytes) == nil { // up to its quota
		defer s.service.memory.Release(owner, firstBytes)
	}
	resp, text := s.post(simple, "Authorization", "apiKey a2")
	requireQuotaExceeded(t, resp, text, "")
	ask[*xroute.ConvertGeometryResponse](s, simple, asB...)
}
