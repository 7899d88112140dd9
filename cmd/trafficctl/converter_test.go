package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twpayne/go-geom"

	"trafficd/cmd/trafficctl/internal/client"
	"trafficd/cmd/trafficctl/internal/geometry"
	"trafficd/cmd/trafficctl/internal/soap"
	"trafficd/schemas/geo"
	"trafficd/sources/routing"
)

var _ geometry.Converter = soap.Converter{}

func newClient(t *testing.T, base string) *soap.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: base, Key: testKey, Timeout: time.Minute}, client.Routing)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return soap.New(c)
}

func system(t *testing.T, format, srID string) geo.System {
	t.Helper()
	s, err := geo.ParseSystem(format, srID)
	require.NoError(t, err)
	return s
}

func parse(t *testing.T, texts ...string) (list []geom.T) {
	t.Helper()
	for _, text := range texts {
		g, err := geo.DefaultLimits().ParseWKT(text, geo.Any)
		require.NoError(t, err)
		list = append(list, g)
	}
	return list
}

// TestConverterMatchesOffline checks that the service returns exactly what the offline conversion
// returns, for every kind of geometry, one by one and as a job.
func TestConverterMatchesOffline(t *testing.T) {
	texts := []string{
		"POINT Z (8.25 48.75 110.5)",
		"LINESTRING (8.25 48.75, 8.5 49)",
		"LINESTRING (8 48, 9 48, 9 49, 8 48)",
		"POLYGON ((8 48, 9 48, 9 49, 8 48), (8.5 48.25, 8.75 48.25, 8.75 48.5, 8.5 48.25))",
		"MULTIPOINT ((8.25 48.75), (8.5 49))",
		"MULTILINESTRING ((8 48, 9 48), (8 49, 9 49))",
		"MULTIPOLYGON (((8 48, 9 48, 9 49, 8 48)), ((10 48, 11 48, 11 49, 10 48)))",
		"GEOMETRYCOLLECTION (POINT (8.25 48.75), LINESTRING (8 48, 9 48))",
		"POINT (8 95)", // invalid latitude
	}
	degrees, utm := system(t, "OG_GEODECIMAL", ""), system(t, "OG_SRID", "EPSG:25832")
	service := soap.Converter{Client: newClient(t, startRouting(t, nil)), From: degrees, To: utm}
	f := func(texts ...string) {
		t.Helper()
		ring := geom.NewLinearRingFlat(geom.XY, []float64{8, 48, 9, 48, 9, 49, 8, 48})
		want, err := geometry.Offline{Conversion: geo.NewConversion(degrees, utm)}.Convert(t.Context(), append(parse(t, texts...), ring.Clone()))
		require.NoError(t, err)
		got, err := service.Convert(t.Context(), append(parse(t, texts...), ring))
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i, w := range want {
			if w.Err != nil {
				require.ErrorContains(t, got[i].Err, "CONVERT_COORDINATE_FORMAT: ")
				continue
			}
			require.NoError(t, got[i].Err)
			require.True(t, geo.Same(w.Geometry, got[i].Geometry), "%s", geo.AppendWKT(nil, got[i].Geometry))
		}
	}
	for _, text := range texts {
		f(text)
	}
	f(texts...)
	single, err := service.Convert(t.Context(), parse(t, "POINT (8 95)"))
	require.NoError(t, err)
	require.ErrorContains(t, single[0].Err, "CONVERT_COORDINATE_FORMAT: ")
}

// TestConverterSplits checks that a batch that is too large for the service is split; a single
// geometry that is too large is reported as not convertible.
func TestConverterSplits(t *testing.T) {
	long := "LINESTRING (0 0"
	for i := range 60 {
		long += fmt.Sprintf(", %d 1", i)
	}
	long += ")"
	f := func(limit func(*routing.Config)) {
		t.Helper()
		service := soap.Converter{
			Client: newClient(t, startRouting(t, limit)),
			From:   system(t, "OG_GEODECIMAL", ""), To: system(t, "VENDOR_GEODECIMAL", ""),
		}
		var texts []string
		for i := range 30 {
			texts = append(texts, fmt.Sprintf("POINT (%d 1)", i))
		}
		texts[17] = long
		got, err := service.Convert(t.Context(), parse(t, texts...))
		require.NoError(t, err)
		require.Len(t, got, len(texts))
		for i, r := range got {
			if i == 17 {
				require.Error(t, r.Err)
				continue
			}
			require.NoError(t, r.Err)
			require.Equal(t, []float64{float64(i) * 1e5, 1e5}, r.Geometry.FlatCoords())
		}
	}
	f(func(c *routing.Config) { c.MaxPoints = 10 })
	f(func(c *routing.Config) { c.MaxBodyBytes = 2 << 10 })
}

// TestConverterInterrupted checks that an interrupted run deletes its job: the service allows one
// job per client.
func TestConverterInterrupted(t *testing.T) {
	daemon := startRouting(t, func(c *routing.Config) { c.Jobs.MaxPerClient = 1 })
	degrees := system(t, "OG_GEODECIMAL", "")
	ctx, cancel := context.WithCancel(t.Context())
	front := proxy(t, daemon, func(n int32, _ *http.Request) bool {
		if n == 2 { // the watch
			cancel()
		}
		return true
	})
	service := soap.Converter{Client: newClient(t, front), From: degrees, To: degrees}
	_, err := service.Convert(ctx, parse(t, "POINT (8 48)", "POINT (9 49)"))
	require.ErrorIs(t, err, context.Canceled)
	service.Client = newClient(t, daemon)
	got, err := service.Convert(t.Context(), parse(t, "POINT (8 48)", "POINT (9 49)"))
	require.NoError(t, err)
	require.Len(t, got, 2)
}

// TestConverterBusy checks that a request is retried while the daemon is busy.
func TestConverterBusy(t *testing.T) {
	degrees := system(t, "OG_GEODECIMAL", "")
	front := proxy(t, startRouting(t, nil), func(n int32, _ *http.Request) bool { return n != 1 })
	service := soap.Converter{Client: newClient(t, front), From: degrees, To: degrees}
	got, err := service.Convert(t.Context(), parse(t, "POINT (8 48)"))
	require.NoError(t, err)
	require.NoError(t, got[0].Err)
}

// TestConverterLosesJob checks that if the job disappears, as after a restart of the daemon, no
// geometry counts as converted.
func TestConverterLosesJob(t *testing.T) {
	degrees := system(t, "OG_GEODECIMAL", "")
	front := proxy(t, startRouting(t, nil), func(n int32, r *http.Request) bool {
		if n > 1 {
			r.Header.Set("Authorization", "apiKey "+otherKey) // another client, which has no such job
		}
		return true
	})
	service := soap.Converter{Client: newClient(t, front), From: degrees, To: degrees}
	_, err := service.Convert(t.Context(), parse(t, "POINT (8 48)", "POINT (9 49)"))
	require.ErrorContains(t, err, "results for 0 of 2 geometries, with the job status UNKNOWN")
	require.ErrorContains(t, err, "try again")
}

// TestConverterFindsAnotherReplica checks that a batch is not split if the job is on another
// replica than its watch.
func TestConverterFindsAnotherReplica(t *testing.T) {
	first := startRouting(t, nil)
	second := startRouting(t, func(c *routing.Config) { c.Jobs.Replica = "other" })
	var requests atomic.Int32
	balancer := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to := second
		if requests.Add(1) == 1 {
			to = first
		}
		target, _ := url.Parse(to) // valid
		r.SetURL(target)
	}})
	t.Cleanup(func() {
		balancer.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	degrees := system(t, "OG_GEODECIMAL", "")
	service := soap.Converter{Client: newClient(t, balancer.URL), From: degrees, To: degrees}
	_, err := service.Convert(t.Context(), parse(t, "POINT (8 48)", "POINT (9 49)"))
	require.ErrorContains(t, err, "another replica started this job")
	require.EqualValues(t, 3, requests.Load(), "start, watch and delete")
}

// proxy forwards the n-th request to a daemon if pass, which may change it, returns true. Otherwise
// it responds with 503.
func proxy(t *testing.T, daemon string, pass func(n int32, r *http.Request) bool) string {
	t.Helper()
	target, err := url.Parse(daemon)
	require.NoError(t, err)
	var n atomic.Int32
	transport := http.DefaultTransport.(*http.Transport).Clone()
	forward := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorLog:  log.New(io.Discard, "", 0), // interrupted requests
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pass(n.Add(1), r) {
			forward.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(func() {
		s.Close()
		transport.CloseIdleConnections()
	})
	return s.URL
}
