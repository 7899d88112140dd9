package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/cmd/trafficctl/internal/send"
	"trafficd/schemas/contract"
)

func newSender(t testing.TB, d *testDaemon, cfg send.Config, rejected io.Writer, note func(string)) *send.Sender {
	c, err := client.New(client.Config{URL: d.URL, Key: testKey, Timeout: time.Minute}, client.Ingest)
	require.NoError(t, err)
	s, err := send.New(cfg, c, rejected, note)
	require.NoError(t, err)
	return s
}

// itemOf returns the n-th item of a detector.
func itemOf(detector string, n int) measurement.Item {
	from := time.Date(2026, 11, 1, 7, 50, 0, 0, time.UTC)
	f := contract.Measurement{
		DetectorCode: detector, MeasureTypeCode: "speed", TimestampFrom: from, TimestampTo: from, Value: json.Number(strconv.Itoa(n)),
	}
	return measurement.Item{JSON: f.AppendJSON(nil), Detector: detector}
}

// series returns the given number of items (each) for every detector, sorted by detector.
func series(detectors, each int) iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		row := int64(0)
		for d := range detectors {
			for n := range each {
				item := itemOf(fmt.Sprintf("D%d", d), n)
				row++
				item.Position.Row = row
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// sent parses an item that the daemon has received.
func sent(t testing.TB, item json.RawMessage) (detector string, n int) {
	var m struct {
		DetectorCode string
		Value        int
	}
	require.NoError(t, json.Unmarshal(item, &m))
	return m.DetectorCode, m.Value
}

// mixed returns the items and errors of a list.
func mixed(list ...any) iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		for i, x := range list {
			ok := true
			switch x := x.(type) {
			case error:
				ok = yield(measurement.Item{}, x)
			case measurement.Item:
				x.Position.Row = int64(i + 1)
				ok = yield(x, nil)
			}
			if !ok {
				return
			}
		}
	}
}

func badRow(row int64) error {
	return &measurement.RowError{Position: measurement.Position{Row: row}, Err: errors.New("unreadable")}
}

// eventually waits until ok returns true.
func eventually(t testing.TB, ok func() bool) {
	require.Eventually(t, ok, time.Minute, time.Millisecond)
}

// TestOrderAndFullBatches checks that input that is sorted by detector arrives once, with each
// detector's items in order, and in full batches although a lane has few detectors at a time.
func TestOrderAndFullBatches(t *testing.T) {
	const detectors, each, limit = 40, 250, 500
	for _, workers := range []int{1, 4} {
		d := newDaemon(t)
		cfg := send.DefaultConfig()
		cfg.Batch, cfg.Concurrency = limit, workers
		s := newSender(t, d, cfg, io.Discard, func(string) {})
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

func TestNothingToSend(t *testing.T) {
	d := newDaemon(t)
	require.NoError(t, newSender(t, d, send.DefaultConfig(), io.Discard, func(string) {}).Send(t.Context(), mixed()))
	require.Empty(t, d.Keys())
}

// TestRetries checks that after temporary failures a batch is accepted once, under one key.
func TestRetries(t *testing.T) {
	f := func(name string, prepare func(*testDaemon), replayed int64) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time is spent in pauses
			d := newDaemon(t)
			prepare(d)
			s := newSender(t, d, send.DefaultConfig(), io.Discard, func(string) {})
			require.NoError(t, s.Send(t.Context(), series(1, 10)))
			require.Len(t, d.Batches(), 1)
			require.Len(t, d.Keys(), 3)
			require.Len(t, slices.Compact(d.Keys()), 1, "all attempts have one key")
			require.NotEmpty(t, d.Keys()[0])
			tally := s.Tally()
			require.EqualValues(t, 10, tally.Accepted)
			require.EqualValues(t, 2, tally.Retries)
			require.Equal(t, replayed, tally.Replayed)
		})
	}
	for _, status := range []int{408, 409, 429, 500, 502, 503, 504} {
		f(fmt.Sprint(status), func(d *testDaemon) {
			d.Before = func(n int, w http.ResponseWriter, _ *http.Request) bool {
				if n < 3 {
					w.Header().Set("Retry-After", "0")
					reject(w, status, "SOME_CODE", "not now")
				}
				return n < 3
			}
		}, 0)
	}
	f("connection lost before the batch is processed", func(d *testDaemon) {
		d.Before = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
			if n < 3 {
				panic(http.ErrAbortHandler)
			}
			return false
		}
	}, 0)
	f("connection lost before the response", func(d *testDaemon) { d.CutAfter = func(n int) bool { return n < 3 } }, 1)
	f("connection lost within the response", func(d *testDaemon) {
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

// TestPermanentErrorsStop checks that an error that a retry cannot fix ends the run after one
// request. It contains the daemon's description and a remedy.
func TestPermanentErrorsStop(t *testing.T) {
	f := func(status int, hint string) {
		t.Helper()
		d := newDaemon(t)
		d.Before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			reject(w, status, "THE_CODE", "the reason")
			return true
		}
		s := newSender(t, d, send.DefaultConfig(), io.Discard, func(string) {})
		err := s.Send(t.Context(), series(1, 10))
		require.ErrorContains(t, err, fmt.Sprint(status))
		require.ErrorContains(t, err, "THE_CODE: the reason")
		require.ErrorContains(t, err, "trace t1")
		require.ErrorContains(t, err, hint)
		require.Len(t, d.Keys(), 1)
		tally := s.Tally()
		require.EqualValues(t, 1, tally.Resume)
		require.Zero(t, tally.Unknown, "the daemon has rejected the batch")
	}
	f(400, "--url")
	f(401, "--key")
	f(403, "")
	f(404, "--url")
	f(405, "--url")
	f(413, "--batch")
	f(415, "decompresses requests")
	f(422, "run the command again")
	f(302, "")
	f(200, "")
}

// TestRedirectsAreNotFollowed checks that redirects are not followed: one would turn the POST into
// a GET and send the key to another host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	d, other := newDaemon(t), newDaemon(t)
	d.Before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.URL, http.StatusFound)
		return true
	}
	err := newSender(t, d, send.DefaultConfig(), io.Discard, func(string) {}).Send(t.Context(), series(1, 2))
	require.ErrorContains(t, err, "302")
	require.Empty(t, other.Keys())
	require.Len(t, d.Keys(), 1)
}

// TestInconsistentResponses checks that a response whose counts do not match the batch is an
// error.
func TestInconsistentResponses(t *testing.T) {
	f := func(response string) {
		t.Helper()
		d := newDaemon(t)
		d.Before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusMultiStatus)
			w.Write([]byte(response))
			return true
		}
		err := newSender(t, d, send.DefaultConfig(), io.Discard, func(string) {}).Send(t.Context(), series(1, 2))
		require.ErrorContains(t, err, "inconsistent response")
		require.Len(t, d.Keys(), 1)
	}
	f(`{"accepted":1,"rejected":0,"rejections":[]}`)
	f(`{"accepted":1,"rejected":1,"rejections":[]}`)
	f(`{"accepted":1,"rejected":1,"rejections":[{"index":2,"error":{}}]}`)
	f(`{}`)
}

// TestRetryForEnds checks that the sender gives up immediately if Retry-After exceeds --retry-for.
func TestRetryForEnds(t *testing.T) {
	d := newDaemon(t)
	d.Before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "3600")
		reject(w, 503, "GENERAL_SERVICE_UNAVAILABLE", "later")
		return true
	}
	err := newSender(t, d, send.DefaultConfig(), io.Discard, func(string) {}).Send(t.Context(), series(1, 2))
	require.ErrorContains(t, err, "--retry-for")
	require.ErrorContains(t, err, "later")
	require.Len(t, d.Keys(), 1)
}

// TestNoResponse checks that items that were sent without a response are counted as unknown.
func TestNoResponse(t *testing.T) {
	d := newDaemon(t)
	d.CutAfter = func(int) bool { return true }
	cfg := send.DefaultConfig()
	cfg.RetryFor = 0
	s := newSender(t, d, cfg, io.Discard, func(string) {})
	require.ErrorContains(t, s.Send(t.Context(), series(1, 3)), "EOF")
	require.EqualValues(t, 3, s.Tally().Unknown)
	require.EqualValues(t, 1, s.Tally().Resume)
}

// TestRefusedByAProxy checks that items that a proxy or another server has refused are not counted
// as unknown, and that one attempt is one.
func TestRefusedByAProxy(t *testing.T) {
	f := func(status int, unknown int64, want string) {
		t.Helper()
		d := newDaemon(t)
		d.Before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(status)
			return true
		}
		s := newSender(t, d, send.DefaultConfig(), io.Discard, func(string) {})
		require.ErrorContains(t, s.Send(t.Context(), series(1, 3)), want)
		require.Equal(t, unknown, s.Tally().Unknown, status)
	}
	f(404, 0, "404")
	f(413, 0, "413")
	f(429, 0, "gave up after 1 attempt (")
	f(408, 3, "gave up after 1 attempt (")
	f(409, 3, "gave up after 1 attempt (")
	f(502, 3, "gave up after 1 attempt (")
}

// TestInterrupted checks that after an interrupt, batches in flight are still completed and
// counted, no batch starts, and the summary has the row to resume at.
func TestInterrupted(t *testing.T) {
	d := newDaemon(t)
	ctx, interrupt := context.WithCancel(t.Context())
	d.Before = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
		if n == 2 {
			interrupt()
		}
		return false
	}
	cfg := send.DefaultConfig()
	cfg.Batch, cfg.Concurrency = 10, 1
	s := newSender(t, d, cfg, io.Discard, func(string) {})
	require.ErrorIs(t, s.Send(ctx, series(1, 1000)), context.Canceled)
	tally := s.Tally()
	require.EqualValues(t, 20, tally.Accepted)
	require.EqualValues(t, 21, tally.Resume)
	require.Zero(t, tally.Unknown)
}

// TestUnknownAfterLostResponse checks that if an attempt without a response is followed by an
// error, its items are still unknown.
func TestUnknownAfterLostResponse(t *testing.T) {
	d := newDaemon(t)
	d.CutAfter = func(n int) bool { return n == 1 }
	d.Before = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n == 1 {
			return false
		}
		w.Header().Set("Retry-After", "3600")
		reject(w, 503, "GENERAL_SERVICE_UNAVAILABLE", "later")
		return true
	}
	s := newSender(t, d, send.DefaultConfig(), io.Discard, func(string) {})
	require.ErrorContains(t, s.Send(t.Context(), series(1, 3)), "later")
	require.Len(t, d.Items(), 3, "the daemon has accepted the batch")
	require.EqualValues(t, 3, s.Tally().Unknown)
}

// TestInterruptedWhileFillingBatch checks that items of a batch that was never sent are not
// acknowledged.
func TestInterruptedWhileFillingBatch(t *testing.T) {
	d := newDaemon(t)
	ctx, interrupt := context.WithCancel(t.Context())
	s := newSender(t, d, send.DefaultConfig(), io.Discard, func(string) {})
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

func TestInterruptedDuringPause(t *testing.T) {
	d := newDaemon(t)
	ctx, interrupt := context.WithCancel(t.Context())
	d.Before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "60")
		reject(w, 503, "GENERAL_SERVICE_UNAVAILABLE", "later")
		return true
	}
	s := newSender(t, d, send.DefaultConfig(), io.Discard, func(string) { interrupt() })
	require.ErrorIs(t, s.Send(ctx, series(1, 10)), context.Canceled)
	require.EqualValues(t, 1, s.Tally().Resume)
}

func TestBadRowsSkipped(t *testing.T) {
	d := newDaemon(t)
	cfg := send.DefaultConfig()
	cfg.SkipBadRows = true
	var notes []string
	s := newSender(t, d, cfg, io.Discard, func(text string) { notes = append(notes, text) })
	list := []any{itemOf("A", 1)}
	const reportedRows = 10 // then rows are only counted
	for row := range int64(2 * reportedRows) {
		list = append(list, badRow(row+2))
	}
	require.NoError(t, s.Send(t.Context(), mixed(append(list, itemOf("B", 1))...)))
	require.EqualValues(t, 2, s.Tally().Accepted)
	require.EqualValues(t, 2*reportedRows, s.Tally().BadRows)
	require.Len(t, notes, reportedRows)
}

// TestInputFails checks that if the input fails, the items before the failure are sent.
func TestInputFails(t *testing.T) {
	d := newDaemon(t)
	s := newSender(t, d, send.DefaultConfig(), io.Discard, func(string) {})
	broken := errors.New("unexpected EOF")
	require.ErrorIs(t, s.Send(t.Context(), mixed(itemOf("A", 1), itemOf("B", 2), broken)), broken)
	require.EqualValues(t, 2, s.Tally().Accepted)
	require.EqualValues(t, 3, s.Tally().Resume)
}

// TestRejectedItems checks that rejected items are written unchanged, one per line, with their
// position in the input.
func TestRejectedItems(t *testing.T) {
	d := newDaemon(t)
	d.Known = map[string]bool{"A": true}
	var file bytes.Buffer
	cfg := send.DefaultConfig()
	cfg.Concurrency = 1
	pretty := itemOf("B", 3)
	pretty.JSON = []byte(strings.ReplaceAll(string(pretty.JSON), ",", ",\n  "))
	other := itemOf("C", 4)
	s := newSender(t, d, cfg, &file, func(string) {})
	require.NoError(t, s.Send(t.Context(), mixed(itemOf("A", 1), itemOf("A", 2), pretty, other)))

	lines := strings.Split(strings.TrimSpace(file.String()), "\n")
	require.Len(t, lines, 2)
	type line struct {
		Item    json.RawMessage
		Index   int
		Error   contract.ItemError
		Row     int64
		BatchID string
	}
	var first line
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	require.Equal(t, string(itemOf("B", 3).JSON), string(first.Item))
	require.Len(t, first.BatchID, 36)
	require.NotEmpty(t, first.Error.Description)
	first.Item, first.BatchID, first.Error.Description = nil, "", ""
	require.Equal(t, line{Index: 2, Row: 3, Error: contract.ItemError{ErrorCode: "UNKNOWN_DETECTOR", Parameter: "measurements[2].detectorCode"}}, first)
	require.Contains(t, lines[1], string(other.JSON))

	tally := s.Tally()
	require.EqualValues(t, 2, tally.Rejected)
	require.Equal(t, map[string]int64{"UNKNOWN_DETECTOR": 2}, tally.Codes)
	require.EqualValues(t, 3, tally.Examples["UNKNOWN_DETECTOR"].Position.Row)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestRejectedItemsCannotBeWritten(t *testing.T) {
	d := newDaemon(t)
	d.Known = map[string]bool{}
	s := newSender(t, d, send.DefaultConfig(), brokenWriter{}, func(string) {})
	require.ErrorContains(t, s.Send(t.Context(), series(1, 2)), "disk full")
	require.EqualValues(t, 1, s.Tally().Resume, "resuming reports the rejections again")
}

// TestMemoryIsBounded checks that a slow daemon stops the reading of the input: memory is bounded
// by the fixed set of batches.
func TestMemoryIsBounded(t *testing.T) {
	d := newDaemon(t)
	release := make(chan struct{})
	d.Before = func(int, http.ResponseWriter, *http.Request) bool { <-release; return false }
	cfg := send.DefaultConfig()
	cfg.Batch, cfg.Concurrency = 10, 2
	const batchesPerWorker = 4                // of package send
	const maxRead = 2*batchesPerWorker*10 + 1 // including the item that waits for a batch
	var read atomic.Int64
	counted := func(yield func(measurement.Item, error) bool) {
		for item, err := range series(80, 100) {
			read.Add(1)
			if !yield(item, err) {
				return
			}
		}
	}
	s := newSender(t, d, cfg, io.Discard, func(string) {})
	done := make(chan error)
	go func() { done <- s.Send(t.Context(), counted) }()
	eventually(t, func() bool { return read.Load() >= maxRead-2*10 })
	time.Sleep(20 * time.Millisecond) // enough time to read the whole input
	require.LessOrEqual(t, read.Load(), int64(maxRead))
	close(release)
	require.NoError(t, <-done)
	require.EqualValues(t, 8_000, read.Load())
}
