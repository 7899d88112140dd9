package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/receipts"
	"trafficd/schemas/contract"
)

// archived is a receipts.Store with the receipts of all batches of city.
type archived struct {
	list []receipts.Receipt
	err  error
}

func (*archived) PutReceipts(context.Context, []receipts.Receipt) error { return nil }

func (a *archived) Receipts(_ context.Context, id batch.ID, client string) ([]receipts.Receipt, error) {
	if id != (batch.ID{1}) || client != "city" {
		return nil, a.err
	}
	return a.list, a.err
}

func TestBatches(t *testing.T) {
	const id = "01000000-0000-0000-0000-000000000000"
	store := &archived{}
	waiting, err := receipts.Open(filepath.Join(t.TempDir(), "receipts"), store, zerolog.Nop())
	require.NoError(t, err)
	defer func() { require.NoError(t, waiting.Close(t.Context())) }()
	behind := false
	e := &Batches{Receipts: waiting, Archive: "clickhouse", Topic: "kafka", Behind: func() bool { return behind }, Log: zerolog.Nop()}
	city := &contract.Client{Name: "acme", Owner: "city", ProductInstance: "city"}
	get := func(c *contract.Client, id string) (*fasthttp.RequestCtx, error) {
		var ctx fasthttp.RequestCtx
		ctx.Request.SetRequestURI("/base" + contract.BatchesPath + id)
		_, err := e.Handle(c, &ctx)
		return &ctx, err
	}
	f := func(want, cache string, list ...receipts.Receipt) {
		t.Helper()
		store.list = list
		ctx, err := get(city, id)
		require.NoError(t, err)
		require.JSONEq(t, want, string(ctx.Response.Body()))
		require.Equal(t, cache, string(ctx.Response.Header.Peek("Cache-Control")))
	}
	at := func(second int) int64 { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC).UnixMilli() }
	accepted := receipts.Receipt{Accepted: 10, At: at(0)}
	part := func(sink string, first, delivered, dead, second int) receipts.Receipt {
		return receipts.Receipt{
			Accepted: 10, ReceivedAt: at(1) * 1e6, Sink: sink, First: uint32(first), Delivered: uint32(delivered), Dead: uint32(dead), At: at(second),
		}
	}
	const durable, final = "no-store", "private, max-age=60"
	f(`{"batchId": "`+id+`", "receivedAt": "2026-01-02T03:04:00Z", "accepted": 10, "final": false,
		"archived": {"items": 0, "deadLettered": 0}, "forwarded": {"items": 0, "deadLettered": 0}}`, durable, accepted)
	f(`{"batchId": "`+id+`", "receivedAt": "2026-01-02T03:04:01Z", "accepted": 10, "final": false,
		"archived": {"items": 4, "deadLettered": 1, "at": "2026-01-02T03:04:03Z"},
		"forwarded": {"items": 10, "deadLettered": 0, "at": "2026-01-02T03:04:02Z"}}`, durable,
		accepted, part("kafka", 0, 10, 0, 2), part("clickhouse", 0, 4, 1, 3))
	all := []receipts.Receipt{accepted, part("kafka", 0, 10, 0, 2), part("clickhouse", 0, 4, 1, 3), part("clickhouse", 5, 5, 0, 4), part("old", 0, 10, 0, 5)}
	f(`{"batchId": "`+id+`", "receivedAt": "2026-01-02T03:04:01Z", "accepted": 10, "final": true,
		"archived": {"items": 9, "deadLettered": 1, "at": "2026-01-02T03:04:04Z"},
		"forwarded": {"items": 10, "deadLettered": 0, "at": "2026-01-02T03:04:02Z"}}`, final, all...)
	e.Topic = ""
	f(`{"batchId": "`+id+`", "receivedAt": "2026-01-02T03:04:00Z", "accepted": 0, "final": true, "archived": {"items": 0, "deadLettered": 0}}`,
		final, receipts.Receipt{At: at(0)})
	e.Topic = "kafka"
	for _, r := range []receipts.Receipt{part("kafka", 0, 10, 0, 6), part("clickhouse", 0, 10, 0, 6)} { // stored again after the window
		r.ReceivedAt += 1e9
		all = append(all, r)
	}
	store.list = all
	ctx, err := get(city, id)
	require.NoError(t, err)
	var s contract.BatchStatus
	require.NoError(t, json.Unmarshal(ctx.Response.Body(), &s))
	require.Equal(t, []any{20, 19, 1, 20, true}, []any{s.Accepted, s.Archived.Items, s.Archived.DeadLettered, s.Forwarded.Items, s.Final})
	slices.Reverse(store.list)
	ctx, err = get(city, id)
	require.NoError(t, err)
	require.Contains(t, string(ctx.Response.Body()), `"receivedAt":"2026-01-02T03:04:01Z"`, "the first time, in any order")

	fails := func(want contract.Code, c *contract.Client, id string) {
		t.Helper()
		_, err := get(c, id)
		apiErr, ok := errors.AsType[*contract.APIError](err)
		require.True(t, ok, err)
		require.Equal(t, want, apiErr.Code)
	}
	fails(contract.NotFound, &contract.Client{Owner: "town", ProductInstance: "city"}, id)
	fails(contract.NotFound, city, "02000000-0000-0000-0000-000000000000")
	for _, invalid := range []string{"latest", "", "02000000000000000000000000000000", "{" + id + "}"} {
		fails(contract.InvalidParameter, city, invalid)
	}
	behind = true
	fails(contract.ServiceUnavailable, city, "02000000-0000-0000-0000-000000000000")
	behind, store.err = false, errors.New("away")
	fails(contract.ServiceUnavailable, city, "02000000-0000-0000-0000-000000000000")
	require.Nil(t, e.Admit(city, nil))
	e.Receipts = nil
	require.Equal(t, contract.Forbidden, e.Admit(city, nil).Code)
}
