package ingest_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
	"trafficd/sources/api"
	"trafficd/sources/ingest"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(clientEnv); addr != "" {
		if err := runClient(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // runs until the process ends
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// patience is how long a test waits for an expected event.
const patience = time.Minute

// stages is a simple implementation of Pipeline. An item is rejected as
// UNKNOWN_DETECTOR unless its detectorCode is "known".
type stages struct {
	mu        sync.Mutex
	submitted [][]byte // the compressed bodies, as far as they were read
	ready     *contract.APIError
	submit    func(s *batch.Submission) error // instead of decode
	held      map[string]bool                 // Idempotency-Keys
}

func (p *stages) Hold(client, key string) *contract.APIError {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[client+"/"+key] {
		return &contract.APIError{Code: contract.IdempotencyKeyInUse, RetryAfter: time.Second}
	}
	if p.held == nil {
		p.held = map[string]bool{}
	}
	p.held[client+"/"+key] = true
	return nil
}

func (p *stages) Release(client, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, client+"/"+key)
}

func (p *stages) holds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

func (p *stages) Ready(string) *contract.APIError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready
}

func (p *stages) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.submitted)
}

func (p *stages) Submit(s *batch.Submission) error {
	var raw bytes.Buffer
	err := decode(io.TeeReader(s.Body, &raw), s)
	p.mu.Lock()
	p.submitted = append(p.submitted, raw.Bytes())
	other := p.submit
	p.mu.Unlock()
	if other != nil {
		return other(s)
	}
	return err
}

func decode(body io.Reader, s *batch.Submission) error {
	z, err := gzip.NewReader(bufio.NewReader(body))
	if err != nil {
		return errorIn(err, contract.InvalidGzip)
	}
	var request struct {
		Measurements []struct{ DetectorCode string }
	}
	d := json.NewDecoder(z)
	if err := d.Decode(&request); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) {
			return errorIn(err, contract.InvalidGzip)
		}
		return errorIn(err, contract.InvalidJSON)
	}
	if _, err := io.Copy(io.Discard, z); err != nil {
		return errorIn(err, contract.InvalidGzip)
	}
	s.Result.ID = batch.ID{1, 2, 3, 4, 5, 6, 0x77, 8, 0x89}
	s.Result.Items = len(request.Measurements)
	for i, m := range request.Measurements {
		if m.DetectorCode != "known" {
			s.Result.Add(i, contract.UnknownDetector, contract.FieldDetectorCode, []byte(m.DetectorCode))
		}
	}
	s.Result.Accepted = s.Result.Items - s.Result.Len()
	return nil
}

// errorIn returns the API error that ended the body, or one with this code.
func errorIn(err error, code contract.Code) error {
	var r *contract.APIError
	if errors.As(err, &r) {
		return r
	}
	return contract.NewError(code, err.Error())
}

// start serves an ingest endpoint on a real port. At the end of the test it checks that all quotas
// have been released.
func start(t testing.TB, p ingest.Pipeline, change func(*ingest.Config), logs ...io.Writer) string {
	t.Helper()
	cfg := ingest.DefaultConfig()
	cfg.RateGrace = cfg.ReceiveTimeout // the machine may be slow
	if change != nil {
		change(&cfg)
	}
	require.NoError(t, cfg.Validate())
	front := api.DefaultConfig()
	front.Listen, front.DrainGrace = "127.0.0.1:0", 10*time.Millisecond
	front.WriteTimeout = 2 * patience // tests read some responses late
	for _, name := range []string{"key", "other", "limited"} {
		digest := sha256.Sum256([]byte(name))
		front.Keys = append(front.Keys, api.KeyEntry{Name: name, SHA256: hex.EncodeToString(digest[:]), ProductInstance: "city", Rights: []string{"ingest"}})
	}
	front.Keys[2].ItemsPerSecond = 10_000
	keys, err := api.OpenKeyring(front, zerolog.Nop())
	require.NoError(t, err)
	e := ingest.New(cfg, p, zerolog.New(zerolog.MultiLevelWriter(logs...)))
	s, err := api.New(front, keys, []api.Route{{Path: ingest.Path, Methods: []string{"POST"}, Right: contract.RightIngest, Endpoint: e}}, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, s.Start())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, s.Stop(ctx))
		keys.Close()
		requests, memory := ingest.Held(e)
		require.Zero(t, requests, "slots")
		require.Zero(t, memory, "bytes of blocks")
	})
	return s.Addr().String()
}

// peer is a client that sends raw bytes.
type peer struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func dial(t testing.TB, addr string) *peer {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return &peer{t, c, bufio.NewReader(c)}
}

// begin sends the header of a request with the key "key".
func (p *peer) begin(headers string) *peer { return p.beginAs("key", headers) }

func (p *peer) beginAs(key, headers string) *peer {
	return p.send("POST " + ingest.Path + " HTTP/1.1\r\nHost: h\r\nAuthorization: apiKey " + key + "\r\n" + headers + "\r\n")
}

func (p *peer) send(text string) *peer {
	p.t.Helper()
	_, err := io.WriteString(p, text)
	require.NoError(p.t, err)
	return p
}

func (p *peer) response() (*http.Response, string) {
	p.t.Helper()
	require.NoError(p.t, p.SetDeadline(time.Now().Add(patience))) // the test may have waited for other requests
	resp, err := http.ReadResponse(p.in, &http.Request{Method: "POST"})
	require.NoError(p.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp, string(body)
}

// requireError requires an error response.
func (p *peer) requireError(status int, code contract.Code) *http.Response {
	p.t.Helper()
	resp, text := p.response()
	require.Equal(p.t, status, resp.StatusCode, text)
	var body struct {
		Description, ErrorCode, TraceID string
		Causes                          []struct{ Parameter string }
	}
	require.NoError(p.t, json.Unmarshal([]byte(text), &body), text)
	require.Equal(p.t, code.String(), body.ErrorCode, text)
	require.NotNil(p.t, body.Causes)
	return resp
}

// ended requires that the connection is closed without further data.
func (p *peer) ended() {
	p.t.Helper()
	rest, err := io.ReadAll(p.in)
	require.NoError(p.t, err)
	require.Empty(p.t, string(rest))
}

func zip(text string) string { return string(compress.Gzip(text)) }

// measurements is the JSON of a batch with these detector codes.
func measurements(codes ...string) string {
	var b strings.Builder
	for i, code := range codes {
		if i > 0 {
			b.WriteByte(',')
		}
		quoted, _ := json.Marshal(code)
		fmt.Fprintf(&b, `{"detectorCode":%s}`, quoted)
	}
	return `{"measurements":[` + b.String() + `]}`
}

func length(body string) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)) }

// chunk returns a chunk of a chunked body; an empty one ends the body.
func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
