package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"trafficd/cmd/dev/daemontest"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
	"trafficd/schemas/openapi"
	"trafficd/sinks/layers"
	"trafficd/sources/ingest"
	"trafficd/sources/routing"
)

// exampleTraceparent is the example of this header. Its trace ID is the traceId of all examples.
const exampleTraceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

type exampleContent map[string]struct {
	Examples map[string]struct{ Value any }
}

type exampleResponse struct {
	Ref     string `yaml:"$ref"`
	Content exampleContent
}

type examplesDocument struct {
	Paths map[string]map[string]struct {
		RequestBody struct{ Content exampleContent } `yaml:"requestBody"`
		Responses   map[string]exampleResponse
	}
	Components struct{ Responses map[string]exampleResponse }
}

// seenExample is a response of the daemon.
type seenExample struct {
	status int
	body   string
}

// TestOpenAPIExamples posts the request examples of the OpenAPI document, which must get the
// response examples with the same names, and provokes every example of an error.
func TestOpenAPIExamples(t *testing.T) {
	t.Parallel()
	var document examplesDocument
	require.NoError(t, yaml.Unmarshal(openapi.Document, &document))
	statuses := make(map[string]string)           // component → status
	examples := make(map[string]map[string]any)   // operation and status, or component → name → value
	requests := make(map[string]map[string][]any) // path → name → body
	for path, operations := range document.Paths {
		for method, operation := range operations {
			for status, response := range operation.Responses {
				if component, referenced := strings.CutPrefix(response.Ref, "#/components/responses/"); referenced {
					statuses[component] += " " + status
					collectExamples(examples, component, document.Components.Responses[component].Content)
				} else {
					collectExamples(examples, method+" "+path+" "+status, response.Content)
				}
			}
			for _, media := range operation.RequestBody.Content {
				for name, example := range media.Examples {
					if requests[path] == nil {
						requests[path] = make(map[string][]any)
					}
					requests[path][name] = append(requests[path][name], example.Value)
				}
			}
		}
	}

	// Go's client may report that the connection was closed instead of an early response, unless
	// the daemon reads all that the client sends.
	d := examplesProcess(t)
	for path, bodies := range requests {
		for name, values := range bodies {
			for _, body := range values {
				got := d.sendExample(path, body)
				key := fmt.Sprintf("post %s %d", path, got.status)
				want, found := examples[key][name]
				require.True(t, found, "request example %s of %s: the response %d has no example of this name: %s", name, path, got.status, got.body)
				requireExample(t, key+" "+name, want, got.body)
				delete(examples[key], name)
			}
		}
	}

	layer := "get " + layers.Path + " 200"
	_, body := d.layer(daemontest.ExamplesKey, "?horizon=30", "Accept", "application/json")
	requireExample(t, layer, examples[layer]["oneStreet"], withPeriodOf(t, examples[layer]["oneStreet"], body))
	delete(examples[layer], "oneStreet")

	dry := d.exchange(http.MethodPost, contract.IngestPath, compress.Gzip(`{"measurements":[{"detectorCode":"MQ-0000-0","measureTypeCode":"speed",`+
		`"timestampFrom":"2026-01-31T12:05:00Z","timestampTo":"2026-01-31T12:00:00Z","value":1}]}`),
		"Content-Encoding", "gzip", "Prefer", "validate-only, all-errors")
	key := fmt.Sprintf("post %s %d", contract.IngestPath, dry.status)
	requireExample(t, key, examples[key]["allErrors"], dry.body)
	delete(examples[key], "allErrors")

	for key, got := range d.provokeErrors() {
		component, name, _ := strings.Cut(key, "/")
		want, found := examples[component][name]
		require.True(t, found, key)
		requireExample(t, key, want, got.body)
		require.Contains(t, statuses[component]+" ", fmt.Sprintf(" %d ", got.status), key)
		delete(examples[component], name)
	}
	delete(examples["InternalError"], "fault") // no request can provoke it
	for key, rest := range examples {
		require.Empty(t, rest, "%s: examples that no test compares", key)
	}
}

func collectExamples(examples map[string]map[string]any, key string, content exampleContent) {
	for _, media := range content {
		for name, example := range media.Examples {
			if examples[key] == nil {
				examples[key] = make(map[string]any)
			}
			examples[key][name] = example.Value
		}
	}
}

// requireExample compares JSON, or text.
func requireExample(t *testing.T, what string, want any, got string) {
	t.Helper()
	if text, ok := want.(string); ok {
		require.Equal(t, text, got, what)
		return
	}
	wanted, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(wanted), got, what)
}

// withPeriodOf replaces the times of the layer's only period, which is about now, by those of the
// example.
func withPeriodOf(t *testing.T, example any, body []byte) string {
	t.Helper()
	var got, want struct {
		StreetForecast []struct{ Forecast []struct{ Start, End string } } `json:"streetForecast"`
	}
	wanted, err := json.Marshal(example)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(wanted, &want))
	require.NoError(t, json.Unmarshal(body, &got), "%s", body)
	period, shown := got.StreetForecast[0].Forecast[0], want.StreetForecast[0].Forecast[0]
	return strings.NewReplacer(period.Start, shown.Start, period.End, shown.End).Replace(string(body))
}

// sendExample posts a request example: JSON compressed, XML unchanged.
func (d *process) sendExample(path string, body any) seenExample {
	d.t.Helper()
	if text, ok := body.(string); ok {
		return d.exchange(http.MethodPost, path, []byte(text), "Content-Type", "text/xml; charset=utf-8")
	}
	text, err := json.Marshal(body)
	require.NoError(d.t, err)
	return d.exchange(http.MethodPost, path, compress.Gzip(string(text)), "Content-Encoding", "gzip")
}

// exchange sends a request with the key of the integrator, unless the headers contain another key.
func (d *process) exchange(method, path string, body []byte, headers ...string) seenExample {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.API+path, bytes.NewReader(body))
	require.NoError(d.t, err)
	req.Header.Set("Authorization", "apiKey "+daemontest.ExamplesKey)
	req.Header.Set("traceparent", exampleTraceparent)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return d.seen(http.DefaultTransport.RoundTrip(req))
}

func (d *process) seen(response *http.Response, err error) seenExample {
	d.t.Helper()
	require.NoError(d.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(d.t, err)
	return seenExample{response.StatusCode, string(text)}
}

// held returns a batch request that a test begins but does not finish.
func (d *process) held(headers string) rawRequest {
	header := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: apiKey %s\r\ntraceparent: %s\r\n%sContent-Length: 1000\r\n\r\n",
		ingest.Path, d.API, daemontest.ExamplesKey, exampleTraceparent, headers)
	return rawRequest{header: []byte(header), body: compress.Gzip(`{"measurements":[]}`)}
}

// otherVersion sends a request in a version of HTTP that the daemon does not support.
func (d *process) otherVersion() seenExample {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.API)
	require.NoError(d.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/2.0\r\ntraceparent: "+exampleTraceparent+"\r\n\r\n")
	require.NoError(d.t, err)
	return d.seen(http.ReadResponse(bufio.NewReader(conn), nil))
}

// provokeErrors returns the responses to requests with errors, by component and name of their
// example.
func (d *process) provokeErrors() map[string]seenExample {
	d.t.Helper()
	post := func(body []byte, headers ...string) seenExample {
		d.t.Helper()
		return d.exchange(http.MethodPost, ingest.Path, body, headers...)
	}
	batch := compress.Gzip(`{"measurements":[]}`)
	seen := map[string]seenExample{
		"BadRequest/invalidGzip":             post(batch[:len(batch)-4]),
		"BadRequest/invalidJson":             post(compress.Gzip(`{"measurements":[{"detectorCode":"MQ-0815-1",}]}`)),
		"BadRequest/noMeasurements":          post(compress.Gzip(`{}`)),
		"BadRequest/measurementsNotArray":    post(compress.Gzip(`{"measurements":{}}`)),
		"BadRequest/duplicateMeasurements":   post(compress.Gzip(`{"measurements":[],"measurements":[]}`)),
		"BadRequest/malformedKey":            post(batch, "Idempotency-Key", "a b"),
		"Unauthenticated/unknownKey":         post(batch, "Authorization", "apiKey unknown"),
		"RoutingUnauthenticated/unknownKey":  d.exchange(http.MethodPost, routing.Path, nil, "Authorization", "apiKey unknown", "Content-Type", "text/xml"),
		"NotFound/wrongPath":                 d.exchange(http.MethodGet, "/other", nil),
		"MethodNotAllowed/get":               d.exchange(http.MethodGet, ingest.Path, nil),
		"UnsupportedMediaType/notCompressed": post([]byte(`{"measurements":[]}`)),
		"UnsupportedMediaType/multipart":     post(batch, "Content-Type", "multipart/form-data; boundary=x"),
		"TooLarge/items":                     post(compress.Gzip(`{"measurements":[` + strings.Repeat(`1,`, 140_000) + `1]}`)),
		"TooLarge/bytes":                     post(make([]byte, 16<<20+1)),
		"HeaderTooLarge/longHeader":          post(batch, "X-Long", strings.Repeat("x", 16<<10)),
		"VersionNotSupported/version":        d.otherVersion(),
	}

	// The traceparent of a header that is too large is not read.
	tooLarge := seen["HeaderTooLarge/longHeader"]
	tooLarge.body = regexp.MustCompile(`"traceId":"[0-9a-f]{32}"`).ReplaceAllString(tooLarge.body, `"traceId":"`+exampleTraceparent[3:35]+`"`)
	seen["HeaderTooLarge/longHeader"] = tooLarge

	large := compress.Gzip(`{"measurements":[` + strings.Repeat(`{},`, 139_999) + `{}]}`)
	attempts := 0
	d.Eventually(func() bool { // until both are processed at the same time
		attempts++
		key, first := fmt.Sprint("together-", attempts), make(chan seenExample)
		go func() { first <- post(large, "Idempotency-Key", key) }()
		for _, e := range []seenExample{post(large, "Idempotency-Key", key), <-first} {
			if e.status == http.StatusConflict {
				seen["IdempotencyKeyInUse/inProgress"] = e
			}
		}
		return seen["IdempotencyKeyInUse/inProgress"].status == http.StatusConflict
	}, "two batches with the same key at once")
	require.Equal(d.t, http.StatusMultiStatus, post(batch, "Idempotency-Key", "used").status)
	seen["IdempotencyKeyReused/anotherBatch"] = post(compress.Gzip(`{"measurements":[1]}`), "Idempotency-Key", "used")

	other := examplesProcess(d.t, "ingest.admission_requests=4")
	slow := other.begin(other.held("")).conn
	other.Eventually(func() bool {
		other.tryBegin(other.held("")) // rejected if the request below still has its slot
		seen["Unavailable/busy"] = other.exchange(http.MethodPost, ingest.Path, batch)
		return seen["Unavailable/busy"].status == http.StatusServiceUnavailable
	}, "a full daemon")
	seen["RequestTimeout/slowBody"] = d.seen(http.ReadResponse(bufio.NewReader(slow), nil))

	replaceFile(d.t, filepath.Join(d.Dir, "keys.yaml"), "keys:\n"+
		strings.Replace(keyEntry(daemontest.ExamplesKey, "forecast", "UTC"), "{", "{requests_per_second: 0.1, ", 1))
	d.Eventually(func() bool {
		seen["Forbidden/noRight"] = post(batch)
		return seen["Forbidden/noRight"].status == http.StatusForbidden
	}, "the reloaded keys")
	d.Eventually(func() bool {
		seen["RateLimited/tooMany"] = d.exchange(http.MethodGet, layers.Path, nil)
		return seen["RateLimited/tooMany"].status == http.StatusTooManyRequests
	}, "the rate limit")
	return seen
}

func examplesProcess(t *testing.T, settings ...string) *process {
	t.Helper()
	return &process{t, daemontest.Examples(t, settings...)}
}
