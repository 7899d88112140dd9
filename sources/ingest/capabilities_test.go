package ingest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

type registryOf map[string]*batch.Detectors

func (r registryOf) Snapshot(productInstance string) *batch.Detectors { return r[productInstance] }
func (r registryOf) HasFeed(productInstance string) bool              { return productInstance != "none" }

func TestCapabilities(t *testing.T) {
	list := func(n, length int) *batch.Detectors {
		var codes []string
		for i := range n {
			codes = append(codes, fmt.Sprintf("%0*d", length, i))
		}
		d, _ := batch.NewDetectors(codes)
		return d
	}
	limit := 250.0
	e := &Capabilities{
		Capabilities: contract.Capabilities{
			Limits:       contract.IngestLimits{ItemsPerBatch: 14_000},
			MeasureTypes: []contract.AllowedType{{Code: "speed", AllowedRange: contract.AllowedRange{Max: &limit}, Unit: "km/h"}},
		},
		Registry: registryOf{"city": list(25_000, 6), "long": list(3000, 256), "small": list(2, 1)},
	}
	get := func(productInstance, query string, headers ...string) (*fasthttp.RequestCtx, contract.Capabilities, error) {
		var ctx fasthttp.RequestCtx
		ctx.Request.SetRequestURI(CapabilitiesPath + query)
		for i := 0; i < len(headers); i += 2 {
			ctx.Request.Header.Set(headers[i], headers[i+1])
		}
		_, err := e.Handle(&contract.Client{Name: "acme", ProductInstance: productInstance, ItemsPerSecond: 500}, &ctx)
		body := ctx.Response.Body()
		if string(ctx.Response.Header.ContentEncoding()) == "gzip" {
			body, _ = ctx.Response.BodyGunzip()
		}
		var c contract.Capabilities
		if len(body) > 0 {
			require.NoError(t, json.Unmarshal(body, &c))
		}
		return &ctx, c, err
	}
	ctx, c, err := get("small", "")
	require.NoError(t, err)
	require.JSONEq(t, `{"client": "acme", "productInstance": "small", "limits": {"requestsPerSecond": 0, "itemsPerSecond": 500, "itemsPerBatch": 14000,
		"itemsPerRequest": 0, "compressedBytes": 0, "decompressedBytes": 0, "futureToleranceSeconds": 0, "idempotencySeconds": 0},
		"measureTypes": [{"code": "speed", "min": null, "max": 250, "unit": "km/h"}], "quality": {"min": null, "max": null},
		"detectors": {"version": "`+c.Detectors.Version+`", "count": 2, "from": 0, "codes": ["0", "1"]}}`, string(ctx.Response.Body()))

	etag := string(ctx.Response.Header.Peek("ETag"))
	ctx, _, err = get("small", "", "If-None-Match", etag)
	require.NoError(t, err)
	require.Equal(t, fasthttp.StatusNotModified, ctx.Response.StatusCode())
	require.Empty(t, ctx.Response.Body())
	ctx, packed, err := get("small", "", "Accept-Encoding", "gzip", "If-None-Match", `"other"`)
	require.NoError(t, err)
	require.Equal(t, c, packed)
	require.NotEqual(t, etag, string(ctx.Response.Header.Peek("ETag")))
	ctx, _, _ = get("city", "", "If-None-Match", etag)
	require.Equal(t, fasthttp.StatusOK, ctx.Response.StatusCode(), "another list has another ETag")

	for _, productInstance := range []string{"city", "long", "small"} { // all parts together are the list
		var all []string
		for query := ""; ; query = fmt.Sprintf("?from=%d", c.Detectors.Next) {
			ctx, c, err = get(productInstance, query)
			require.NoError(t, err)
			require.LessOrEqual(t, len(ctx.Response.Body()), 300<<10)
			require.Equal(t, len(all), c.Detectors.From)
			if all = append(all, c.Detectors.Codes...); c.Detectors.Next == 0 {
				break
			}
		}
		known := e.Registry.Snapshot(productInstance)
		require.Len(t, all, known.Len())
		for i, code := range all {
			require.Equal(t, string(known.Code(i)), code)
		}
	}
	_, c, err = get("small", "?from=7")
	require.NoError(t, err)
	require.Empty(t, c.Detectors.Codes)

	f := func(want contract.Code, productInstance, query string) {
		t.Helper()
		_, _, err := get(productInstance, query)
		apiErr, ok := err.(*contract.APIError)
		require.True(t, ok, err)
		require.Equal(t, want, apiErr.Code)
	}
	f(contract.InvalidParameter, "small", "?from=-1")
	f(contract.InvalidParameter, "small", "?from=")
	f(contract.InvalidParameter, "small", "?from="+strings.Repeat("9", 30))
	f(contract.ServiceUnavailable, "other", "")
	f(contract.Forbidden, "none", "")
}
