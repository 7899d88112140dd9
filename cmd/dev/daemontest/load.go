package daemontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
)

// Response is the response to a batch: a 207 has a Result, and others have an error (contract 1.1).
type Response struct {
	Status int
	Header http.Header
	contract.Result
	ErrorCode   string `json:"errorCode"`
	Description string `json:"description"`
}

// Post sends a batch.
func (d *Trafficd) Post(ctx context.Context, body, idempotencyKey string) (Response, error) {
	return d.PostPacked(ctx, http.DefaultClient, compress.Gzip(body), idempotencyKey)
}

// PostPacked sends a compressed batch with a client.
func (d *Trafficd) PostPacked(ctx context.Context, client *http.Client, packed []byte, idempotencyKey string) (Response, error) {
	var headers []string
	if idempotencyKey != "" {
		headers = []string{"Idempotency-Key", idempotencyKey}
	}
	r, err := launch.Post(ctx, client, "http://"+d.API, Key, packed, headers...)
	if err != nil {
		return Response{}, err
	}
	a := Response{Status: r.Status, Header: r.Header}
	return a, json.Unmarshal(r.Body, &a)
}

// KeyOf returns the Idempotency-Key of a batch.
func KeyOf(batch int) string { return fmt.Sprint("batch-", batch) }

// Load is a set of clients that send batches of unique items. A client repeats a batch until it
// gets a 207.
type Load struct {
	t        *testing.T
	address  string
	expected func(error) bool // reports whether a request may fail like this before its response
	promised *Ledger
	next     atomic.Int64
	Rejected atomic.Int64
	stopping atomic.Bool
	clients  sync.WaitGroup
}

// NeverFails reports that the clients of a Load expect no error before a response.
func NeverFails(error) bool { return false }

// MayBeRefused reports whether an error is that of a daemon that does not run, or that stops before
// it has accepted the connection.
func MayBeRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
}

// MayBeCut reports that the clients of a Load expect any error before a response.
func MayBeCut(error) bool { return true }

// StartLoad starts clients, half of which keep their connections, until Stop.
func StartLoad(t *testing.T, promised *Ledger, address string, clients int, expected func(error) bool) *Load {
	l := &Load{t: t, address: address, expected: expected, promised: promised}
	for n := range clients {
		transport := &http.Transport{DisableKeepAlives: n%2 == 0, MaxConnsPerHost: 1}
		l.clients.Go(func() {
			defer transport.CloseIdleConnections()
			for !l.stopping.Load() {
				l.sendUntilAccepted(&http.Client{Transport: transport, Timeout: time.Minute})
			}
		})
	}
	t.Cleanup(func() { // if the test has failed
		l.stopping.Store(true)
		l.clients.Wait()
	})
	return l
}

// Stop waits until each client has finished its batch.
func (l *Load) Stop() {
	l.stopping.Store(true)
	l.clients.Wait()
	l.t.Logf("%d batches; %d 503 responses", l.next.Load(), l.Rejected.Load())
	require.False(l.t, l.t.Failed())
}

// Take returns the number of the next batch.
func (l *Load) Take() int { return int(l.next.Add(1) - 1) }

// AwaitProgress waits until 50 more batches have got a 207.
func (l *Load) AwaitProgress(d *Trafficd) {
	d.T.Helper()
	before := l.promised.Len()
	d.Eventually(func() bool { return l.promised.Len() > before+50 }, "more batches")
}

func (l *Load) sendUntilAccepted(client *http.Client) {
	const size = 100
	batch := l.Take()
	packed, target := compress.Gzip(BatchNumber(batch, size)), &Trafficd{Daemon: launch.Daemon{API: l.address}}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var begun atomic.Bool
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotFirstResponseByte: func() { begun.Store(true) }})
		a, err := target.PostPacked(ctx, client, packed, KeyOf(batch))
		switch {
		case err != nil && !begun.Load() && l.expected(err): // until the daemon is back
		case err != nil:
			l.t.Errorf("batch %d: %v (response begun: %v)", batch, err, begun.Load())
			return
		case a.Status == http.StatusMultiStatus && a.Accepted == size:
			l.promised.Add(l.t, batch, a)
			return
		case (a.Status == http.StatusServiceUnavailable || a.Status == http.StatusConflict) && a.Header.Get("Retry-After") != "":
			l.Rejected.Add(1)
		default:
			l.t.Errorf("batch %d: %+v", batch, a)
			return
		}
	}
	l.t.Errorf("batch %d was not accepted", batch)
}
