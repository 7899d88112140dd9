package sites

import (
	"encoding/json"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/feedloop"
	schema "trafficd/schemas/clickhouse"
	"trafficd/schemas/contract"
)

type registryOf map[string][]string

func (r registryOf) HasFeed(productInstance string) bool { return productInstance != "none" }

func (r registryOf) Snapshot(productInstance string) *batch.Detectors {
	if r[productInstance] == nil {
		return nil
	}
	d, _ := batch.NewDetectors(r[productInstance])
	return d
}

// ask requests the health of a client's detectors.
func ask(t *testing.T, h *Health, instance, etag, accept string) (ctx *fasthttp.RequestCtx, body contract.Health, err error) {
	t.Helper()
	ctx = new(fasthttp.RequestCtx)
	ctx.Request.Header.Set("If-None-Match", etag)
	ctx.Request.Header.Set("Accept-Encoding", accept)
	client := &contract.Client{ProductInstance: instance}
	if apiErr := h.Admit(client, &ctx.Request.Header); apiErr != nil {
		return ctx, body, apiErr
	}
	if _, err := h.Handle(client, ctx); err != nil {
		return ctx, body, err
	}
	text := ctx.Response.Body()
	if accept == "gzip" {
		text, err = ctx.Response.BodyGunzip()
	}
	if ctx.Response.StatusCode() == 200 {
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &body))
	}
	return ctx, body, nil
}

// TestHealth checks what clients and operators learn about the health of detectors from a real
// archive.
func TestHealth(t *testing.T) {
	store := stores.StartClickHouse(t)
	s := newService(t, store)
	registry := registryOf{"city": {"A", "B", "gone soon"}, "town": {"A"}, "new": {"A"}}
	h := NewHealth(s, registry, zerolog.Nop())
	refresh := func() { h.loop().Check(t.Context()) }
	refused := func(h *Health, want contract.Code, instance, text string) {
		t.Helper()
		_, _, err := ask(t, h, instance, "", "")
		apiErr, ok := err.(*contract.APIError)
		require.True(t, ok, err)
		require.Equal(t, want, apiErr.Code)
		require.Contains(t, apiErr.Description, text)
	}
	refused(NewHealth(nil, registry, zerolog.Nop()), contract.Forbidden, "city", "clickhouse.enabled")
	refused(h, contract.Forbidden, "none", "registry.feeds")
	refused(h, contract.ServiceUnavailable, "unknown", "not loaded yet")
	refused(h, contract.ServiceUnavailable, "city", "cannot read the health")
	var none fasthttp.RequestCtx
	require.NoError(t, h.Serve(&none))
	require.JSONEq(t, `{"problem": "cannot read the health of the detectors from the archive", "instances": []}`, string(none.Response.Body()))
	refresh()
	refused(h, contract.ServiceUnavailable, "city", "no forecaster has tested the detectors of product instance city yet")

	record := func(instance, detector, kind, state, first, last, rule string) {
		store.Query(t, "INSERT INTO trafficd.measurements_health VALUES ('"+instance+"', '"+state+"', '"+detector+"', '"+kind+"', '"+first+"', '"+last+"', '"+rule+"')")
	}
	const eight, nine = "2026-01-02 08:00:00", "2026-01-02 09:00:00"
	for _, instance := range []string{"city", "town"} {
		record(instance, "", "constant", "checked", "1970-01-01 00:00:00", eight, "")
		record(instance, "", "feed", "checked", "1970-01-01 00:00:00", eight, "")
	}
	refresh()
	ctx, body, err := ask(t, h, "city", "", "identity")
	require.NoError(t, err)
	require.JSONEq(t, `{"productInstance": "city", "checkedAt": "2026-01-02T08:00:00Z", "count": 0, "detectors": []}`, string(ctx.Response.Body()))
	etag := string(ctx.Response.Header.Peek("ETag"))
	_, packed, err := ask(t, h, "city", etag, "gzip")
	require.NoError(t, err)
	require.Equal(t, body, packed, "another encoding has another ETag")
	refresh()
	ctx, _, _ = ask(t, h, "city", etag, "identity")
	require.Equal(t, 304, ctx.Response.StatusCode())
	require.Equal(t, "Authorization, Accept-Encoding", string(ctx.Response.Header.Peek("Vary")))

	record("city", "A", "speed", "constant", "2026-01-02 03:00:00", nine, "speed is 57 in all intervals of the last 6 hours")
	record("city", "A", "flow", "constant", "2026-01-02 03:00:00", nine, "")
	record("city", "B", "flow", "constant", "2026-01-01 03:00:00", "2026-01-01 09:00:00", "it has ended")
	record("city", "gone soon", "flow", "constant", "2026-01-02 03:00:00", nine, "")
	record("city", "", "speed", "feed", eight, nine, "all stopped")
	record("city", "", "constant", "checked", "1970-01-01 00:00:00", nine, "")
	record("city", "", "feed", "checked", "1970-01-01 00:00:00", nine, "")
	refresh()
	ctx, body, _ = ask(t, h, "city", etag, "identity")
	require.Equal(t, 200, ctx.Response.StatusCode())
	require.Equal(t, 4, body.Count)
	require.Equal(t, contract.SickDetector{
		DetectorCode: "A", MeasureTypeCode: "speed", State: "constant", Since: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC),
		Last: time.Date(2026, 1, 2, 9, 0, 0, 0, time.UTC), Rule: contract.HealthRule("constant"), Reason: "speed is 57 in all intervals of the last 6 hours",
	}, body.Detectors[2])
	require.Empty(t, body.Detectors[0].DetectorCode, "the state of many detectors")
	require.Equal(t, 2.0, testutil.ToFloat64(sickDetectors.WithLabelValues("city")))
	require.Equal(t, 2.0, testutil.ToFloat64(sickStates.WithLabelValues("city", "constant")))
	require.Equal(t, 1.0, testutil.ToFloat64(sickStates.WithLabelValues("city", "feed")))
	require.Equal(t, 0.0, testutil.ToFloat64(sickStates.WithLabelValues("town", "constant")))

	registry["city"] = []string{"A", "B"}
	delete(registry, "town")
	refresh()
	_, body, _ = ask(t, h, "city", "", "gzip")
	require.Equal(t, 3, body.Count, "the registry does not have the detector anymore")
	require.Equal(t, 1+len(contract.HealthStates)-len(contract.OptionalHealthStates()), testutil.CollectAndCount(sickDetectors)+testutil.CollectAndCount(sickStates))
	var all fasthttp.RequestCtx
	require.NoError(t, h.Serve(&all))
	var instances struct{ Instances []contract.Health }
	require.NoError(t, json.Unmarshal(all.Response.Body(), &instances))
	require.Equal(t, []contract.Health{body}, instances.Instances)

	require.NoError(t, store.Stop())
	refresh()
	_, last, err := ask(t, h, "city", "", "gzip")
	require.NoError(t, err)
	require.Equal(t, body, last, "the last answer while the archive is away")
	h.status.Set(feedloop.State{InUse: true, Confirmed: time.Now().Add(-healthTimeout - time.Second)})
	refused(h, contract.ServiceUnavailable, "city", "cannot read the health")
}

// TestRequestsDoNotWaitForTheArchive requests the health while a ClickHouse accepts connections but
// does not respond.
func TestRequestsDoNotWaitForTheArchive(t *testing.T) {
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer hung.Close()
	s, err := New(Archive{[]string{hung.Addr().String()}, dial.ClickHouse{}, schema.Layout{Database: "d", Table: "t"}})
	require.NoError(t, err)
	defer s.Close()
	h := NewHealth(s, registryOf{"city": {"A"}}, zerolog.Nop())
	stop := h.Start(t.Context())
	conn, err := hung.Accept() // the query is under way
	require.NoError(t, err)
	defer conn.Close()
	_, _, err = ask(t, h, "city", "", "")
	require.ErrorContains(t, err, "cannot read the health")
	stop()
}

// TestEvidence checks the hours that the operators' page draws.
func TestEvidence(t *testing.T) {
	store := stores.StartClickHouse(t)
	s := newService(t, store)
	for _, row := range []string{
		"toStartOfHour(now()) - 3600, 'speed', 'A', 2, 100000", "toStartOfHour(now()) - 7200, 'speed', 'A', 1, 60000",
		"toStartOfHour(now()) - 7200, 'speed', 'B', 1, 40000", "toStartOfHour(now()) - 7200, 'flow', 'A', 1, 7000",
		"toStartOfHour(now()) - 10 * 86400, 'speed', 'A', 1, 7000",
	} {
		store.Query(t, "INSERT INTO trafficd.measurements_hours (product_instance, hour, measure_type_code, detector_code, count_1, thousandths_1) SELECT 'city', "+row)
	}
	hours := func(detector string) (hours []Hour) {
		var ctx fasthttp.RequestCtx
		ctx.Request.SetRequestURI("/?product_instance=city&measure_type=speed&detector=" + detector)
		require.NoError(t, s.ServeEvidence(&ctx))
		var body struct {
			Problem string
			Hours   []Hour
		}
		require.NoError(t, json.Unmarshal(ctx.Response.Body(), &body))
		require.Empty(t, body.Problem)
		for _, h := range body.Hours {
			h.Start = time.Time{}
			hours = append(hours, h)
		}
		return hours
	}
	require.Equal(t, []Hour{{Count: 1, Average: 60, Detectors: 1}, {Count: 2, Average: 50, Detectors: 1}}, hours("A"))
	require.Equal(t, []Hour{{Count: 2, Average: 50, Detectors: 2}, {Count: 2, Average: 50, Detectors: 1}}, hours(""))
}
