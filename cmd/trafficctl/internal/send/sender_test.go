package send

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/schemas/contract"
)

func newSender(t testing.TB, cfg Config, url string) *Sender {
	c, err := client.New(client.Config{URL: url, Key: "k", Timeout: time.Minute}, client.Ingest)
	require.NoError(t, err)
	s, err := New(cfg, c, io.Discard, func(string) {})
	require.NoError(t, err)
	return s
}

// itemOf returns the n-th item of a detector.
func itemOf(detector string, n int) measurement.Item {
	f := contract.Measurement{DetectorCode: detector, MeasureTypeCode: "speed", Value: json.Number(strconv.Itoa(n))}
	return measurement.Item{JSON: f.AppendJSON(nil), Detector: detector, Position: measurement.Position{Row: int64(n)}}
}

// twoItems yields two items of one detector.
func twoItems(yield func(measurement.Item, error) bool) {
	_ = yield(itemOf("A", 1), nil) && yield(itemOf("A", 2), nil)
}

func TestNoDaemon(t *testing.T) {
	cfg := DefaultConfig()
	cfg.RetryFor = 0
	s := newSender(t, cfg, "http://127.0.0.1:1")
	require.ErrorContains(t, s.Send(t.Context(), twoItems), "connection refused")
	require.Zero(t, s.Tally().Unknown, "without a connection nothing was sent")
}

func TestPause(t *testing.T) {
	var before time.Duration
	for n := 1; n < 40; n++ {
		low, high := pause(n, 0, nil), pause(n, 0.999, nil)
		require.Less(t, low, high)
		require.GreaterOrEqual(t, low, before)
		require.LessOrEqual(t, high, longestPause)
		before = low
	}
	require.Equal(t, longestPause/2, before)
	asked := &client.Error{Status: 503, RetryAfter: time.Minute}
	require.GreaterOrEqual(t, pause(1, 0, asked), time.Minute)
	require.Less(t, pause(1, 0.999, asked), time.Minute+time.Second)
}

// TestInDoubt checks that only a response from the daemon settles a batch; one from a proxy does
// not.
func TestInDoubt(t *testing.T) {
	f := func(err error, want bool) {
		t.Helper()
		require.Equal(t, want, inDoubt(err), "%v", err)
	}
	f(&net.OpError{Op: "dial", Err: errors.New("connection refused")}, false)
	f(&url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: errors.New("no route to host")}}, false)
	f(&net.OpError{Op: "read", Err: errors.New("connection reset")}, true)
	f(io.ErrUnexpectedEOF, true)
	f(&client.Error{Status: http.StatusServiceUnavailable, ErrorCode: "GENERAL_SERVICE_UNAVAILABLE"}, false)
	f(&client.Error{Status: http.StatusBadRequest, ErrorCode: "INVALID_JSON"}, false)
	f(&client.Error{Status: http.StatusConflict, ErrorCode: "IDEMPOTENCY_KEY_IN_USE"}, true)
	f(&client.Error{Status: http.StatusGatewayTimeout}, true)
	f(&client.Error{Status: http.StatusBadGateway}, true)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestFirstConnection checks that a daemon that has never responded is retried for connectFor. One
// that has responded may be restarting and is retried for RetryFor.
func TestFirstConnection(t *testing.T) {
	f := func(responded int, want time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Batch, cfg.Concurrency = 1, 1
			s := newSender(t, cfg, "http://127.0.0.1:1")
			n := 0
			s.client.HTTP.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
				if n++; n > responded {
					return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
				}
				body := io.NopCloser(strings.NewReader(`{"accepted":1,"rejected":0,"rejections":[]}`))
				return &http.Response{StatusCode: http.StatusMultiStatus, Body: body}, nil
			})
			start := time.Now()
			require.ErrorContains(t, s.Send(t.Context(), twoItems), "check that the daemon is running")
			require.LessOrEqual(t, time.Since(start), want)
			require.Greater(t, time.Since(start), want/8)
		})
	}
	f(0, connectFor)
	f(1, DefaultConfig().RetryFor)
}

// TestRetryNotes checks that batches that fail together are reported once every noteInterval.
func TestRetryNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Batch, cfg.RetryFor = 1, time.Minute
		s := newSender(t, cfg, "http://127.0.0.1:1")
		var notes atomic.Int64
		s.note = func(string) { notes.Add(1) }
		s.client.HTTP.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			text := fmt.Sprintf(`{"errorCode":"GENERAL_SERVICE_UNAVAILABLE","description":"disk full","traceId":%q}`, r.Header.Get("Idempotency-Key"))
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: io.NopCloser(strings.NewReader(text))}, nil
		})
		items := func(yield func(measurement.Item, error) bool) {
			for n := range 100 {
				if !yield(itemOf(fmt.Sprint("D", n), n), nil) {
					return
				}
			}
		}
		require.ErrorContains(t, s.Send(t.Context(), items), "disk full")
		require.Greater(t, notes.Load(), int64(1))
		require.LessOrEqual(t, notes.Load(), int64(cfg.RetryFor/noteInterval)+1)
	})
}

// TestUntrustedCertificate checks that an untrusted certificate ends the run immediately.
func TestUntrustedCertificate(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	s := newSender(t, DefaultConfig(), server.URL)
	require.ErrorContains(t, s.Send(t.Context(), twoItems), "--ca FILE")
	require.Zero(t, s.Tally().Retries)
	require.Zero(t, s.Tally().Unknown)
}
