package send

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/client"
	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/cmd/trafficctl/internal/testdaemon"
)

// Input that is sorted by detector: everything arrives once, each detector's
// items in order, and batches are full although a lane has few detectors at a time.
func TestOrderAndFullBatches(t *testing.T) {
	const detectors, each, limit = 40, 250, 500
	for _, workers := range []int{1, 4} {
		d := testdaemon.New(t)
		cfg := configFor(d)
		cfg.Batch, cfg.Concurrency = limit, workers
		s := newSender(t, cfg, nil)
		require.NoError(t, s.Send(t.Context(), series(detectors, each)))
		require.EqualValues(t, detectors*each, s.Tally().Accepted)
		require.Zero(t, s.Tally().Resume)

		next := map[string]int{}
		for _, item := range d.Items() {
			detector, n := sent(t, item)
			require.Equal(t, next[detector], n, "detector %s with %d workers", detector, workers)
			next[detector]++
		}
		require.Len(t, next, detectors)
		require.Equal(t, s.Tally().Batches, int64(len(d.Batches())))
		require.LessOrEqual(t, len(d.Batches()), detectors*each/limit+workers)
	}
}

func TestNoOrderSendsEverythingInFullBatches(t *testing.T) {
	d := testdaemon.New(t)
	cfg := configFor(d)
	cfg.Batch, cfg.Ordered = 300, false
	s := newSender(t, cfg, nil)
	require.NoError(t, s.Send(t.Context(), series(1, 3000)))
	require.Len(t, d.Batches(), 10)
	seen := map[int]bool{}
	for _, item := range d.Items() {
		_, n := sent(t, item)
		seen[n] = true
	}
	require.Len(t, seen, 3000)
}

func TestEndsBatch(t *testing.T) {
	d := testdaemon.New(t)
	cfg := configFor(d)
	cfg.Concurrency = 1
	last := itemOf("C", 3)
	last.EndsBatch = true
	s := newSender(t, cfg, nil)
	require.NoError(t, s.Send(t.Context(), mixed(itemOf("A", 1), itemOf("B", 2), last, itemOf("A", 4))))
	require.Len(t, d.Batches(), 2)
	require.Len(t, d.Batches()[0], 3)
}

func TestNothingToSend(t *testing.T) {
	d := testdaemon.New(t)
	require.NoError(t, newSender(t, configFor(d), nil).Send(t.Context(), mixed()))
	require.Empty(t, d.Keys())
}

// Whatever goes wrong for a time, the batch arrives once, under one key.
func TestRetries(t *testing.T) {
	f := func(name string, prepare func(*testdaemon.Daemon), replayed int64) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they spend their time in pauses
			d := testdaemon.New(t)
			prepare(d)
			s := newSender(t, configFor(d), nil)
			require.NoError(t, s.Send(t.Context(), series(1, 10)))
			require.Len(t, d.Batches(), 1)
			require.Len(t, d.Keys(), 3)
			require.Len(t, slices.Compact(d.Keys()), 1, "one key over all attempts")
			require.NotEmpty(t, d.Keys()[0])
			tally := s.Tally()
			require.EqualValues(t, 10, tally.Accepted)
			require.EqualValues(t, 2, tally.Retries)
			require.Equal(t, replayed, tally.Replayed)
		})
	}
	for _, status := range []int{408, 409, 429, 500, 502, 503, 504} {
		f(fmt.Sprint(status), func(d *testdaemon.Daemon) {
			d.Before = func(n int, w http.ResponseWriter, _ *http.Request) bool {
				if n < 3 {
					w.Header().Set("Retry-After", "0")
					testdaemon.Refuse(w, status, "SOME_CODE", "not now")
				}
				return n < 3
			}
		}, 0)
	}
	f("cut before the batch is taken", func(d *testdaemon.Daemon) {
		d.Before = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
			if n < 3 {
				panic(http.ErrAbortHandler)
			}
			return false
		}
	}, 0)
	f("cut before the answer", func(d *testdaemon.Daemon) { d.CutAfter = func(n int) bool { return n < 3 } }, 1)
	f("cut within the answer", func(d *testdaemon.Daemon) {
		d.Before = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n < 3 {
				w.Header().Set("Content-Length", "100")
				w.WriteHeader(http.StatusMultiStatus)
				w.Write([]byte(`{"accepted":10,`))
			}
			return n < 3
		}
	}, 0)
}

// A refusal that repeating cannot mend ends it after one request, with the
// daemon's words and what to do.
func TestRefusalsStop(t *testing.T) {
	f := func(status int, hint string) {
		t.Helper()
		d := testdaemon.New(t)
		d.Before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			testdaemon.Refuse(w, status, "THE_CODE", "the reason")
			return true
		}
		s := newSender(t, configFor(d), nil)
		err := s.Send(t.Context(), series(1, 10))
		require.ErrorContains(t, err, fmt.Sprint(status))
		require.ErrorContains(t, err, "THE_CODE: the reason")
		require.ErrorContains(t, err, "trace t1")
		require.ErrorContains(t, err, hint)
		require.Len(t, d.Keys(), 1)
		tally := s.Tally()
		require.EqualValues(t, 1, tally.Resume)
		require.Zero(t, tally.Unknown, "the refusal is definite")
	}
	f(400, "--url")
	f(401, "--key")
	f(403, "`ingest`")
	f(404, "--url")
	f(405, "--url")
	f(413, "--batch")
	f(415, "decompresses requests")
	f(422, "run the command again")
	f(302, "")
	f(200, "")
}

// A redirected POST would become a GET, and the key go to another host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	d, other := testdaemon.New(t), testdaemon.New(t)
	d.Before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.URL, http.StatusFound)
		return true
	}
	err := newSender(t, configFor(d), nil).Send(t.Context(), series(1, 2))
	require.ErrorContains(t, err, "302")
	require.Empty(t, other.Keys())
	require.Len(t, d.Keys(), 1)
}

// An answer that does not fit the batch is none.
func TestInconsistentAnswers(t *testing.T) {
	f := func(answer string) {
		t.Helper()
		d := testdaemon.New(t)
		d.Before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusMultiStatus)
			w.Write([]byte(answer))
			return true
		}
		err := newSender(t, configFor(d), nil).Send(t.Context(), series(1, 2))
		require.ErrorIs(t, err, errInvalidAnswer)
		require.Len(t, d.Keys(), 1)
	}
	f(`{"accepted":1,"rejected":0,"rejections":[]}`)
	f(`{"accepted":1,"rejected":1,"rejections":[]}`)
	f(`{"accepted":1,"rejected":1,"rejections":[{"index":2,"error":{}}]}`)
	f(`{}`)
}

// When the daemon asks for more time than there is, waiting is pointless.
func TestRetryForEnds(t *testing.T) {
	d := testdaemon.New(t)
	d.Before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "3600")
		testdaemon.Refuse(w, 503, "GENERAL_SERVICE_UNAVAILABLE", "later")
		return true
	}
	err := newSender(t, configFor(d), nil).Send(t.Context(), series(1, 2))
	require.ErrorContains(t, err, "--retry-for")
	require.ErrorContains(t, err, "later")
	require.Len(t, d.Keys(), 1)
}

func TestNoDaemon(t *testing.T) {
	cfg := DefaultConfig()
	cfg.URL, cfg.Key, cfg.RetryFor = "http://127.0.0.1:1", "k", 0
	s := newSender(t, cfg, nil)
	require.ErrorContains(t, s.Send(t.Context(), series(1, 2)), "connection refused")
	require.Zero(t, s.Tally().Unknown, "without a connection nothing was sent")
}

// Given up without an answer, the items' fate is unknown and the tally says so.
func TestNoAnswer(t *testing.T) {
	d := testdaemon.New(t)
	d.CutAfter = func(int) bool { return true }
	cfg := configFor(d)
	cfg.RetryFor = 0
	s := newSender(t, cfg, nil)
	require.ErrorContains(t, s.Send(t.Context(), series(1, 3)), "EOF")
	require.EqualValues(t, 3, s.Tally().Unknown)
	require.EqualValues(t, 1, s.Tally().Resume)
}

// Interrupted: what is under way is still answered and counted, nothing new
// begins, and the row to go on with is known.
func TestInterrupted(t *testing.T) {
	d := testdaemon.New(t)
	ctx, interrupt := context.WithCancel(t.Context())
	d.Before = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
		if n == 2 {
			interrupt()
		}
		return false
	}
	cfg := configFor(d)
	cfg.Batch, cfg.Concurrency = 10, 1
	s := newSender(t, cfg, nil)
	require.ErrorIs(t, s.Send(ctx, series(1, 1000)), context.Canceled)
	tally := s.Tally()
	require.EqualValues(t, 20, tally.Accepted)
	require.EqualValues(t, 21, tally.Resume)
	require.Zero(t, tally.Unknown)
}

// A refusal after an attempt that had no answer does not settle that one.
func TestDoubtStays(t *testing.T) {
	d := testdaemon.New(t)
	d.CutAfter = func(n int) bool { return n == 1 }
	d.Before = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n == 1 {
			return false
		}
		w.Header().Set("Retry-After", "3600")
		testdaemon.Refuse(w, 503, "GENERAL_SERVICE_UNAVAILABLE", "later")
		return true
	}
	s := newSender(t, configFor(d), nil)
	require.ErrorContains(t, s.Send(t.Context(), series(1, 3)), "later")
	require.Len(t, d.Items(), 3, "it was taken, as it happens")
	require.EqualValues(t, 3, s.Tally().Unknown)
}

// Items of a batch that was begun and never sent are not acknowledged.
func TestInterruptedWhileABatchIsFilled(t *testing.T) {
	d := testdaemon.New(t)
	ctx, interrupt := context.WithCancel(t.Context())
	s := newSender(t, configFor(d), nil)
	err := s.Send(ctx, func(yield func(measurement.Item, error) bool) {
		for item, err := range series(1, 3) {
			if !yield(item, err) {
				return
			}
		}
		interrupt()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, s.Tally().Resume)
	require.Empty(t, d.Items())
}

// Interrupted while it waits to try again.
func TestInterruptedInPause(t *testing.T) {
	d := testdaemon.New(t)
	ctx, interrupt := context.WithCancel(t.Context())
	d.Before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "60")
		testdaemon.Refuse(w, 503, "GENERAL_SERVICE_UNAVAILABLE", "later")
		return true
	}
	s, err := New(configFor(d), nil, func(string) { interrupt() })
	require.NoError(t, err)
	require.ErrorIs(t, s.Send(ctx, series(1, 10)), context.Canceled)
	require.EqualValues(t, 1, s.Tally().Resume)
}

func TestBadRowStops(t *testing.T) {
	d := testdaemon.New(t)
	s := newSender(t, configFor(d), nil)
	err := s.Send(t.Context(), mixed(itemOf("A", 1), itemOf("B", 2), badRow(3), itemOf("C", 4)))
	require.ErrorContains(t, err, "item 3: unreadable")
	require.ErrorContains(t, err, "--on-bad-row skip")
	require.EqualValues(t, 2, s.Tally().Accepted, "the rows before it are sent")
	require.EqualValues(t, 3, s.Tally().Resume)
}

func TestBadRowsSkipped(t *testing.T) {
	d := testdaemon.New(t)
	cfg := configFor(d)
	cfg.SkipBadRows = true
	var notes []string
	s, err := New(cfg, nil, func(text string) { notes = append(notes, text) })
	require.NoError(t, err)
	list := []any{itemOf("A", 1)}
	for row := range int64(2 * reportedRows) {
		list = append(list, badRow(row+2))
	}
	require.NoError(t, s.Send(t.Context(), mixed(append(list, itemOf("B", 1))...)))
	require.EqualValues(t, 2, s.Tally().Accepted)
	require.EqualValues(t, 2*reportedRows, s.Tally().BadRows)
	require.Len(t, notes, reportedRows)
}

// An error of the input as a whole: what was read is sent.
func TestInputBreaksOff(t *testing.T) {
	d := testdaemon.New(t)
	s := newSender(t, configFor(d), nil)
	broken := errors.New("unexpected EOF")
	require.ErrorIs(t, s.Send(t.Context(), mixed(itemOf("A", 1), itemOf("B", 2), broken)), broken)
	require.EqualValues(t, 2, s.Tally().Accepted)
	require.EqualValues(t, 3, s.Tally().Resume)
}

// Rejected items are written one a line, as they were, with where they stood.
func TestRejectedItems(t *testing.T) {
	d := testdaemon.New(t)
	d.Known = map[string]bool{"A": true}
	var file bytes.Buffer
	cfg := configFor(d)
	cfg.Concurrency = 1
	pretty := itemOf("B", 3)
	pretty.JSON = []byte(strings.ReplaceAll(string(pretty.JSON), ",", ",\n  "))
	other := itemOf("C", 4)
	s := newSender(t, cfg, &file)
	require.NoError(t, s.Send(t.Context(), mixed(itemOf("A", 1), itemOf("A", 2), pretty, other)))

	lines := strings.Split(strings.TrimSpace(file.String()), "\n")
	require.Len(t, lines, 2)
	type line struct {
		Item    json.RawMessage
		Index   int
		Error   ItemError
		Row     int64
		BatchID string
	}
	var first line
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	require.Equal(t, string(itemOf("B", 3).JSON), string(first.Item))
	require.Len(t, first.BatchID, 36)
	require.NotEmpty(t, first.Error.Description)
	first.Item, first.BatchID, first.Error.Description = nil, "", ""
	require.Equal(t, line{Index: 2, Row: 3, Error: ItemError{ErrorCode: "UNKNOWN_DETECTOR", Parameter: "measurements[2].detectorCode"}}, first)
	require.Contains(t, lines[1], string(other.JSON))

	tally := s.Tally()
	require.EqualValues(t, 2, tally.Rejected)
	require.Equal(t, map[string]int64{"UNKNOWN_DETECTOR": 2}, tally.Codes)
	require.EqualValues(t, 3, tally.Examples["UNKNOWN_DETECTOR"].Place.Row)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestRejectedItemsCannotBeWritten(t *testing.T) {
	d := testdaemon.New(t)
	d.Known = map[string]bool{}
	err := newSender(t, configFor(d), brokenWriter{}).Send(t.Context(), series(1, 2))
	require.ErrorContains(t, err, "disk full")
}

// A slow daemon holds the reading back: no more batches than go round.
func TestMemoryIsBounded(t *testing.T) {
	d := testdaemon.New(t)
	release := make(chan struct{})
	d.Before = func(int, http.ResponseWriter, *http.Request) bool { <-release; return false }
	cfg := configFor(d)
	cfg.Batch, cfg.Concurrency = 10, 2
	const most = 2*batchesPerWorker*10 + 1 // and the item that waits for a batch
	var read atomic.Int64
	counted := func(yield func(measurement.Item, error) bool) {
		for item, err := range series(80, 100) {
			read.Add(1)
			if !yield(item, err) {
				return
			}
		}
	}
	s := newSender(t, cfg, nil)
	done := make(chan error)
	go func() { done <- s.Send(t.Context(), counted) }()
	eventually(t, func() bool { return read.Load() >= most-2*10 })
	time.Sleep(20 * time.Millisecond) // time enough to read all of it
	require.LessOrEqual(t, read.Load(), int64(most))
	close(release)
	require.NoError(t, <-done)
	require.EqualValues(t, 8_000, read.Load())
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

func TestConfigValidate(t *testing.T) {
	f := func(name string, change func(*Config)) {
		t.Helper()
		cfg := DefaultConfig()
		cfg.Key = "k"
		require.NoError(t, cfg.Validate())
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), name)
	}
	f("--url", func(c *Config) { c.URL = "127.0.0.1:8080" })
	f("--url", func(c *Config) { c.URL = "ftp://host" })
	f("--key", func(c *Config) { c.Key = "" })
	f("API key", func(c *Config) { c.Key = "a\nb" })
	f("--batch", func(c *Config) { c.Batch = 0 })
	f("--batch", func(c *Config) { c.Batch = 140_001 })
	f("--concurrency", func(c *Config) { c.Concurrency = 0 })
	f("--timeout", func(c *Config) { c.Timeout = 0 })
	f("--retry-for", func(c *Config) { c.RetryFor = -1 })
	f("--retry-for", func(c *Config) { c.RetryFor = 2 * time.Hour })
}

// Only a definite answer settles a batch; a proxy's does not.
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

// A daemon that was never reached is given up after connectFor; one that has answered may be
// restarting and is retried for RetryFor.
func TestFirstConnection(t *testing.T) {
	f := func(answered int, want time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Key, cfg.Batch, cfg.Concurrency = "k", 1, 1
			s := newSender(t, cfg, nil)
			n := 0
			s.client.HTTP.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
				if n++; n > answered {
					return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
				}
				body := io.NopCloser(strings.NewReader(`{"accepted":1,"rejected":0,"rejections":[]}`))
				return &http.Response{StatusCode: http.StatusMultiStatus, Body: body}, nil
			})
			start := time.Now()
			require.ErrorContains(t, s.Send(t.Context(), series(1, 2)), "check that the daemon is running")
			require.LessOrEqual(t, time.Since(start), want)
			require.Greater(t, time.Since(start), want/8)
		})
	}
	f(0, connectFor)
	f(1, DefaultConfig().RetryFor)
}

// A certificate that is not trusted ends the run at once.
func TestUntrustedCertificate(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	cfg := DefaultConfig()
	cfg.URL, cfg.Key = server.URL, "k"
	s := newSender(t, cfg, nil)
	require.ErrorContains(t, s.Send(t.Context(), series(1, 2)), "--ca FILE")
	require.Zero(t, s.Tally().Retries)
	require.Zero(t, s.Tally().Unknown)
}
