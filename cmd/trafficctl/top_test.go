package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficd/status"
)

// TestInterruptDuringRequest checks that Ctrl-C ends top and tap without an error, even while they
// are waiting for a response.
func TestInterruptDuringRequest(t *testing.T) {
	for _, command := range []string{"top", "tap"} {
		ctx, interrupt := context.WithCancel(t.Context())
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			interrupt()
			<-r.Context().Done()
		}))
		var out, errs bytes.Buffer
		code := run(ctx, []string{command, "--url", server.URL}, streams{strings.NewReader(""), &out, &errs})
		require.Equal(t, exitDone, code, "%s: %s", command, errs.String())
		server.Close()
	}
	operators.CloseIdleConnections()
}

// TestTopInterval checks that --interval has a minimum: requests without a pause would overload
// the daemon.
func TestTopInterval(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it must not run forever
	defer cancel()
	var out, errs bytes.Buffer
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer operators.CloseIdleConnections()
	defer server.Close()
	code := run(ctx, []string{"top", "--url", server.URL, "--interval", "0"}, streams{strings.NewReader(""), &out, &errs})
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs.String(), "--interval 0s must be at least 100ms")
}

// TestTopRetries checks that top continues while the daemon restarts.
func TestTopRetries(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs bytes.Buffer
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch requests++; requests {
		case 2, 3: // net/http repeats the first of them
			panic(http.ErrAbortHandler)
		case 5:
			cancel()
		}
		fmt.Fprintf(w, `{"version":"v%d"}`, requests)
	}))
	defer operators.CloseIdleConnections()
	defer server.Close()
	code := run(ctx, []string{"top", "--url", server.URL, "--interval", "100ms"}, streams{strings.NewReader(""), &out, &errs})
	require.Equal(t, exitDone, code)
	require.Empty(t, errs.String())
	require.NotContains(t, out.String(), "\033", "not a terminal")
	first, rest, _ := strings.Cut(out.String(), "; retrying")
	require.Contains(t, first, "trafficd v1 ")
	require.Contains(t, first, "! cannot reach the operators' listener")
	require.Contains(t, rest, "trafficd v4 ")
}

// TestTopOfSomethingElse checks that the page of another server is not printed as the status.
func TestTopOfSomethingElse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer operators.CloseIdleConnections()
	defer server.Close()
	for _, args := range [][]string{{"top"}, {"top", "--json"}} {
		r := requireFailure(t, "", "check that it is a trafficd of the same version", append(args, "--url", server.URL)...)
		require.Empty(t, r.out)
	}
}

// TestTopOfClientsListener checks that the 404 of the clients' listener is explained.
func TestTopOfClientsListener(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trace-Id", "4bf92f3577b34da6a3ce929d0e0e4736")
		w.WriteHeader(http.StatusNotFound)
	}))
	defer operators.CloseIdleConnections()
	defer server.Close()
	for _, command := range []string{"top", "tap"} {
		requireFailure(t, "", "is the clients' listener; set --url to the operators' one", command, "--url", server.URL)
	}
}

// TestTapHint checks that tap says that nothing has matched yet.
func TestTapHint(t *testing.T) {
	defer func(before time.Duration) { tapHintAfter = before }(tapHintAfter)
	tapHintAfter = time.Millisecond
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	defer operators.CloseIdleConnections()
	errs, out := io.Pipe()
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"tap", "--client", "unknown", "--url", server.URL}, streams{strings.NewReader(""), io.Discard, out})
	}()
	line, err := bufio.NewReader(errs).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "nothing has matched yet")
	interrupt()
	require.Equal(t, exitDone, <-ended)
}

// TestTapWithoutResponse checks that tap does not wait forever for a server of another kind.
func TestTapWithoutResponse(t *testing.T) {
	transport := operators.Transport.(*http.Transport)
	defer func(before time.Duration) { transport.ResponseHeaderTimeout = before }(transport.ResponseHeaderTimeout)
	transport.ResponseHeaderTimeout = 10 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	defer operators.CloseIdleConnections()
	requireFailure(t, "", "check that --url matches the daemon's setting ops.listen", "tap", "--url", server.URL)
}

// TestTapEscapes checks that a measurement cannot control the terminal or forge a line.
func TestTapEscapes(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"code":"UNKNOWN_DETECTOR","detector":"a\u001b[2J\nb","message":"\"a\u001b[2J\u000ab\" does not exist"}` + "\n"))
	}))
	defer operators.CloseIdleConnections()
	defer server.Close()
	r := requireFailure(t, "", "ended the stream", "tap", "--url", server.URL)
	require.Equal(t, "00:00:00Z    UNKNOWN_DETECTOR  \"a\\x1b[2J\\nb\"  \"a\uFFFD[2J\uFFFDb\" does not exist\n", r.out)
}

// TestOtherServer checks that the response of another server cannot control the terminal, and that
// the error says what to do. An error of the daemon, which lists the codes, is printed in full.
func TestOtherServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no\n\x1b[2Jsuch page", http.StatusNotFound)
	}))
	defer operators.CloseIdleConnections()
	defer server.Close()
	long := strings.Repeat("CODE, ", 100)
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, long, http.StatusBadRequest) }))
	defer daemon.Close()
	requireFailure(t, "", "responded with 400 Bad Request: "+strings.TrimSpace(long)+"\n", "tap", "--url", daemon.URL)
	for _, command := range []string{"top", "tap"} {
		requireFailure(t, "", "responded with 404 Not Found: no \uFFFD[2Jsuch page; check that --url matches", command, "--url", server.URL)
	}
}

// TestTopStoreError checks that an error of several lines stays in its row of the table.
func TestTopStoreError(t *testing.T) {
	text := page(&status.Status{Stores: []status.Store{{Name: "clickhouse", Error: "code: 62,\n\tsyntax \x1b[2Jerror"}}})
	require.Regexp(t, `\nclickhouse +0 +0 s +0 +code: 62, syntax \x{FFFD}\[2Jerror\n$`, text)
}

// TestOperatorsURL checks that an invalid --url is not reported as an unreachable daemon.
func TestOperatorsURL(t *testing.T) {
	for _, command := range []string{"top", "tap"} {
		for _, url := range []string{"", "localhost:8081", "ftp://localhost:8081", "http://"} {
			r := requireFailure(t, "", fmt.Sprintf("--url %q must be an http or https URL", url), command, "--url", url)
			require.NotContains(t, r.err, "cannot reach")
		}
	}
}
