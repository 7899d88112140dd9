package routing

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/contract"
	"trafficd/schemas/xroute"
)

// TestSharesLeaveSomething: however many clients take all that they can get, the next one
// gets something, until there is nothing at all.
func TestSharesLeaveSomething(t *testing.T) {
	s := newShares(60, watches)
	f := func(client string, n, want int64, apiErr string) {
		t.Helper()
		for before := s.of[client]; ; before = s.of[client] {
			refused := s.take(client, n)
			if refused != nil {
				require.Equal(t, want, s.of[client])
				require.Contains(t, refused.Description, apiErr)
				require.Equal(t, refused, s.check(client, n))
				require.Equal(t, want, s.of[client], "after a apiErr")
				return
			}
			require.Equal(t, before+n, s.of[client])
		}
	}
	f("a", 1, 30, "this client has 30 watches of jobs, and with 1 more it would have more than it leaves to others: wait for ")
	f("b", 1, 15, "this client has 15 ")
	f("c", 1, 7, "this client has 7 ")
	f("d", 5, 5, "this client has 5 ")
	f("e", 5, 5, "and with 5 more ") // of 3 that are left
	f("f", 1, 0, "too many requests watch jobs: try again in a moment")
	s.exceed("e", 100)
	f("f", 1, 0, "too many")
	s.give("e", 105)
	f("f", 1, 1, "this client has 1 ")
	for client, n := range s.of {
		s.give(client, n)
	}
	require.Zero(t, s.all)
	f("a", 31, 31, "this client has 31 ")
}

// TestWatchingLeavesAPlace: whatever the settings, a client that watches as much as it may can
// still stop what it watches.
func TestWatchingLeavesAPlace(t *testing.T) {
	for requests := range int64(40) {
		for watching := range 40 {
			c := DefaultConfig()
			c.AdmissionRequests, c.MaxWatches = requests, watching
			if c.Validate() != nil {
				continue
			}
			p, w := newShares(c.AdmissionRequests, places), newShares(int64(c.MaxWatches), watches)
			for w.take("a", 1) == nil {
				require.Nil(t, p.take("a", 1), "%d of %d", watching, requests)
			}
			require.Nil(t, p.take("a", 1), "%d of %d", watching, requests)
		}
	}
}

// requireShareRefused wants the refusal of a client that has its share.
func requireShareRefused(t testing.TB, resp *http.Response, text []byte, what string) {
	t.Helper()
	requireRefusal(t, resp, text, 503, contract.ServiceUnavailable)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	require.Contains(t, string(text), "this client has "+what)
}

var asB = []string{"Authorization", "apiKey b"}

// TestSlowClientLeavesPlaces: one that does not send what it has begun has half of the places.
func TestSlowClientLeavesPlaces(t *testing.T) {
	s := start(t, func(c *Config) { c.AdmissionRequests, c.MaxWatches = 4, 1 })
	var slow []*peer
	for range 2 {
		slow = append(slow, s.dial(fmt.Sprintf("Content-Length: %d\r\n", len(simple))).send(simple[:1]))
	}
	require.Eventually(t, func() bool { return taken(s.service.places) == 2 }, patience, time.Millisecond)
	resp, text := s.post(simple)
	requireShareRefused(t, resp, text, "2 requests under way")
	ask[*xroute.ConvertGeometryResponse](s, simple, asB...)
	for _, p := range slow {
		resp, _ := p.send(simple[1:]).response()
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	ask[*xroute.ConvertGeometryResponse](s, simple)
}

// TestSlowClientLeavesMemory: its bodies are received into half of it.
func TestSlowClientLeavesMemory(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxBodyBytes, c.AdmissionBytes = 10_000, 80_000 })
	large := simple + strings.Repeat(" ", 9_000)
	f := func(sent, held int) {
		t.Helper()
		s.dial(fmt.Sprintf("Content-Length: %d\r\n", len(large))).send(large[:sent])
		require.Eventually(t, func() bool { return taken(s.service.memory) == int64(held) }, patience, time.Millisecond)
	}
	f(4097, 8192)
	for i := range 7 {
		f(1, 8192+(i+1)*4096)
	}
	resp, text := s.post(simple)
	requireShareRefused(t, resp, text, "36864 bytes of requests and answers, and with 4096 more")
	ask[*xroute.ConvertGeometryResponse](s, large, asB...)
}

// TestClientThatDoesNotRead has its share of the memory for answers, and no more. Others are
// served meanwhile, also what is large, and it is as soon as it reads.
func TestClientThatDoesNotRead(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxBodyBytes, c.AdmissionBytes = 4<<20, 32<<20 })
	points := strings.Repeat("8 48, ", 60_000) + "8 48"
	large := convert(`LineString" wkt="LINESTRING (`+points+`)"`, "", options(`coordFormat="VENDOR_MERCATOR"`, "PLAIN", "WKB", "WKT", "KML"), "")
	refused := refusals[contract.ServiceUnavailable].Get()
	var peers []*peer
	for range 6 {
		p := s.dial(fmt.Sprintf("Content-Length: %d\r\n", len(large)))
		require.NoError(t, p.Conn.(*net.TCPConn).SetReadBuffer(256<<10)) // no answer has to fit into what is on its way
		peers = append(peers, p.send(large))
	}
	require.Eventually(t, func() bool { return refusals[contract.ServiceUnavailable].Get() == refused+5 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return taken(s.service.places) == 0 }, patience, time.Millisecond)
	require.Greater(t, taken(s.service.memory), int64(8<<20))

	for range 3 {
		ask[*xroute.ConvertGeometryResponse](s, large, append(asB, "Accept-Encoding", "identity")...)
	}
	ask[*xroute.ConvertGeometryResponse](s, simple)
	resp, text := s.post(large)
	requireShareRefused(t, resp, text, "")
	require.Contains(t, string(text), "read the answers that wait")

	served := 0
	for _, p := range peers {
		resp, text := p.response()
		if resp.StatusCode == http.StatusOK {
			served++
			continue
		}
		requireShareRefused(t, resp, text, "")
	}
	require.Equal(t, 1, served)
	require.Eventually(t, func() bool { return taken(s.service.memory) == 0 }, patience, time.Millisecond)
	ask[*xroute.ConvertGeometryResponse](s, large)
}

// TestFetchThatHasToWait: a job whose answer there is no memory for can be fetched later.
func TestFetchThatHasToWait(t *testing.T) {
	s := start(t, nil)
	j := s.startJob("8 48")
	require.Equal(t, xroute.StatusSucceeded, s.watch(*j.ID, "").Status)
	request := about("fetchConvertGeometries", *j.ID, "")
	p := s.dial(fmt.Sprintf("Content-Length: %d\r\n", len(request))).send(request[:1])
	require.Eventually(t, func() bool { return taken(s.service.memory) > 0 }, patience, time.Millisecond)
	waiting := newAnswer(s.service.memory, "client a", make([]byte, s.service.cfg.AdmissionBytes/2))
	resp, text := p.send(request[1:]).response()
	requireShareRefused(t, resp, text, "")
	require.NoError(t, waiting.Close())
	require.Len(t, s.fetch(*j.ID).Geometries, 1)
}

// TestWatchingClientLeavesWatches, a half of them.
func TestWatchingClientLeavesWatches(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxWatches = 4 })
	id, _ := s.hold(1)
	watched := make(chan xroute.Job)
	for range 2 {
		go func() { watched <- s.watch(id, watchOptions(60_000, 50_000)) }()
	}
	require.Eventually(t, func() bool { return taken(s.service.watches) == 2 }, patience, time.Millisecond)
	resp, text := s.post(about("watchJob", id, ""))
	requireShareRefused(t, resp, text, "2 watches of jobs")
	other := ask[*xroute.WatchJobResponse](s, about("watchJob", id, ""), asB...).Result
	requireUnknown(t, id, other)
	s.service.Drain()
	for range 2 {
		require.Equal(t, xroute.StatusRunning, (<-watched).Status)
	}
}
