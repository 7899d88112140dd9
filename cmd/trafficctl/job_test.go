package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/soap"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
	"trafficd/sources/routing"
)

// startJob starts a job for points in WKT and returns its id.
func startJob(t *testing.T, url string, texts ...string) string {
	t.Helper()
	var list []xroute.EncodedGeometry
	for _, text := range texts {
		list = append(list, &xroute.Point{Encodings: xroute.Encodings{WKT: &text}})
	}
	return startJobOf(t, url, geo.VendorGeoDecimal, list, xroute.EncodingWKT)
}

func startJobOf(t *testing.T, url string, to geo.Format, list []xroute.EncodedGeometry, encodings ...xroute.GeometryEncoding) string {
	t.Helper()
	options := xroute.RequestOptions{ResponseGeometry: encodings, CoordFormat: to}
	job, err := newClient(t, url).Start(t.Context(), list, options, nil)
	require.NoError(t, err)
	return *job.ID
}

func jobArgs(url, verb, id string, more ...string) []string {
	return append([]string{"job", verb, id, "--url", url, "--key", testKey}, more...)
}

func TestJob(t *testing.T) {
	url := startRouting(t, nil)
	id := startJob(t, url, "POINT (8.25 48.75)", "POINT (8.25", "POINT (9 49)")

	r := runWith(t, "", jobArgs(url, "watch", id, "--json")...)
	require.Equal(t, exitRejected, r.code, r.err)
	var state jobState
	require.NoError(t, json.Unmarshal([]byte(r.out), &state))
	state.Elapsed = 0
	require.Equal(t, jobState{ID: id, Status: xroute.StatusSucceeded, Successful: 2, Failed: 1}, state)

	r = requireSuccess(t, "", jobArgs(url, "stop", id)...)
	require.Contains(t, r.out, "SUCCEEDED: 2 converted, 1 failed, 0 remaining", "the job had ended")

	r = runWith(t, "", jobArgs(url, "fetch", id)...)
	require.Equal(t, exitRejected, r.code, r.err)
	require.Equal(t, "POINT (825000 4875000)\nPOINT (900000 4900000)\n", r.out)
	require.Contains(t, r.err, "geometry 2 of the request: REQUEST_INVALID_WKT: ")
	require.Contains(t, r.err, "check that the geometry is valid WKT")

	for _, verb := range []string{"watch", "stop", "delete", "fetch"} {
		requireFailure(t, "", "it has expired, was fetched or deleted", jobArgs(url, verb, id)...)
	}
}

// TestJobFetchDeep checks that everything that the service accepts can be read, because the
// results of a job are returned only once.
func TestJobFetchDeep(t *testing.T) {
	url := startRouting(t, nil)
	deepest := routing.DefaultConfig().MaxDepth
	text := strings.Repeat("GEOMETRYCOLLECTION (", deepest) + "POINT (8 48)" + strings.Repeat(")", deepest)
	list := []xroute.EncodedGeometry{&xroute.GeometryCollection{Encodings: xroute.Encodings{WKT: &text}}}
	id := startJobOf(t, url, geo.GeoDecimal, list, xroute.EncodingPlain, xroute.EncodingWKT)
	requireSuccess(t, "", jobArgs(url, "watch", id)...)
	r := requireSuccess(t, "", jobArgs(url, "fetch", id)...)
	require.Equal(t, text+"\n", r.out)
}

// TestJobFetchPlain checks that a client can fetch results that have only the PLAIN encoding, for
// all types and with heights.
func TestJobFetchPlain(t *testing.T) {
	url := startRouting(t, nil)
	texts := []string{
		"POINT Z (8 48 1.5)",
		"LINESTRING (8 48, 9 49)",
		"POLYGON ((8 48, 9 48, 9 49, 8 48))",
		"MULTIPOINT ((8 48), (9 49))",
		"MULTILINESTRING ((8 48, 9 48), (8 49, 9 49))",
		"MULTIPOLYGON (((8 48, 9 48, 9 49, 8 48)), EMPTY)",
		"GEOMETRYCOLLECTION Z (POINT Z (8 48 1), GEOMETRYCOLLECTION Z EMPTY)",
		"POINT (8 95)", // not a valid latitude
		"LINESTRING EMPTY",
	}
	var list []xroute.EncodedGeometry
	for _, g := range parse(t, texts...) {
		e, err := soap.Encode(g)
		require.NoError(t, err)
		list = append(list, e)
	}
	id := startJobOf(t, url, geo.GeoDecimal, list, xroute.EncodingPlain)
	require.Equal(t, exitRejected, runWith(t, "", jobArgs(url, "watch", id)...).code)
	r := runWith(t, "", jobArgs(url, "fetch", id)...)
	require.Equal(t, exitRejected, r.code, r.err)
	require.Equal(t, strings.Join(slices.Delete(texts, 7, 8), "\n")+"\n", r.out)
	require.Contains(t, r.err, "geometry 8 of the request: CONVERT_COORDINATE_FORMAT")
}

func TestJobDelete(t *testing.T) {
	url := startRouting(t, nil)
	id := startJob(t, url, "POINT (8 48)")
	r := requireSuccess(t, "", jobArgs(url, "delete", id)...)
	require.Contains(t, r.out, "DELETED")
	for _, verb := range []string{"watch", "fetch"} {
		requireFailure(t, "", "was deleted", jobArgs(url, verb, id)...)
	}
}

// TestJobRejected checks that errors of the service, and responses that are not the service's, are
// explained.
func TestJobRejected(t *testing.T) {
	url := startRouting(t, func(c *routing.Config) { c.Jobs.MaxPerClient = 1 })
	id := startJob(t, url, "POINT (8 48)")
	f := func(want string, args ...string) {
		t.Helper()
		r := requireFailure(t, "", want, append([]string{"job", "watch", id}, args...)...)
		require.Empty(t, r.out)
	}
	f("unknown job", "--url", url, "--key", otherKey, "--quiet")
	f("401 GENERAL_UNAUTHENTICATED", "--url", url, "--key", "tfd_wrong")
	f("the key does not have the right routing", "--url", url, "--key", noRightKey)
	f("check --url", "--url", url+"/elsewhere", "--key", testKey)
	f("cannot reach the routing service", "--url", "http://127.0.0.1:1", "--key", testKey)
	f("missing API key", "--url", url)
	f("must be an http or https URL", "--url", "ftp://example.org", "--key", testKey)
	f("--timeout 1ms", "--url", url, "--key", testKey, "--timeout", "1ms")
}

func TestJobCommands(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		r := requireFailure(t, "", want, append([]string{"job"}, args...)...)
		require.Empty(t, r.out)
	}
	const unknownCommand = `unknown command "list" for job; its commands are delete, fetch, stop, watch`
	f(unknownCommand, "list")
	f(unknownCommand, "list", "--url", "http://127.0.0.1:1", "--key", testKey)
	for _, verb := range []string{"watch", "fetch", "stop", "delete"} {
		f("expected one argument: the job ID", verb)
		f("expected one argument: the job ID", verb, "")
		f("expected one argument: the job ID", verb, "A", "B")
	}
	empty := file(t, "empty.key", "\n")
	f("the first line of --key-file "+empty+" is empty", "watch", "A", "--key-file", empty)
}

// TestCommandWithoutResponse checks that if the daemon does not respond, the command fails after
// the timeout or an interrupt.
func TestCommandWithoutResponse(t *testing.T) {
	asked := make(chan struct{}, 2)
	daemon := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices a closed connection
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer daemon.Close()
	args := []string{"job", "fetch", "A", "--url", daemon.URL, "--key", testKey}
	for _, args := range [][]string{args, append([]string{"forecast", "get"}, args[3:]...)} {
		requireFailure(t, "", " within --timeout 1s; increase it, or check the daemon and --url", append(args, "--timeout", "1s")...)
		<-asked
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(errors.New("interrupt signal received"))
	}()
	var out, errs strings.Builder
	require.Equal(t, exitFailed, run(ctx, args, streams{nil, &out, &errs}))
	require.Equal(t, "trafficctl: interrupted (interrupt signal received)\n", errs.String())
}

// TestJobFetchPrintsReadableGeometries checks that one geometry that cannot be read does not
// prevent printing the others.
func TestJobFetchPrintsReadableGeometries(t *testing.T) {
	wkt := "POINT (8 48)"
	point := &xroute.Point{Encodings: xroute.Encodings{WKT: &wkt}}
	var out, errs strings.Builder
	err := printFetched(streams{nil, &out, &errs}, xroute.ConvertedGeometries{
		Job:        xroute.Job{Status: xroute.StatusSucceeded, Progress: &xroute.BulkProgress{Successful: 3}},
		Geometries: []xroute.EncodedGeometry{point, &xroute.Point{}, point},
	})
	require.ErrorIs(t, err, errRejected)
	require.Equal(t, wkt+"\n"+wkt+"\n", out.String())
	require.Equal(t, "trafficctl: cannot read geometry 2 of the response: the response contains no encoding of the geometry\n", errs.String())
}
