package ingest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
	"trafficd/sources/ingest"
)

// ingestResult is the response body of contract 5.2.
type ingestResult struct {
	Accepted   int         `json:"accepted"`
	Rejected   int         `json:"rejected"`
	Rejections []rejection `json:"rejections"`
}

type rejection struct {
	Index int `json:"index"`
	Error struct {
		Description string `json:"description"`
		ErrorCode   string `json:"errorCode"`
		Parameter   string `json:"parameter"`
	} `json:"error"`
}

func parse(t *testing.T, text string) (r ingestResult) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&r), text)
	require.False(t, d.More())
	require.NotNil(t, r.Rejections)
	return r
}

func TestResponse(t *testing.T) {
	addr := start(t, &stages{}, nil)
	body := zip(measurements("known", "A\"1", "known", "B"))
	resp, text := dial(t, addr).begin(length(body)).send(body).response()
	require.Equal(t, 207, resp.StatusCode)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	require.Equal(t, "01020304-0506-7708-8900-000000000000", resp.Header.Get("Batch-Id"))
	require.Empty(t, resp.Header.Get("Idempotent-Replay"))
	require.Equal(t, "Accept, Accept-Encoding", resp.Header.Get("Vary"))
	require.Len(t, resp.Header.Get("Trace-Id"), 32)
	require.Equal(t, `{"accepted":2,"rejected":2,"rejections":[`+
		`{"index":1,"error":{"description":"detectorCode \"A\"1\" does not exist in product instance ","errorCode":"UNKNOWN_DETECTOR","parameter":"measurements[1].detectorCode"}},`+
		`{"index":3,"error":{"description":"detectorCode \"B\" does not exist in product instance ","errorCode":"UNKNOWN_DETECTOR","parameter":"measurements[3].detectorCode"}}]}`,
		strings.ReplaceAll(text, `\"A\\\"1\"`, `\"A\"1\"`))

	empty := zip(measurements())
	_, text = dial(t, addr).begin(length(empty)).send(empty).response()
	require.Equal(t, `{"accepted":0,"rejected":0,"rejections":[]}`, text)
}

func TestReplay(t *testing.T) {
	p := &stages{submit: func(s *batch.Submission) error { s.Result.Replay = true; return nil }}
	addr := start(t, p, nil)
	body := zip(measurements("known"))
	resp, _ := dial(t, addr).begin(length(body) + "Idempotency-Key: k\r\n").send(body).response()
	require.Equal(t, "true", resp.Header.Get("Idempotent-Replay"))
}

// TestReplayOfANewerVersion checks that a replay with a code that a newer version has stored is a
// response like any other.
func TestReplayOfANewerVersion(t *testing.T) {
	p := &stages{submit: func(s *batch.Submission) error {
		s.Result = batch.Result{Items: 5, Accepted: 4, Replay: true}
		s.Result.Add(3, contract.UnknownCode, contract.FieldItem, []byte("x"))
		return nil
	}}
	addr := start(t, p, nil)
	body := zip(measurements("known"))
	resp, text := dial(t, addr).begin(length(body) + "Idempotency-Key: k\r\n").send(body).response()
	require.Equal(t, 207, resp.StatusCode)
	require.Equal(t, `{"accepted":4,"rejected":1,"rejections":[{"index":3,"error":{"description":`+
		`"the item was rejected for a reason that this version of the daemon does not know","errorCode":"UNKNOWN","parameter":"measurements[3]"}}]}`, text)
}

// TestDuplicateItems checks that a header has the number of duplicate items unless it is 0, and
// that the log warns once for each client.
func TestDuplicateItems(t *testing.T) {
	var duplicates, warnings atomic.Int32
	p := &stages{submit: func(s *batch.Submission) error { s.Result.Duplicates = int(duplicates.Load()); return nil }}
	addr := start(t, p, nil, writerFunc(func(line []byte) (int, error) {
		if bytes.Contains(line, []byte("replace each other")) {
			warnings.Add(1)
		}
		return len(line), nil
	}))
	body := zip(measurements("known"))
	for _, n := range []int{0, 3, 4} {
		duplicates.Store(int32(n))
		resp, _ := dial(t, addr).begin(length(body)).send(body).response()
		require.Equal(t, 207, resp.StatusCode)
		want := ""
		if n > 0 {
			want = strconv.Itoa(n)
		}
		require.Equal(t, want, resp.Header.Get("Duplicate-Items"))
	}
	require.EqualValues(t, 1, warnings.Load())
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestLargeResponse receives responses of many blocks, plain and compressed, on one connection.
func TestLargeResponse(t *testing.T) {
	addr := start(t, &stages{}, nil)
	var codes []string
	for i := range 14_000 {
		codes = append(codes, fmt.Sprintf("unknown-%d-\x01é", i))
	}
	body := zip(measurements(codes...))
	c := dial(t, addr)
	f := func(headers string, compressed bool) {
		t.Helper()
		resp, text := c.begin(headers + length(body)).send(body).response()
		require.Equal(t, compressed, resp.Header.Get("Content-Encoding") == "gzip")
		require.EqualValues(t, len(text), resp.ContentLength)
		if compressed {
			z, err := gzip.NewReader(strings.NewReader(text))
			require.NoError(t, err)
			plain, err := io.ReadAll(z)
			require.NoError(t, err)
			text = string(plain)
		}
		r := parse(t, text)
		require.Equal(t, 14_000, r.Rejected)
		require.Zero(t, r.Accepted)
		for i, x := range r.Rejections {
			if x.Index != i || x.Error.Parameter != fmt.Sprintf("measurements[%d].detectorCode", i) || !strings.Contains(x.Error.Description, codes[i]) {
				t.Fatalf("rejection %d is %+v", i, x)
			}
		}
	}
	f("", false)
	f("Accept-Encoding: gzip\r\n", true)
	f("Accept: application/json, application/gzip\r\n", true)
	f("Accept-Encoding: gzip;q=0\r\n", false)
	f("Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n", true)
}

func TestNoResponse(t *testing.T) {
	p := &stages{submit: func(*batch.Submission) error { return batch.ErrNoResponse }}
	addr := start(t, p, nil)
	body := zip(measurements("known"))
	dial(t, addr).begin(length(body)).send(body).ended()
	require.Equal(t, 1, p.count())
}

// TestRejectedByPipeline checks that errors of the pipeline are sent unchanged, and that the
// connection remains usable, because the body was read.
func TestRejectedByPipeline(t *testing.T) {
	p := &stages{}
	addr := start(t, p, nil)
	body := zip(measurements("known"))
	c := dial(t, addr)
	for _, x := range []struct {
		code   contract.Code
		status int
	}{
		{contract.InvalidJSON, 400},
		{contract.InvalidGzip, 400},
		{contract.MissingField, 400},
		{contract.InvalidType, 400},
		{contract.DuplicateField, 400},
		{contract.TooManyItems, 413},
		{contract.BodyTooLarge, 413},
		{contract.IdempotencyKeyReused, 422},
		{contract.ServiceUnavailable, 503},
	} {
		p.mu.Lock()
		p.submit = func(*batch.Submission) error { return contract.NewError(x.code, "why") }
		p.mu.Unlock()
		resp := c.begin(length(body)).send(body).requireError(x.status, x.code)
		require.Equal(t, x.code == contract.InvalidGzip, resp.Close)
		if resp.Close {
			c = dial(t, addr)
		}
	}
	p.mu.Lock()
	p.submit = func(*batch.Submission) error { panic(bytes.ErrTooLarge) }
	p.mu.Unlock()
	c.begin(length(body)).send(body).requireError(500, contract.InternalError)
}

// TestItemsOfRejectedBodiesAreCharged checks that the items of a rejected body are charged to the
// key.
func TestItemsOfRejectedBodiesAreCharged(t *testing.T) {
	p := &stages{submit: func(s *batch.Submission) error {
		s.Result.Items = 14_000_000
		return contract.NewError(contract.TooManyItems, "too many")
	}}
	body := zip(measurements("known"))
	c := dial(t, start(t, p, nil))
	c.beginAs("limited", length(body)).send(body).requireError(413, contract.TooManyItems)
	resp := c.beginAs("limited", length(body)).requireError(429, contract.RateLimited)
	wait, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.InDelta(t, 1400, wait, patience.Seconds(), "13,990,001 items at 10,000 per second, less the time since the first request")
	require.LessOrEqual(t, wait, 1400)
}

// worker is a pipeline that processes one body at a time. It rejects 140,000 items of each body of
// the key "key".
type worker struct {
	stages
	one  sync.Mutex
	done atomic.Int32
}

func (p *worker) Submit(s *batch.Submission) error {
	p.one.Lock()
	defer p.one.Unlock()
	defer p.done.Add(1)
	if _, err := io.ReadAll(s.Body); err != nil {
		return err
	}
	for i := range 140_000 {
		if !strings.HasSuffix(s.Client, "other") {
			s.Result.Add(i, contract.BatchLimitExceeded, contract.FieldItem, nil)
		}
	}
	return nil
}

// TestUnreadResponsesLeaveMemory checks that a client that does not read its responses does not use
// up the memory of the others, although all its requests were admitted before the first response.
func TestUnreadResponsesLeaveMemory(t *testing.T) {
	p := &worker{}
	addr := start(t, p, func(c *ingest.Config) { c.MaxCompressedBytes, c.AdmissionBytes = 256<<10, 32<<20 })
	body := zip(measurements("known"))
	before := ingest.HeldBytes() // held by other tests
	const requests = 40
	var peers []*peer
	for range requests {
		peers = append(peers, dial(t, addr).begin(length(body)).send(body[:1]))
	}
	require.Eventually(t, func() bool { return ingest.HeldBytes()-before == requests*64<<10 }, patience, time.Millisecond)
	for _, c := range peers {
		c.send(body[1:])
	}
	require.Eventually(t, func() bool { return p.done.Load() == requests }, patience, time.Millisecond)
	resp, text := dial(t, addr).beginAs("other", length(body)).send(body).response()
	require.Equal(t, 207, resp.StatusCode, text)
	served := 0
	for _, c := range peers {
		resp, text := c.response()
		if resp.StatusCode == 207 {
			served++
			continue
		}
		require.Equal(t, 503, resp.StatusCode)
		require.Contains(t, text, "read the pending responses")
	}
	require.Greater(t, served, 1)
	require.Less(t, served, requests)
}

// TestDryRun checks the response to a batch that is only validated: it differs from a 207 in its
// status and headers, uses up no Idempotency-Key, and is not counted as a batch.
func TestDryRun(t *testing.T) {
	var got batch.Submission
	var held int
	p := &stages{}
	addr := start(t, p, nil)
	body := zip(measurements("known", "B"))
	_, want := dial(t, addr).begin(length(body)).send(body).response()
	p.submit = func(s *batch.Submission) error {
		got, held = *s, p.holds()
		return nil
	}
	f := func(prefer, applied string, allErrors bool) {
		t.Helper()
		resp, text := dial(t, addr).begin(length(body) + "Idempotency-Key: k\r\n" + prefer).send(body).response()
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, want, text)
		require.Equal(t, applied, resp.Header.Get("Preference-Applied"))
		require.Empty(t, resp.Header.Values("Batch-Id"))
		require.True(t, got.ValidateOnly)
		require.Equal(t, allErrors, got.AllErrors)
		require.Empty(t, got.IdempotencyKey)
		require.Zero(t, held)
	}
	f("Prefer: validate-only\r\n", "validate-only", false)
	f("Prefer: wait=3, Validate-Only; x=y\r\n", "validate-only", false)
	f("Prefer: validate-only, all-errors\r\n", "validate-only, all-errors", true)
	f("Prefer: all-errors\r\nPrefer: validate-only\r\n", "validate-only, all-errors", true)

	resp, _ := dial(t, addr).begin(length(body) + "Idempotency-Key: k\r\nPrefer: all-errors\r\n").send(body).response()
	require.Equal(t, 207, resp.StatusCode)
	require.Empty(t, resp.Header.Get("Preference-Applied"))
	require.False(t, got.ValidateOnly || got.AllErrors)
	require.Equal(t, "k", got.IdempotencyKey)

	// The same checks of the header and the body.
	resp, _ = dial(t, addr).begin(length(body) + "Idempotency-Key: k\r\nIdempotency-Key: l\r\nPrefer: validate-only\r\n").send(body).response()
	require.Equal(t, 400, resp.StatusCode)
	resp, _ = dial(t, addr).begin(length("plain") + "Prefer: validate-only\r\n").send("plain").response()
	require.Equal(t, 415, resp.StatusCode)
}
