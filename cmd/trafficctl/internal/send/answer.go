package send

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"trafficd/cmd/trafficctl/internal/client"
)

// answer is the daemon's 207 (contract 5.2).
type answer struct {
	Accepted   int         `json:"accepted"`
	Rejected   int         `json:"rejected"`
	Rejections []rejection `json:"rejections"`

	batchID  string
	replayed bool // a repetition of the first answer to this batch
}

type rejection struct {
	Index int       `json:"index"`
	Error ItemError `json:"error"`
}

// ItemError is the daemon's reason for rejecting an item.
type ItemError struct {
	Description string `json:"description"`
	ErrorCode   string `json:"errorCode"`
	Parameter   string `json:"parameter"`
}

// maxAnswer exceeds the size of an answer that rejects 140,000 items.
const maxAnswer = 128 << 20

var errInvalidAnswer = errors.New("inconsistent answer; check that --url names a trafficd")

// post sends a packed batch once. The error is a *client.Error for a status other than 207; after
// any other error it is unknown whether the batch was accepted, and the same request is safe to repeat.
func (s *Sender) post(ctx context.Context, b *batch) (*answer, error) {
	req, err := s.client.NewRequest(ctx, http.MethodPost, bytes.NewReader(b.packed.Bytes()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Idempotency-Key", b.key)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMultiStatus {
		return nil, s.client.ReadError(resp)
	}
	a := &answer{batchID: resp.Header.Get("Batch-Id"), replayed: resp.Header.Get("Idempotent-Replay") == "true"}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(a); err != nil {
		return nil, fmt.Errorf("cannot read the answer: %w", err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // so that the connection is reused
	if a.Accepted+a.Rejected != b.len() || a.Rejected != len(a.Rejections) {
		return nil, fmt.Errorf("%w: %d items, %d accepted, %d rejected, %d rejections",
			errInvalidAnswer, b.len(), a.Accepted, a.Rejected, len(a.Rejections))
	}
	for _, r := range a.Rejections {
		if r.Index < 0 || r.Index >= b.len() {
			return nil, fmt.Errorf("%w: rejection of item %d of %d", errInvalidAnswer, r.Index, b.len())
		}
	}
	return a, nil
}

// retryable reports whether the same request may succeed later.
func retryable(err error) bool {
	var e *client.Error
	if !errors.As(err, &e) {
		return !errors.Is(err, errInvalidAnswer) && !client.Permanent(err)
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return e.Status >= 500
}

// inDoubt reports whether the daemon may have accepted the batch of a failed attempt: there was no
// answer, or another attempt is in progress (409), or a proxy answered, which sends no error code.
func inDoubt(err error) bool {
	var e *client.Error
	if errors.As(err, &e) {
		return e.Status == http.StatusConflict || e.ErrorCode == ""
	}
	return !client.NotConnected(err)
}

// Pauses between attempts double from the first to the longest.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
)

// pause returns how long to wait after attempt n, counted from 1. chance in [0,1) spreads it over
// the upper half, so that clients do not retry in step. It is at least what the daemon asked for.
func pause(n int, chance float64, err error) time.Duration {
	full := min(longestPause, firstPause<<min(n-1, 10))
	wait := full/2 + time.Duration(chance*float64(full/2))
	var e *client.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		wait = max(wait, e.RetryAfter+time.Duration(chance*float64(time.Second)))
	}
	return wait
}
