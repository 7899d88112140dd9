package load

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"trafficd/cmd/chaos/internal/ledger"
)

// answer is a 207 (contract 5.2).
type answer struct {
	Accepted   int         `json:"accepted"`
	Rejected   int         `json:"rejected"`
	Rejections []rejection `json:"rejections"`

	batchID  string
	replayed bool
}

type rejection struct {
	Index int `json:"index"`
	Error struct {
		Code      string `json:"errorCode"`
		Parameter string `json:"parameter"`
	} `json:"error"`
}

// same compares everything but the mark of a replay.
func (a *answer) same(b *answer) bool {
	return a.batchID == b.batchID && a.Accepted == b.Accepted && a.Rejected == b.Rejected && slices.Equal(a.Rejections, b.Rejections)
}

// compare tells what is wrong with the answer to a batch, empty if nothing.
func (b *batch) compare(a *answer) string {
	if bad := len(b.faults); a.Accepted != len(b.items)-bad || a.Rejected != bad || len(a.Rejections) != bad {
		return fmt.Sprintf("%d items, %d of them bad: accepted %d, rejected %d, %d rejections", len(b.items), bad, a.Accepted, a.Rejected, len(a.Rejections))
	}
	for _, r := range a.Rejections {
		f, bad := b.faults[r.Index]
		if want := fmt.Sprintf("measurements[%d]%s", r.Index, f.field); !bad || r.Error.Code != f.code || r.Error.Parameter != want {
			return fmt.Sprintf("item %d: rejected as %s %s, wanted %s %s", r.Index, r.Error.Code, r.Error.Parameter, f.code, want)
		}
	}
	if a.batchID == "" {
		return "no Batch-Id"
	}
	return ""
}

// accepted are the items that have to arrive.
func (b *batch) accepted(id string) []ledger.Accepted {
	var list []ledger.Accepted
	for i, item := range b.items {
		if _, bad := b.faults[i]; !bad {
			list = append(list, ledger.Accepted{Item: item, Batch: id, Index: i})
		}
	}
	return list
}

// refusedError is an answer other than 207.
type refusedError struct {
	status int
	text   string
}

func (e *refusedError) Error() string { return fmt.Sprintf("answered %d: %s", e.status, e.text) }

// poster posts batches to the daemon.
type poster struct {
	http     http.Client
	endpoint string
	key      string
}

func newPoster(endpoint, key string) *poster {
	return &poster{http: http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}, endpoint: endpoint, key: key}
}

func (p *poster) close() { p.http.CloseIdleConnections() }

// send posts a batch once. An error that is no *refusedError leaves open
// whether the batch was taken.
func (p *poster) send(ctx context.Context, b *batch) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.endpoint, bytes.NewReader(pack(b.body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "apiKey "+p.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("Idempotency-Key", b.key)
	r, err := p.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusMultiStatus {
		return nil, &refusedError{r.StatusCode, strings.TrimSpace(string(text))}
	}
	a := &answer{batchID: r.Header.Get("Batch-Id"), replayed: r.Header.Get("Idempotent-Replay") == "true"}
	return a, json.Unmarshal(text, a)
}

func pack(body string) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(body)) // memory does not fail
	_ = z.Close()
	return packed.Bytes()
}
