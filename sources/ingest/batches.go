package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/receipts"
	"trafficd/schemas/contract"
)

// BatchesPath is the path of Batches below the base path (contract 1.9).
const BatchesPath = contract.BatchesPath + "{Batch-Id}"

// batchTimeout bounds a lookup.
const batchTimeout = 6 * time.Second

// Batches responds with what became of a batch. It is safe for concurrent use.
type Batches struct {
	Receipts       *receipts.Waiting // nil: there is no archive to keep them
	Archive, Topic string            // names of the sinks; empty: not enabled
	Behind         func() bool       // whether frames from before the start may be undelivered
	Log            zerolog.Logger
}

// Admit implements api.Endpoint.
func (e *Batches) Admit(*contract.Client, *fasthttp.RequestHeader) *contract.APIError {
	if e.Receipts == nil {
		return contract.NewError(contract.Forbidden, "the operator has no archive, which keeps what became of batches")
	}
	return nil
}

// Handle implements api.Endpoint.
func (e *Batches) Handle(client *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	path := ctx.Path()
	name := path[bytes.LastIndexByte(path, '/')+1:]
	parsed, err := uuid.ParseBytes(name)
	id := batch.ID(parsed)
	if err != nil || len(name) != len(id.String()) {
		return 0, contract.NewParameterError(contract.InvalidParameter, "Batch-Id",
			fmt.Sprintf("%q is not a Batch-Id: copy it from the header of the 207", contract.Echo(name)))
	}
	timeout, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	list, err := e.Receipts.Find(timeout, id, client.Owner)
	switch {
	case err != nil:
		e.Log.Debug().Err(err).Msg("cannot read what became of a batch")
		return 0, contract.Unavailable("the archive, which keeps what became of batches, cannot be read; ask again", 5*time.Second)
	case len(list) == 0 && e.Behind():
		return 0, contract.Unavailable("batches are waiting for the stores, and this may be one of them; ask again", 5*time.Second)
	case len(list) == 0:
		return 0, contract.NewError(contract.NotFound, "no such batch: check its Batch-Id and that the key belongs to the client that sent it; "+
			"ask again in a few seconds if its 207 is more recent than that; the state of batches is kept for three days, and is unknown while the "+
			"replica that took the batch is down: the batch is not lost, so do not send it again for this")
	}
	status := e.status(id, list)
	body, err := json.Marshal(status)
	if err != nil {
		return 0, fmt.Errorf("cannot encode what became of a batch: %w", err)
	}
	cache := "no-store"
	if status.Final {
		cache = "private, max-age=60"
	}
	ctx.Response.Header.Set(fasthttp.HeaderCacheControl, cache)
	ctx.Response.Header.Set(fasthttp.HeaderVary, fasthttp.HeaderAuthorization)
	ctx.SetContentType("application/json")
	ctx.SetBody(body)
	return 0, nil
}

// status adds up the receipts of a batch, which are in the order of their times. A batch that was
// stored several times is counted as often.
func (e *Batches) status(id batch.ID, list []receipts.Receipt) contract.BatchStatus {
	s := contract.BatchStatus{BatchID: id.String()}
	stores := map[string]*contract.StoreStatus{}
	if e.Archive != "" {
		s.Archived = &contract.StoreStatus{}
		stores[e.Archive] = s.Archived
	}
	if e.Topic != "" {
		s.Forwarded = &contract.StoreStatus{}
		stores[e.Topic] = s.Forwarded
	}
	frames := map[int64]bool{} // by received_at
	for _, r := range list {
		if r.Sink == "" {
			if len(frames) == 0 {
				s.Accepted, s.ReceivedAt = int(r.Accepted), time.UnixMilli(r.At).UTC()
			}
			continue
		}
		if len(frames) == 0 {
			s.Accepted = 0 // it is known for each frame
		}
		if !frames[r.ReceivedAt] {
			received := time.Unix(0, r.ReceivedAt).UTC()
			if len(frames) == 0 || received.Before(s.ReceivedAt) {
				s.ReceivedAt = received
			}
			frames[r.ReceivedAt] = true
			s.Accepted += int(r.Accepted)
		}
		if store := stores[r.Sink]; store != nil {
			at := time.UnixMilli(r.At).UTC()
			store.Items, store.DeadLettered, store.At = store.Items+int(r.Delivered), store.DeadLettered+int(r.Dead), &at
		}
	}
	s.Final = true
	for _, store := range stores {
		s.Final = s.Final && store.Items+store.DeadLettered == s.Accepted
	}
	return s
}
