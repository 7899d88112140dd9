package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"trafficd/cmd/internal/client"
	"trafficd/schemas/contract"
)

// The delay before a batch is sent again doubles up to maxRetry. Tests change it.
var firstRetry, maxRetry = time.Second, 30 * time.Second

func compress(body []byte) ([]byte, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(body)
	err = cmp.Or(err, z.Close())
	return packed.Bytes(), err
}

// deliver sends the batches of the spool until ctx is done. Each is sent until trafficd has
// accepted it, so that all measurements of a detector arrive in order.
func (f *feed) deliver(ctx context.Context) {
	for {
		number, err := f.spool.Next(ctx)
		if err != nil {
			return
		}
		for wait := f.list.wait(); wait > 0 && ctx.Err() == nil; wait = f.list.wait() {
			sleep(ctx, time.Now().Add(min(wait, listCheck)))
		}
		err = f.spool.Batches(number, func(n int, body []byte) error {
			return f.send(ctx, fmt.Sprintf("%d.%d", number, n), body)
		})
		if err == nil {
			err = f.spool.Done(number)
		}
		f.state.Update(func(s *status) { s.unsent = err })
		if err != nil && ctx.Err() == nil {
			f.log.Error().Err(err).Msg("cannot use the spool; retrying")
			sleep(ctx, time.Now().Add(maxRetry))
		}
	}
}

// listCheck is how often deliver looks whether trafficd has read the list of sites.
const listCheck = 100 * time.Millisecond

// send sends a batch until trafficd has accepted it or ctx is done. place identifies it in the
// feed.
func (f *feed) send(ctx context.Context, place string, body []byte) error {
	key := idempotencyKey(f.cfg.Name, place, body)
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		response, err := f.daemon.Post(ctx, key, body)
		if err == nil {
			f.state.Update(func(s *status) { s.unsent = nil })
			f.settle(response.Result)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		retries.WithLabelValues(f.cfg.Name).Inc()
		if before := f.state.Load().unsent; before == nil || before.Error() != err.Error() {
			f.log.Warn().Err(err).Msg("trafficd has not accepted a batch; retrying")
		}
		f.state.Update(func(s *status) { s.unsent = err })
		if response, ok := errors.AsType[*client.Error](err); ok {
			wait = max(wait, min(response.RetryAfter, time.Minute))
		}
		sleep(ctx, time.Now().Add(wait))
	}
}

// idempotencyKey returns a key of the content and its place: a value that changes and changes back
// makes two batches with the same content, and both must be accepted.
func idempotencyKey(feed, place string, body []byte) string {
	h := sha256.New()
	for _, part := range []string{feed, place} {
		_, _ = h.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(part))), part...)) // never fails
	}
	_, _ = h.Write(body)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// settle counts the outcome of a batch.
func (f *feed) settle(result contract.Result) {
	accepted.WithLabelValues(f.cfg.Name).Add(float64(result.Accepted))
	for _, r := range result.Rejections {
		rejected.WithLabelValues(f.cfg.Name, r.Error.ErrorCode).Inc()
	}
	if len(result.Rejections) > 0 {
		first := result.Rejections[0].Error
		f.log.Warn().Int("items", result.Rejected).Str("first", first.ErrorCode).Str("description", first.Description).
			Msg("trafficd has rejected measurements")
	}
}
