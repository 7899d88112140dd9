package ingest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/contract"
	"trafficd/sources/ingest"
)

// TestRejectedByHeader covers the checks of contract 1.1 that need only the header. It sends no
// body.
func TestRejectedByHeader(t *testing.T) {
	p := &stages{}
	addr := start(t, p, nil)
	f := func(headers string, status int, code contract.Code) {
		t.Helper()
		for _, announced := range []string{"Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 100\r\nExpect: 100-continue\r\n"} {
			if strings.Contains(headers, "Content-Length") {
				announced = ""
			}
			c := dial(t, addr).begin(headers + announced)
			resp := c.requireError(status, code)
			require.Equal(t, code == contract.GzipRequired, resp.Header.Get("Accept-Encoding") == "gzip")
			require.True(t, resp.Close)
			c.ended()
		}
	}
	f("Content-Type: multipart/form-data; boundary=x\r\n", 415, contract.UnsupportedContentType)
	f("Content-Type: Multipart/Mixed\r\n", 415, contract.UnsupportedContentType)
	f("Content-Encoding: deflate\r\n", 415, contract.GzipRequired)
	f("Content-Encoding: identity\r\n", 415, contract.GzipRequired)
	f("Content-Encoding: gzip, br\r\n", 415, contract.GzipRequired)
	f("Content-Encoding: gzip\r\nContent-Encoding: zstd\r\n", 415, contract.GzipRequired)
	f("Content-Encoding: gzip, x-gzip\r\n", 415, contract.GzipRequired) // twice
	f("Content-Encoding: gz\x09ip\r\n", 415, contract.GzipRequired)
	f("Content-Encoding: "+strings.Repeat("é", 50)+"\r\n", 415, contract.GzipRequired)
	f("Content-Length: 16777217\r\n", 413, contract.BodyTooLarge)
	f("Content-Length: 9223372036854775807\r\n", 413, contract.BodyTooLarge)
	f("Idempotency-Key: \r\n", 400, contract.InvalidParameter)
	f("Idempotency-Key: "+strings.Repeat("k", 129)+"\r\n", 400, contract.InvalidParameter)
	f("Idempotency-Key: a b\r\n", 400, contract.InvalidParameter)
	f("Idempotency-Key: caf\xc3\xa9\r\n", 400, contract.InvalidParameter)
	f("Idempotency-Key: a\r\nIdempotency-Key: a\r\n", 400, contract.InvalidParameter)

	// The first failed check determines the response.
	f("Content-Type: multipart/x\r\nContent-Encoding: br\r\n", 415, contract.UnsupportedContentType)
	f("Content-Encoding: br\r\nIdempotency-Key: \r\n", 415, contract.GzipRequired)
	f("Content-Length: 16777217\r\nIdempotency-Key: \r\n", 413, contract.BodyTooLarge)
	p.mu.Lock()
	p.ready = contract.Unavailable("no registry snapshot yet", 7*time.Second)
	p.mu.Unlock()
	f("Content-Type: multipart/x\r\n", 503, contract.ServiceUnavailable)
	require.Regexp(t, "^([7-9]|1[0-4])$", dial(t, addr).begin("Content-Length: 1\r\n").requireError(503, contract.ServiceUnavailable).Header.Get("Retry-After"))
	require.Zero(t, p.count())
}

func TestAcceptedHeaders(t *testing.T) {
	addr := start(t, &stages{}, nil)
	body := zip(measurements("known"))
	c := dial(t, addr) // one connection for all requests: it must stay usable
	f := func(headers string) {
		t.Helper()
		resp, text := c.begin(headers + length(body)).send(body).response()
		require.Equal(t, 207, resp.StatusCode, text)
		require.Equal(t, `{"accepted":1,"rejected":0,"rejections":[]}`, text)
	}
	f("")
	f("Content-Encoding: gzip\r\n")
	f("Content-Encoding: GZIP\r\n")
	f("Content-Encoding: x-gzip\r\n")
	f("Content-Encoding: , gzip ,\r\n")
	f("Content-Encoding:\r\n")
	for _, contentType := range []string{"application/json", "application/x-www-form-urlencoded", "application/gzip", "text/plain", "nonsense"} {
		f("Content-Type: " + contentType + "\r\n")
	}
	f("Idempotency-Key: k\r\n")
	f("Idempotency-Key: " + strings.Repeat("~", 128) + "\r\n")
	f("Idempotency-Key: !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}\r\n")
}

func TestConfig(t *testing.T) {
	require.NoError(t, ingest.DefaultConfig().Validate())
	f := func(want string, change func(*ingest.Config)) {
		t.Helper()
		cfg := ingest.DefaultConfig()
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), want)
	}
	f("max_compressed_bytes", func(c *ingest.Config) { c.MaxCompressedBytes = 0 })
	f("admission_requests", func(c *ingest.Config) { c.AdmissionRequests = 0 })
	f("admission_bytes", func(c *ingest.Config) { c.AdmissionBytes = c.MaxCompressedBytes })
}

// TestIdempotencyKeyInUse checks that a key is in use from the first byte of the body of its
// request to the response, or until the client disconnects, and that another request with it is
// rejected before its body.
func TestIdempotencyKeyInUse(t *testing.T) {
	p := &stages{}
	addr := start(t, p, nil)
	body := zip(measurements("known"))
	headers := "Idempotency-Key: k\r\n" + length(body)
	first := dial(t, addr).begin(headers).send(body[:5])
	require.Eventually(t, func() bool { return p.holds() == 1 }, patience, time.Millisecond)

	resp := dial(t, addr).begin(headers).send(body[:1]).requireError(409, contract.IdempotencyKeyInUse)
	require.Regexp(t, "^[12]$", resp.Header.Get("Retry-After"))
	resp, _ = dial(t, addr).begin("Idempotency-Key: \"k\"\r\n" + length(body)).send(body).response()
	require.Equal(t, 207, resp.StatusCode, "with quotes, it is another key")
	resp, _ = first.send(body[5:]).response()
	require.Equal(t, 207, resp.StatusCode)
	resp, _ = dial(t, addr).begin(headers).send(body).response()
	require.Equal(t, 207, resp.StatusCode)

	require.NoError(t, dial(t, addr).begin(headers).send("\x1f").Close()) // the client disconnects
	require.Eventually(t, func() bool { return p.holds() == 0 }, patience, time.Millisecond)
}
