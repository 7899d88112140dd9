package edges

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/launch"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
	"trafficd/sources/ingest"
)

// neighbours are the keys of the other clients in TestNeighboursBehindEdge. Each proxy sends some
// of them to each replica.
const neighbours = 8

// TestNeighboursBehindEdge checks that the requests of some clients take no replica away from
// others behind the shipped proxies: large bodies without a valid key, and requests for forecasts
// that are not there yet.
func TestNeighboursBehindEdge(t *testing.T) {
	for _, edge := range edges {
		t.Run(edge.name, func(t *testing.T) {
			var replicas []*daemontest.Trafficd
			for range 2 {
				d := daemontest.New(t)
				d.SetForecastFile("missing.ndjson")
				entries := []string{daemontest.KeyEntry("viewer", "forecast", "UTC")}
				for i := range neighbours {
					entries = append(entries, daemontest.KeyEntry(fmt.Sprint("neighbour-", i), "ingest", "UTC"))
				}
				d.Keys(entries...)
				d.Run().Await(http.StatusOK)
				replicas = append(replicas, d)
			}
			address, await := edge.start(t, replicas)
			await()
			large := bytes.Repeat([]byte("x"), 4<<20)
			f := func(attackers int, attack func(ctx context.Context) (status int)) {
				t.Helper()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var all sync.WaitGroup
				var mu sync.Mutex
				attacks, others := map[int]int{}, map[int]int{}
				for range attackers {
					all.Go(func() {
						for ctx.Err() == nil {
							status := attack(ctx)
							mu.Lock()
							attacks[status]++
							mu.Unlock()
						}
					})
				}
				var own sync.WaitGroup
				for i := range neighbours {
					own.Go(func() {
						for n := range 40 {
							status, _ := edgeRequest(t.Context(), http.MethodPost, "http://"+address+ingest.Path, fmt.Sprint("neighbour-", i),
								compress.Gzip(daemontest.BatchNumber(i*40+n, 10)))
							mu.Lock()
							others[status]++
							mu.Unlock()
							time.Sleep(25 * time.Millisecond)
						}
					})
				}
				own.Wait()
				stop()
				all.Wait()
				t.Logf("%s: others %v, attackers %v", edge.name, others, attacks)
				require.Equal(t, map[int]int{http.StatusMultiStatus: neighbours * 40}, others)
			}
			f(2, func(ctx context.Context) int {
				status, _ := edgeRequest(ctx, http.MethodPost, "http://"+address+ingest.Path, "unknown", large)
				return status
			})
			f(1, func(ctx context.Context) int {
				status, _ := edgeRequest(ctx, http.MethodGet, "http://"+address+contract.ForecastPath, "viewer", nil)
				time.Sleep(25 * time.Millisecond)
				return status
			})
		})
	}
}

// edgeRequest returns the status of a request, or 0 without a response.
func edgeRequest(ctx context.Context, method, url, key string, body []byte) (status int, err error) {
	headers := []string{"Authorization", "apiKey " + key}
	if method == http.MethodPost {
		headers = append(headers, "Content-Encoding", "gzip")
	}
	r, err := launch.Request(ctx, http.DefaultClient, method, url, body, headers...)
	return r.Status, err
}

// TestIdleBehindEdge checks that the shipped proxies keep a connection that is idle for as long as
// the daemon keeps it, so that clients lose no request that they send just before.
func TestIdleBehindEdge(t *testing.T) {
	t.Parallel()
	replicas := []*daemontest.Trafficd{daemontest.New(t).Run(), daemontest.New(t).Run()}
	for _, d := range replicas {
		d.Await(http.StatusOK)
	}
	conns := make([]net.Conn, len(edges))
	post := func(t *testing.T, edge, batch int) {
		body := string(compress.Gzip(daemontest.BatchNumber(batch, 10)))
		_, err := io.WriteString(conns[edge], "POST "+ingest.Path+" HTTP/1.1\r\nHost: h\r\nAuthorization: apiKey "+daemontest.Key+
			"\r\nContent-Encoding: gzip\r\nContent-Length: "+fmt.Sprint(len(body))+"\r\n\r\n"+body)
		require.NoError(t, err)
		r, err := http.ReadResponse(bufio.NewReader(conns[edge]), nil)
		require.NoError(t, err, "batch %d", batch)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusMultiStatus, r.StatusCode, strings.TrimSpace(string(text)))
	}
	for i, edge := range edges {
		address, await := edge.start(t, replicas)
		await()
		c, err := net.Dial("tcp", address)
		require.NoError(t, err, edge.name)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(5*time.Minute)))
		conns[i] = c
		post(t, i, 2*i)
	}
	time.Sleep(76 * time.Second) // the time is what the test is about; all connections spend it together
	for i, edge := range edges {
		t.Run(edge.name, func(t *testing.T) { post(t, i, 2*i+1) })
	}
}
