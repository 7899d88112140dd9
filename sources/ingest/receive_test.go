package ingest_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
	"trafficd/sources/ingest"
)

// TestBodyArrivesWhole checks that the pipeline gets the same bytes no matter how a body is sent.
func TestBodyArrivesWhole(t *testing.T) {
	p := &stages{}
	addr := start(t, p, nil)
	noise := rand.NewChaCha8([32]byte{1})
	random := make([]byte, 200_000)
	_, _ = noise.Read(random)
	body := zip(measurements("known") + strings.Repeat(" ", 1000))
	large := body + zip(string(bytes.ReplaceAll(random, []byte{0}, []byte{1}))) // only its bytes matter, not its JSON
	f := func(body string, size int) {
		t.Helper()
		p.submitted = nil
		c := dial(t, addr).begin("Transfer-Encoding: chunked\r\n")
		for rest := body; rest != ""; rest = rest[min(size, len(rest)):] {
			c.send(chunk(rest[:min(size, len(rest))]))
		}
		c.send(chunk(""))
		c.response()
		c.begin(length(body))
		for rest := body; rest != ""; rest = rest[min(size, len(rest)):] {
			c.send(rest[:min(size, len(rest))])
		}
		c.response()
		require.Equal(t, 2, p.count())
		require.True(t, strings.HasPrefix(body, string(p.submitted[0])) && bytes.Equal(p.submitted[0], p.submitted[1]))
	}
	f(body, 1)
	f(body, len(body))
	f(large, 1000)
	f(large, 64<<10)
	f(large, 100_000)
}

// TestNotGzip checks that without a Content-Encoding, a body is rejected as soon as its first bytes
// arrive.
func TestNotGzip(t *testing.T) {
	p := &stages{}
	addr := start(t, p, nil)
	f := func(headers, sent string) {
		t.Helper()
		c := dial(t, addr).begin(headers).send(sent)
		resp := c.requireError(415, contract.GzipRequired)
		require.Equal(t, "gzip", resp.Header.Get("Accept-Encoding"))
	}
	f("Content-Length: 1000\r\n", "{")
	f("Content-Length: 1000\r\n", "\x1f{")
	f("Transfer-Encoding: chunked\r\n", "1\r\n{\r\n")
	f("Content-Length: 0\r\n", "")
	f("", "")
	f("Content-Length: 1\r\n", "\x1f")
	f("Transfer-Encoding: chunked\r\n", "0\r\n\r\n")
	require.Zero(t, p.count())

	dial(t, addr).begin("Content-Encoding: gzip\r\nContent-Length: 1\r\n").send("{").requireError(400, contract.InvalidGzip)
	dial(t, addr).begin("Content-Encoding: gzip\r\nContent-Length: 0\r\n").requireError(400, contract.InvalidGzip)
}

// TestContentLengthTooSmall checks that the rest of a body whose Content-Length is too small is not
// parsed as a request.
func TestContentLengthTooSmall(t *testing.T) {
	p := &stages{}
	addr := start(t, p, nil)
	body := zip(measurements("known"))
	f := func(announced int) {
		t.Helper()
		c := dial(t, addr).begin(fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n", announced)).send(body)
		require.True(t, c.requireError(400, contract.InvalidGzip).Close)
		c.ended()
	}
	f(len(body) - 1)
	f(len(body) / 2)
	f(0)
}

// TestCompressedLimit checks that an error earlier in the stream takes precedence over the size
// limit, and that a body of exactly the limit is accepted.
func TestCompressedLimit(t *testing.T) {
	exact := zip(measurements("known"))
	for len(exact) < 1100 { // an empty member has about 23 bytes
		exact += zip("")
	}
	p := &stages{}
	addr := start(t, p, func(c *ingest.Config) { c.MaxCompressedBytes = int64(len(exact)) })
	chunked := func(body string) *peer {
		return dial(t, addr).begin("Transfer-Encoding: chunked\r\n").send(chunk(body) + chunk(""))
	}
	resp, _ := chunked(exact).response()
	require.Equal(t, 207, resp.StatusCode)
	require.False(t, resp.Close)
	resp, _ = dial(t, addr).begin(length(exact)).send(exact).response()
	require.Equal(t, 207, resp.StatusCode)

	resp = chunked(exact+zip("")).requireError(413, contract.BodyTooLarge)
	require.True(t, resp.Close, "the rest was not read")
	require.Len(t, p.submitted[2], len(exact), "no byte beyond the limit")
	chunked(zip("no json"+strings.Repeat(" ", 10))+strings.Repeat("x", 2000)).requireError(400, contract.InvalidJSON)
	dial(t, addr).begin(length(exact+"x")).requireError(413, contract.BodyTooLarge)
}

func TestSlowClient(t *testing.T) {
	p := &stages{}
	within := func(timeout time.Duration) (addr string) {
		return start(t, p, func(c *ingest.Config) {
			c.ReceiveTimeout, c.RateGrace, c.MinBytesPerSecond = timeout, 100*time.Millisecond, 1000
		})
	}
	addr := within(patience)
	body := zip(measurements("known"))
	f := func(headers, sent string) {
		t.Helper()
		c := dial(t, addr).begin(headers).send(sent)
		resp, text := c.response()
		require.Equal(t, 408, resp.StatusCode)
		require.Contains(t, text, "REQUEST_TIMEOUT")
		require.Contains(t, text, "slower than 1000 bytes per second")
		require.True(t, resp.Close)
		c.ended()
	}
	f("Content-Length: 100\r\n", body[:10])
	f("Transfer-Encoding: chunked\r\n", "") // no byte of the body: the request has no slot
	f("Transfer-Encoding: chunked\r\n", "64\r\n")
	f("Transfer-Encoding: chunked\r\n", "64\r\n"+body[:10])
	f("Transfer-Encoding: chunked\r\n", chunk(body)+"1") // within the header of a chunk
	f("Transfer-Encoding: chunked\r\n", chunk(body))     // between two chunks
	f("Transfer-Encoding: chunked\r\n", chunk(body)+"0\r\n")

	// The average rate is high enough, but the body takes too long.
	c := dial(t, within(400*time.Millisecond)).begin("Content-Length: 1000000\r\nContent-Encoding: gzip\r\n")
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		head := "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff\xff\xff" // 65,535 bytes of an extra field
		early := make([]byte, 1000)                                // enough for a second, so that this goroutine may be slow
		for _, err := c.Write(append([]byte(head), early...)); err == nil; _, err = c.Write(make([]byte, 40)) {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	_, text := c.response()
	require.Contains(t, text, "400ms")
	_ = c.Close()
	<-stop

	// An error earlier in the stream takes precedence over the timeout.
	dial(t, addr).begin("Content-Length: 1000\r\n").send(zip("no json!  ")).requireError(400, contract.InvalidJSON)
}

// TestClientDisconnects checks that nothing is submitted if a client disconnects within the body.
// start checks that everything is released.
func TestClientDisconnects(t *testing.T) {
	p := &stages{}
	addr := start(t, p, nil)
	body := zip(measurements("known"))
	key := 0
	newKey := func() string { key++; return fmt.Sprintf("Idempotency-Key: k%d\r\n", key) }
	f := func(headers, sent string, code contract.Code) {
		t.Helper()
		c := dial(t, addr).begin(headers + newKey()).send(sent)
		require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
		c.requireError(400, code) // for clients that only close their sending side
		c.ended()

		c = dial(t, addr).begin(headers + newKey()).send(sent)
		require.NoError(t, c.Conn.(*net.TCPConn).SetLinger(0))
		require.NoError(t, c.Close())
	}
	f("Content-Length: 100\r\n", body[:20], contract.InvalidGzip)
	f(length(body+"x"), body, contract.InvalidGzip)
	f("Transfer-Encoding: chunked\r\n", chunk(body), contract.InvalidGzip) // the gzip stream is complete, but not the body
	f("Transfer-Encoding: chunked\r\n", "64\r\n"+body[:20], contract.InvalidGzip)
	f("Transfer-Encoding: chunked\r\n", chunk(body)+"5", contract.InvalidParameter)
	f("Transfer-Encoding: chunked\r\n", chunk(body)+"zz\r\n", contract.InvalidParameter)
	require.Zero(t, p.count())
}

// TestPeer checks that the pipeline can find out whether a client has gone, also over a connection
// with a pipelined request, and that the connection can be used afterwards.
func TestPeer(t *testing.T) {
	gone, leave := make(chan bool), make(chan struct{})
	p := &stages{submit: func(s *batch.Submission) error {
		gone <- s.Peer.Gone()
		<-leave
		for !s.Peer.Gone() {
			time.Sleep(time.Millisecond)
		}
		gone <- true
		return nil
	}}
	addr := start(t, p, nil)
	body := zip(measurements("known"))
	request := func() *peer { return dial(t, addr).begin(length(body)).send(body) }
	f := func(c *peer, end func(c *net.TCPConn) error) {
		t.Helper()
		require.False(t, <-gone)
		require.NoError(t, end(c.Conn.(*net.TCPConn)))
		leave <- struct{}{}
		require.True(t, <-gone)
	}
	f(request(), func(c *net.TCPConn) error { return c.Close() })
	f(request(), func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) })
	f(request().send("POST / HTTP/1.1\r\n"), func(c *net.TCPConn) error { return c.Close() })
	c := request()
	f(c, (*net.TCPConn).CloseWrite)
	resp, _ := c.response()
	require.Equal(t, 207, resp.StatusCode)
}

// TestSlowClientsOccupyNoStage checks that slow clients do not occupy the pipeline or delay others.
func TestSlowClientsOccupyNoStage(t *testing.T) {
	p := &stages{}
	addr := start(t, p, nil)
	body := zip(measurements("known"))
	var slow []*peer
	for range 20 {
		slow = append(slow, dial(t, addr).begin(length(body)).send(body[:len(body)-1]))
	}
	resp, _ := dial(t, addr).begin(length(body)).send(body).response()
	require.Equal(t, 207, resp.StatusCode)
	require.Equal(t, 1, p.count())
	for _, c := range slow {
		resp, _ := c.send(body[len(body)-1:]).response()
		require.Equal(t, 207, resp.StatusCode)
	}
	require.Equal(t, 21, p.count())
}

// TestSlowKeyLeavesSlots checks that a key that holds as many slots as it can leaves some for
// another key.
func TestSlowKeyLeavesSlots(t *testing.T) {
	p := &stages{}
	addr := start(t, p, func(c *ingest.Config) { c.AdmissionRequests = 4 })
	body := zip(measurements("known"))
	before := ingest.HeldBytes() // held by other tests
	first := dial(t, addr).begin(length(body)).send(body[:3])
	second := dial(t, addr).begin(length(body)).send(body[:3])
	require.Eventually(t, func() bool { return ingest.HeldBytes()-before == 2*64<<10 }, patience, time.Millisecond)
	resp := dial(t, addr).begin(length(body)).send(body[:1]).requireError(503, contract.ServiceUnavailable)
	require.Regexp(t, "^[12]$", resp.Header.Get("Retry-After"))

	requireServed := func(c *peer) {
		t.Helper()
		resp, text := c.response()
		require.Equal(t, 207, resp.StatusCode, text)
	}
	requireServed(dial(t, addr).beginAs("other", length(body)).send(body))
	requireServed(first.send(body[3:]))
	requireServed(dial(t, addr).begin(length(body)).send(body))
	requireServed(second.send(body[3:]))
}

// TestHostileKeyLeavesSlots checks that another key is served during 600 requests of one key
// without a body or with an endless one. A header alone takes no slot, and a key may hold half of
// all slots.
func TestHostileKeyLeavesSlots(t *testing.T) {
	p := &stages{}
	addr := start(t, p, nil)
	body := zip(measurements("known"))
	f := func(what, headers, sent string) {
		t.Helper()
		var peers []*peer
		for range 600 {
			peers = append(peers, dial(t, addr).begin(headers).send(sent))
		}
		for range 20 {
			resp, text := dial(t, addr).beginAs("other", length(body)).send(body).response()
			require.Equal(t, 207, resp.StatusCode, "%s: %s", what, text)
		}
		if sent == "" { // the key itself can still send
			resp, text := dial(t, addr).begin(length(body)).send(body).response()
			require.Equal(t, 207, resp.StatusCode, "%s: %s", what, text)
		}
		for _, c := range peers {
			require.NoError(t, c.Close())
		}
	}
	f("headers only", "Content-Length: 1000\r\n", "")
	f("headers of chunked bodies only", "Transfer-Encoding: chunked\r\n", "")
	f("slow bodies", length(body), body[:3])
	f("slow chunks", "Transfer-Encoding: chunked\r\n", "64\r\n"+body[:3])
}

// TestByteAdmission checks that memory is charged when it is used, not for a declared length,
// and that a body for which none is left gets a 503 while the others continue.
func TestByteAdmission(t *testing.T) {
	p := &stages{}
	addr := start(t, p, func(c *ingest.Config) { c.MaxCompressedBytes = 256 << 10; c.AdmissionBytes = 10 * 64 << 10 })
	noise := make([]byte, 200<<10)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(noise)
	body := "\x1f\x8b" + string(noise)
	before := ingest.HeldBytes() // held by other tests
	for range 4 {                // 4 × 256 KiB are declared
		dial(t, addr).begin("Content-Length: 262144\r\n").send("\x1f")
	}
	require.Eventually(t, func() bool { return ingest.HeldBytes()-before == 4*64<<10 }, patience, time.Millisecond)
	c := dial(t, addr).begin(length(body)).send(body)
	resp := c.requireError(503, contract.ServiceUnavailable)
	require.Regexp(t, "^[12]$", resp.Header.Get("Retry-After"))
	require.True(t, resp.Close)
	c.ended()
	require.Zero(t, p.count())
}
