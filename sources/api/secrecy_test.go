package api

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/schemas/contract"
)

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// TestKeysAreNeverLogged checks that whatever a client sends, its key never appears in the log, at
// any level.
func TestKeysAreNeverLogged(t *testing.T) {
	const secret, basic = "tfd_Zm9vYmFy", "OnRmZF9abTl2WW1GeQ==" // basic encodes ":" + secret
	cfg := testConfig()
	cfg.Keys = append(cfg.Keys, entry("secret", secret, "ingest", "forecast"))
	var log lockedBuffer
	logger := zerolog.New(&log).Level(zerolog.TraceLevel)
	keys, err := OpenKeyring(cfg, logger)
	require.NoError(t, err)
	defer keys.Close()
	s, err := New(cfg, keys, []Route{
		{Path: "/in", Methods: []string{"POST"}, Right: contract.RightIngest, Endpoint: &probe{}},
		{Path: "/map", Methods: []string{"GET"}, Right: contract.RightForecast, Endpoint: &probe{}, Basic: true, QueryKey: true},
	}, logger)
	require.NoError(t, err)
	require.NoError(t, s.Start())

	const key = "Authorization: apiKey " + secret
	f := func(request string) {
		t.Helper()
		c := dial(t, s).send(strings.ReplaceAll(request, "\n", "\r\n"))
		defer c.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(c.in, 1)) // a response, or the end
	}
	f("POST /base/in HTTP/1.1\nHost: h\n" + key + "\n\n")
	for _, c := range []string{"\x00", "\x01", "\x7f", "\r", "\n x", "\n\tx", "\u212a"} {
		f("POST /base/in HTTP/1.1\nHost: h\n" + key + c + "\n\n")
		f("GET /base/map?apiKey=" + secret + c + " HTTP/1.1\nHost: h\n\n")
	}
	for _, header := range []string{
		"Authorization apiKey " + secret, secret, secret + ": x", " " + secret + ": x", "Authorization : apiKey " + secret,
		"Authorization: Basic " + basic + "\x01", "Content-Length: " + secret, "Transfer-Encoding: " + secret,
		"Expect: " + secret, "Connection: " + secret, "Host: " + secret, "Cookie: " + secret + "\x01", "traceparent: " + secret,
	} {
		f("POST /base/in HTTP/1.1\nHost: h\n" + header + "\n\n")
	}
	for _, line := range []string{
		"POST /base/in " + secret, "POST /base/in HTTP/" + secret, secret + " /base/in HTTP/1.1", "POST " + secret + " HTTP/1.1",
		"POST /base/" + secret + " HTTP/1.1", "GET /base/map%3FapiKey=" + secret + " HTTP/1.1", key, "apiKey " + secret + " HTTP/1.1",
		"GET http://u:" + secret + "@h/base/map HTTP/1.1", "GET /base/map?apiKey=" + secret + "&x HTTP/1.1", "GET /base/map?" + secret + " HTTP/1.1",
	} {
		f(line + "\nHost: h\n\n")
	}
	f("POST /base/in HTTP/1.1\n" + good + "Transfer-Encoding: chunked\n\n" + secret + "\n")
	f("POST /base/in HTTP/1.1\n" + good + "Transfer-Encoding: chunked\n\n0\nAuthorization: apiKey " + secret + "\x01\n\n")
	f("POST /base/in HTTP/1.1\nHost: h\nX: " + strings.Repeat("x", cfg.MaxHeaderBytes) + "\n" + key + "\n\n")
	stop(t, s)

	require.Contains(t, log.String(), `"message":"request"`)
	require.NotContains(t, log.String(), secret)
	require.NotContains(t, log.String(), strings.TrimRight(basic, "="))
}
