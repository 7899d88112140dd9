package main

import (
	"bufio"
	"bytes"
	"encoding/json"
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
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/sources/ingest"
)

// TestLostResponse tests a client that loses its connection at any point of the exchange and
// retries with the same Idempotency-Key, even after a restart of the daemon. It gets a 207,
// further retries get the same Batch-Id, and the items are in both stores once (contract 1.5).
func TestLostResponse(t *testing.T) {
	d, c, k := onRealStores(t)
	d.start().Await(http.StatusOK)
	interruptions := []func(){
		func() {},
		func() { d.kill(); d.start().Await(http.StatusOK) },
		func() { d.Terminate(); d.start().Await(http.StatusOK) },
	}
	const size, rounds = 300, 3
	var promised ledger
	next := 0
	for range rounds {
		for _, interrupt := range interruptions {
			var retries sync.WaitGroup
			batches := d.loseResponses(&next, size)
			interrupt()
			for _, batch := range batches {
				retries.Go(func() { d.resendUntilAccepted(&promised, batch, size) })
			}
			retries.Wait()
			require.False(t, t.Failed())
		}
	}
	d.awaitDelivered()
	for batch := range next { // delivered batches are remembered too
		d.resendUntilAccepted(&promised, batch, size)
	}
	d.awaitDelivered()
	promised.Check(t, c, k)
}

// loseResponses concurrently sends a batch for each point at which a connection can be lost, and
// returns the numbers of the batches.
func (d *process) loseResponses(next *int, size int) (batches []int) {
	var sending sync.WaitGroup
	defer sending.Wait()
	for _, cut := range []func(r rawRequest) (sent []byte, read int){
		func(r rawRequest) ([]byte, int) { return r.header, 0 },
		func(r rawRequest) ([]byte, int) { return r.upTo(len(r.body) / 2), 0 },
		func(r rawRequest) ([]byte, int) { return r.upTo(len(r.body) - 1), 0 },
		func(r rawRequest) ([]byte, int) { return r.upTo(len(r.body)), 0 },
		func(r rawRequest) ([]byte, int) { return r.upTo(len(r.body)), 1 },
		func(r rawRequest) ([]byte, int) { return r.upTo(len(r.body)), 40 },
	} {
		for _, reset := range []bool{false, true} {
			batch := *next
			*next++
			batches = append(batches, batch)
			sending.Go(func() {
				sent, read := cut(d.raw(daemontest.BatchNumber(batch, size), daemontest.KeyOf(batch)))
				d.cutOff(sent, read, reset)
			})
		}
	}
	return batches
}

// cutOff sends and reads some bytes, then closes or resets the connection.
func (d *process) cutOff(send []byte, read int, reset bool) {
	c, err := net.Dial("tcp", d.API)
	if err != nil {
		d.t.Error(err)
		return
	}
	if reset {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	_, err = c.Write(send)
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, read))
	}
	if err != nil {
		d.t.Errorf("cannot send %d bytes and read %d: %v", len(send), read, err)
	}
	_ = c.Close()
}

// resendUntilAccepted sends a batch until it gets a 207. The daemon may still be processing the
// first attempt.
func (d *process) resendUntilAccepted(promised *ledger, batch, size int) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		a, err := d.Post(d.t.Context(), daemontest.BatchNumber(batch, size), daemontest.KeyOf(batch))
		switch {
		case err != nil:
			d.t.Errorf("batch %d: %v", batch, err)
			return
		case a.Status == http.StatusMultiStatus && a.Accepted == size && a.Rejected == 0:
			promised.Add(d.t, batch, a)
			return
		case a.Status != http.StatusConflict || a.Header.Get("Retry-After") == "":
			d.t.Errorf("batch %d: %+v", batch, a)
			return
		}
	}
	d.t.Errorf("batch %d was not accepted", batch)
}

func TestIdempotencyKeys(t *testing.T) {
	d, c, k := onRealStores(t)
	d.start().Await(http.StatusOK)
	var promised ledger
	post := func(batch int, key string, wantReplay bool) response {
		t.Helper()
		a, err := d.Post(t.Context(), daemontest.BatchNumber(batch, 10), key)
		require.NoError(t, err)
		require.Equal(t, http.StatusMultiStatus, a.Status, "%+v", a)
		require.Equal(t, wantReplay, a.Header.Get("Idempotent-Replay") == "true")
		return a
	}
	restart := func() {
		t.Helper()
		d.kill()
		d.start().Await(http.StatusOK)
	}

	// The same key for another body, also after a restart.
	promised.Add(t, 0, post(0, "a", false))
	for range 2 {
		a, err := d.Post(t.Context(), daemontest.BatchNumber(1, 10), "a")
		require.NoError(t, err)
		require.Equal(t, http.StatusUnprocessableEntity, a.Status)
		require.Equal(t, "IDEMPOTENCY_KEY_REUSED", a.ErrorCode)
		restart()
	}
	promised.Add(t, 0, post(0, "a", true))

	// A key in progress: its first request is slow.
	slow := d.begin(d.raw(daemontest.BatchNumber(2, 10), "b"))
	d.Eventually(func() bool { return d.Metric("trafficd_ingest_admission_requests") == 1 }, "the first request is admitted")
	a, err := d.Post(t.Context(), daemontest.BatchNumber(2, 10), "b")
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, a.Status, "%+v", a)
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	a, err = slow.finish()
	require.NoError(t, err)
	require.Equal(t, 10, a.Accepted)
	promised.Add(t, 2, a)
	promised.Add(t, 2, post(2, "b", true))

	// A batch of which nothing was accepted.
	bad := batchOf(`{}`, `3`)
	first, err := d.Post(t.Context(), bad, "c")
	require.NoError(t, err)
	require.Equal(t, http.StatusMultiStatus, first.Status)
	require.Equal(t, []int{0, 2}, []int{first.Accepted, first.Rejected})
	for range 2 {
		again, err := d.Post(t.Context(), bad, "c")
		require.NoError(t, err)
		require.Equal(t, "true", again.Header.Get("Idempotent-Replay"))
		require.Equal(t, first.Header.Get("Batch-Id"), again.Header.Get("Batch-Id"))
		require.Equal(t, first.Rejections, again.Rejections)
		restart()
	}
	d.awaitDelivered()
	promised.Check(t, c, k)

	// Without a key each request is a new batch.
	one, two := post(3, "", false), post(3, "", false)
	require.NotEqual(t, one.Header.Get("Batch-Id"), two.Header.Get("Batch-Id"))
	d.awaitDelivered()
	require.Equal(t, 40, k.Count(t, "measurements"))
}

// rawRequest returns the bytes of a request.
type rawRequest struct{ header, body []byte }

// upTo returns the header and the first n bytes of the body.
func (r rawRequest) upTo(n int) []byte { return bytes.Join([][]byte{r.header, r.body[:n]}, nil) }

func (d *process) raw(body, key string) rawRequest {
	packed := compress.Gzip(body)
	lines := []string{
		"POST " + ingest.Path + " HTTP/1.1", "Host: " + d.API, "Authorization: apiKey " + testKey, "Content-Encoding: gzip",
		"Idempotency-Key: " + key, fmt.Sprint("Content-Length: ", len(packed)), "", "",
	}
	return rawRequest{header: []byte(strings.Join(lines, "\r\n")), body: packed}
}

// begun is a request that lacks the second half of its body.
type begun struct {
	conn net.Conn
	rest []byte
}

// begin sends the first half of a request and returns when the daemon has accepted its header.
func (d *process) begin(r rawRequest) *begun {
	d.t.Helper()
	b, rejected := d.tryBegin(r)
	require.Empty(d.t, rejected)
	return b
}

// tryBegin is like begin, but returns the start of the response if the daemon rejects the request
// instead of responding with 100 Continue.
func (d *process) tryBegin(r rawRequest) (b *begun, rejected string) {
	d.t.Helper()
	c, err := net.Dial("tcp", d.API)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = c.Close() })
	_, err = c.Write(bytes.Replace(r.header, []byte("\r\n\r\n"), []byte("\r\nExpect: 100-continue\r\n\r\n"), 1))
	require.NoError(d.t, err)
	const wantContinue = "HTTP/1.1 100 Continue\r\n\r\n"
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	text := make([]byte, len(wantContinue))
	_, err = io.ReadFull(c, text)
	require.NoError(d.t, err)
	if string(text) != wantContinue {
		return nil, string(text)
	}
	half := len(r.body) / 2
	_, err = c.Write(r.body[:half])
	require.NoError(d.t, err)
	return &begun{c, r.body[half:]}, ""
}

// finish sends the rest of the body and reads the response.
func (b *begun) finish() (response, error) {
	_ = b.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := b.conn.Write(b.rest); err != nil {
		return response{}, err
	}
	r, err := http.ReadResponse(bufio.NewReader(b.conn), nil)
	if err != nil {
		return response{}, err
	}
	defer r.Body.Close()
	a := response{Status: r.StatusCode, Header: r.Header}
	return a, json.NewDecoder(r.Body).Decode(&a)
}
