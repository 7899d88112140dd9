package send

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// answer is the daemon's 207 (contract 5.2).
type answer struct {
	Accepted   int         `json:"accepted"`
	Rejected   int         `json:"rejected"`
	Rejections []rejection `json:"rejections"`

	batchID  string
	replayed bool // the first answer to this batch, given again
}

type rejection struct {
	Index int       `json:"index"`
	Error ItemError `json:"error"`
}

// ItemError is what the daemon has against an item.
type ItemError struct {
	Description string `json:"description"`
	ErrorCode   string `json:"errorCode"`
	Parameter   string `json:"parameter"`
}

// maxAnswer is far above the answer that rejects 140,000 items.
const maxAnswer = 128 << 20

type client struct {
	http     http.Client
	endpoint string
	key      string
}

func newClient(cfg Config) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = cfg.Concurrency
	return &client{
		http: http.Client{
			Transport: transport,
			Timeout:   cfg.Timeout,
			// A redirected POST would become a GET.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		endpoint: cfg.endpoint(),
		key:      cfg.Key,
	}
}

// post sends a packed batch once. The error is a *RefusedError (an answer other than
// 207) or the transport's: then nobody knows whether the batch was taken.
func (c *client) post(ctx context.Context, b *batch) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(b.packed.Bytes()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "apiKey "+c.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Idempotency-Key", b.key)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMultiStatus {
		return nil, refused(resp, time.Now())
	}
	return readAnswer(resp, b.len())
}

// readAnswer: a 207 that cannot be read to its end is a transport error. The
// same request brings it again.
func readAnswer(resp *http.Response, items int) (*answer, error) {
	a := &answer{
		batchID:  resp.Header.Get("Batch-Id"),
		replayed: resp.Header.Get("Idempotent-Replay") == "true",
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(a); err != nil {
		return nil, fmt.Errorf("cannot read the answer: %w", err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // or the connection is not used again
	return a, a.check(items)
}

var errOddAnswer = errors.New("the answer does not add up; is this a trafficd?")

func (a *answer) check(items int) error {
	if a.Accepted+a.Rejected != items || a.Rejected != len(a.Rejections) {
		return fmt.Errorf("%w: of %d items %d accepted, %d rejected, %d rejections", errOddAnswer, items, a.Accepted, a.Rejected, len(a.Rejections))
	}
	for _, r := range a.Rejections {
		if r.Index < 0 || r.Index >= items {
			return fmt.Errorf("%w: rejection of item %d of %d", errOddAnswer, r.Index, items)
		}
	}
	return nil
}

// refused reads an answer other than 207.
func refused(resp *http.Response, now time.Time) error {
	e := &RefusedError{Status: resp.StatusCode, after: retryAfter(resp.Header.Get("Retry-After"), now)}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what could be read will do
	if json.Unmarshal(text, e) != nil || e.Description == "" {
		e.Description = http.StatusText(resp.StatusCode)
	}
	return e
}

// retryAfter reads both forms of the header: seconds, or a date.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil && seconds >= 0 && seconds < 1<<30 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
