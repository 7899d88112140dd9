package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
	"trafficd/sources/routing"
)

const routingBase = "/traffic" // a prefix that the WSDL must contain

// routingProcess starts a daemon with the key map, which has the routing right, and the key city,
// which does not.
func routingProcess(t *testing.T) *process {
	t.Helper()
	d := newProcess(t, "api.base_path="+routingBase)
	d.keys(keyEntry("map", "routing", "UTC"), keyEntry("city", "ingest", "UTC"))
	d.start().Await(http.StatusOK)
	return d
}

func (d *process) routingURL() string { return "http://" + d.API + routingBase + routing.Path }

// soap sends a request and returns the status with the response or the fault.
func (d *process) soap(authorize func(*http.Request), request xroute.Request) (status int, response xroute.Response, fault *xroute.Fault) {
	d.t.Helper()
	body, err := xroute.AppendMessage(nil, request)
	require.NoError(d.t, err)
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.routingURL(), bytes.NewReader(body))
	require.NoError(d.t, err)
	req.Header.Set("Content-Type", "text/xml; charset=utf-8")
	authorize(req)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(d.t, err)
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "application/json" {
		return resp.StatusCode, nil, nil
	}
	response, err = xroute.ReadResponse(resp.Body, xroute.DefaultLimits())
	if !errors.As(err, &fault) {
		require.NoError(d.t, err)
	}
	return resp.StatusCode, response, fault
}

func withKey(key string) func(*http.Request) {
	return func(req *http.Request) { req.Header.Set("Authorization", "apiKey "+key) }
}

func pointToMercator(wkt string) *xroute.ConvertGeometry {
	p := &xroute.Point{}
	p.WKT = &wkt
	return &xroute.ConvertGeometry{Geometry: p, Options: xroute.RequestOptions{
		CoordFormat: geo.Mercator, ResponseGeometry: []xroute.GeometryEncoding{xroute.EncodingPlain},
	}}
}

func TestRoutingConverts(t *testing.T) {
	t.Parallel()
	d := routingProcess(t)
	f := func(status int, authorize func(*http.Request)) xroute.Response {
		t.Helper()
		got, response, _ := d.soap(authorize, pointToMercator("POINT (8.2505556 48.7627778)"))
		require.Equal(t, status, got)
		return response
	}
	f(http.StatusUnauthorized, func(*http.Request) {})
	f(http.StatusUnauthorized, withKey("unknown"))
	f(http.StatusForbidden, withKey("city"))
	f(http.StatusOK, func(req *http.Request) { req.SetBasicAuth("any user", "map") })
	point := f(http.StatusOK, withKey("map")).(*xroute.ConvertGeometryResponse).Result.(*xroute.Point).Plain
	require.InDelta(t, 917419.9247, point.X, 1e-4)
	require.InDelta(t, 6227728.6864, point.Y, 1e-4)

	status, _, fault := d.soap(withKey("map"), pointToMercator("POINT (8.25)"))
	require.Equal(t, http.StatusInternalServerError, status)
	require.IsType(t, &xroute.XServiceException{}, fault.Exception)
	require.Equal(t, string(xroute.CodeInvalidWKT), *fault.Exception.Base().StackElement.ErrorKey)
	require.Equal(t, 4.0, d.Metric("trafficd_routing_points_total")) // two geometries of one point each
}

// TestRoutingServesWSDL checks that the WSDL and its schemas need no key, and that the WSDL
// contains the address at which it was requested.
func TestRoutingServesWSDL(t *testing.T) {
	t.Parallel()
	d := routingProcess(t)
	get := func(url string) string {
		t.Helper()
		resp, err := http.Get(url)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", url, body)
		require.Equal(t, "text/xml; charset=utf-8", resp.Header.Get("Content-Type"))
		return string(body)
	}
	wsdl := get(d.routingURL() + "?WSDL")
	require.Contains(t, wsdl, `<soap:address location="`+d.routingURL()+`"/>`)
	imports := regexp.MustCompile(`schemaLocation="([^"]+)"`).FindAllStringSubmatch(wsdl, -1)
	require.Len(t, imports, len(xroute.SchemaNames()))
	for _, match := range imports {
		beside := d.routingURL()[:strings.LastIndexByte(d.routingURL(), '/')+1]
		require.Equal(t, string(xroute.Schema(match[1], "VENDOR")), get(beside+match[1]))
	}
}

// TestRoutingJobsAndRestart checks that a job can be fetched once, and that a restart discards all
// jobs.
func TestRoutingJobsAndRestart(t *testing.T) {
	t.Parallel()
	d := routingProcess(t)
	one := pointToMercator("POINT (8 48)")
	status, response, _ := d.soap(withKey("map"), &xroute.StartConvertGeometries{
		Geometries: []xroute.EncodedGeometry{one.Geometry, one.Geometry}, Options: one.Options,
	})
	require.Equal(t, http.StatusOK, status)
	id := *response.(*xroute.StartConvertGeometriesResponse).Result.ID

	watched := func() (status xroute.JobStatus) {
		t.Helper()
		d.Eventually(func() bool { // a watch may report progress before the end
			_, response, _ := d.soap(withKey("map"), &xroute.WatchJob{ID: id})
			status = response.(*xroute.WatchJobResponse).Result.Status
			return status != xroute.StatusQueuing && status != xroute.StatusRunning
		}, "the end of the job")
		return status
	}
	require.Equal(t, xroute.StatusSucceeded, watched())
	_, response, _ = d.soap(withKey("map"), &xroute.FetchConvertGeometries{ID: id})
	fetched := response.(*xroute.FetchConvertGeometriesResponse).Result
	require.Len(t, fetched.Geometries, 2)
	require.Equal(t, xroute.StatusUnknown, watched())

	_, response, _ = d.soap(withKey("map"), &xroute.StartConvertGeometries{Geometries: []xroute.EncodedGeometry{one.Geometry}, Options: one.Options})
	id = *response.(*xroute.StartConvertGeometriesResponse).Result.ID
	require.Equal(t, xroute.StatusSucceeded, watched())
	d.Terminate()
	d.start().Await(http.StatusOK)
	require.Equal(t, xroute.StatusUnknown, watched())
}
