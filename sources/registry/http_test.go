package registry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHTTPPolling checks that If-None-Match has only the ETag of the list in use, so that a
// rejected list is read again.
func TestHTTPPolling(t *testing.T) {
	var body, etag string
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("If-None-Match"))
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("ETag", etag)
		if etag != "" && r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, body)
	}))
	defer server.Close()
	feed := newTestFeed(t, FeedConfig{HTTP: &HTTPConfig{URL: server.URL, Authorization: "Bearer secret", Column: "id"}})
	f := func(newBody, newETag, wantSent, wantError string, want ...string) {
		t.Helper()
		body, etag = newBody, newETag
		feed.check(t.Context())
		require.Equal(t, wantSent, sent[len(sent)-1])
		require.Equal(t, want, codesOf(feed.onlyList().current.Load()))
		require.Contains(t, feed.onlyList().status(time.Now()).Error, wantError)
		if wantError == "" {
			require.Empty(t, feed.onlyList().status(time.Now()).Error)
		}
	}
	f(`["A","B"]`, `"1"`, "", "", "A", "B")
	f(`unread`, `"1"`, `"1"`, "", "A", "B")
	f(`[]`, `"2"`, `"1"`, "never used", "A", "B")
	f(`["A","B"`, `"3"`, `"1"`, "truncated JSON", "A", "B")
	f(`["B","A"]`, `"4"`, `"1"`, "", "A", "B")
	f(`{"detectors":[{"id":"A"},{"id":"C"}]}`, `"5"`, `"4"`, "", "A", "C")
	f(`["A","D"]`, ``, `"5"`, "", "A", "D")
	f(`["A","E"]`, ``, ``, "", "A", "E")
}

func TestHTTPFailures(t *testing.T) {
	f := func(timeout time.Duration, handler http.HandlerFunc, want string) {
		t.Helper()
		server := httptest.NewServer(handler)
		defer server.Close()
		feed := newTestFeed(t, FeedConfig{HTTP: &HTTPConfig{URL: server.URL}})
		feed.source.(*httpSource).maxBytes = 1000
		feed.source.(*httpSource).client.Timeout = timeout
		feed.check(t.Context())
		require.Contains(t, feed.onlyList().status(time.Now()).Error, want)
		require.Contains(t, feed.onlyList().status(time.Now()).Error, server.URL)
	}
	const long = time.Minute
	f(long, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500 Internal Server Error")
	f(long, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, "304") // the request was not conditional
	f(long, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "invalid or truncated JSON")
	f(long, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "[%q]", make([]byte, 1000)) }, "max_bytes")
	f(long, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, `["A"]`) // looks complete, but is shorter than Content-Length
	}, "unexpected EOF")
	f(200*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "Timeout")
}

func TestHTTPSecretsStayOutOfErrors(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	address := server.Listener.Addr().String()
	feed := newTestFeed(t, FeedConfig{HTTP: &HTTPConfig{URL: "http://user:hunter2@" + address, Authorization: "Bearer hunter2"}})
	f := func(want string) {
		t.Helper()
		feed.check(t.Context())
		require.Contains(t, feed.onlyList().status(time.Now()).Error, want)
		require.NotContains(t, feed.onlyList().status(time.Now()).Error, "hunter2")
	}
	f("404")
	server.Close()
	f("refused")
}

// TestHTTPIsPolled runs the registry with a service whose list changes.
func TestHTTPIsPolled(t *testing.T) {
	t.Parallel()
	polls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		polls++
		fmt.Fprintf(w, `["A","B%d"]`, min(polls, 2))
	}))
	defer server.Close()
	r := start(t, testConfig(FeedConfig{ProductInstance: "city", HTTP: &HTTPConfig{URL: server.URL, Interval: time.Second}}))
	waitForCodes(t, r, "A", "B2")
	r.Close()
}
