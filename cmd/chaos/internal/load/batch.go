package load

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"trafficd/cmd/chaos/internal/ledger"
)

// months spread the items over partitions of the archive: a block over several partitions is committed part by part and can
// be interrupted in between.
var months = []time.Time{
	time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2025, 2, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC),
}

var measureTypes = []string{"flow", "speed", "occupancy"}

// batch is one body and the expected result for each of its items.
type batch struct {
	key    string // Idempotency-Key
	body   string
	items  []ledger.Item // by index; invalid ones are zero
	faults map[int]fault // by index
}

// maker makes the batches of one client, for detectors that no other client uses.
type maker struct {
	rng       *rand.Rand
	client    int
	detectors int
	next      []int64 // sequence of each detector
	batches   int
}

func newMaker(rng *rand.Rand, client, detectors int) *maker {
	return &maker{rng: rng, client: client, detectors: detectors, next: make([]int64, detectors)}
}

// detector returns the code of a client's detector.
func detector(client, n int) string { return fmt.Sprintf("chaos-%02d-%03d", client, n) }

// batch makes a batch of up to most items, a few of which are invalid.
func (m *maker) batch(most int) *batch {
	m.batches++
	b := &batch{key: fmt.Sprintf("client-%d-batch-%d", m.client, m.batches), faults: map[int]fault{}}
	var texts []string
	for i := range 1 + m.rng.IntN(most) {
		item := m.item()
		text := m.text(item)
		if m.rng.IntN(40) == 0 {
			f := badItems[m.rng.IntN(len(badItems))]
			b.faults[i], text, item = f, f.spoil(text, item), ledger.Item{}
		}
		b.items, texts = append(b.items, item), append(texts, text)
	}
	b.body = `{"measurements":[` + strings.Join(texts, ",") + `]}`
	return b
}

func (m *maker) item() ledger.Item {
	d := m.rng.IntN(m.detectors)
	m.next[d]++
	seq := m.next[d]
	from := months[seq%int64(len(months))].Add(time.Duration(seq)*time.Second + time.Duration(m.rng.Int64N(1e9)))
	return ledger.Item{
		Detector: detector(m.client, d), Seq: seq, Type: measureTypes[m.rng.IntN(len(measureTypes))],
		From: from.UnixNano(), To: from.UnixNano() + m.rng.Int64N(3600e9),
		Value: m.value(), Quality: m.quality(),
	}
}

// value covers the whole range of float64, including both zeros.
func (m *maker) value() float64 {
	switch m.rng.IntN(20) {
	case 0:
		return math.Copysign(0, -1)
	case 1:
		return 0
	case 2:
		return (m.rng.Float64() - 0.5) * math.Pow(10, float64(m.rng.IntN(600)-300))
	}
	return m.rng.Float64() * 200
}

func (m *maker) quality() float64 {
	if m.rng.IntN(4) == 0 {
		return math.NaN()
	}
	return m.rng.Float64()
}

// text returns the item as JSON.
func (m *maker) text(i ledger.Item) string {
	t := fmt.Sprintf(`{"detectorCode":%q,"measureTypeCode":%q,"timestampFrom":%q,"timestampTo":%q,"value":%s`,
		i.Detector, i.Type, time.Unix(0, i.From).UTC().Format(time.RFC3339Nano), time.Unix(0, i.To).UTC().Format(time.RFC3339Nano), float(i.Value))
	if !math.IsNaN(i.Quality) {
		return t + `,"quality":` + float(i.Quality) + `}`
	}
	if m.rng.IntN(2) == 0 {
		return t + `,"quality":null}`
	}
	return t + `}`
}

func float(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// fault is a way to make an item invalid, and the expected rejection.
type fault struct {
	code  string
	field string // after measurements[i]
	spoil func(text string, item ledger.Item) string
}

func replace(old, with string) func(string, ledger.Item) string {
	return func(text string, _ ledger.Item) string { return strings.Replace(text, old, with, 1) }
}

var badItems = []fault{
	{"UNKNOWN_DETECTOR", ".detectorCode", replace(`"chaos-`, `"unknown-`)},
	{"RESERVED_FIELD", ".linkId", replace(`{`, `{"linkId":"7",`)},
	{"MISSING_FIELD", ".value", replace(`"value":`, `"valve":`)},
	{"INVALID_TYPE", ".value", replace(`"value":`, `"value":true,"was":`)},
	{"INVALID_TYPE", "", func(string, ledger.Item) string { return `"not an object"` }},
	{"INVALID_TIMESTAMP", ".timestampFrom", replace(`"timestampFrom":"2025-0`, `"timestampFrom":"2025-9`)},
	{"INVALID_INTERVAL", ".timestampTo", replace(`"timestampTo":"2025-`, `"timestampTo":"2024-`)},
	{"DUPLICATE_FIELD", ".value", replace(`"value":`, `"value":1,"value":`)},
}

// result is an IngestResult (contract 5.2) with its headers.
type result struct {
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

// same compares everything but the replay header.
func (r *result) same(o *result) bool {
	return r.batchID == o.batchID && r.Accepted == o.Accepted && r.Rejected == o.Rejected && slices.Equal(r.Rejections, o.Rejections)
}

// compare returns what is wrong with the result of a batch, or an empty string.
func (b *batch) compare(got *result) string {
	if bad := len(b.faults); got.Accepted != len(b.items)-bad || got.Rejected != bad || len(got.Rejections) != bad {
		return fmt.Sprintf("%d items, %d of them invalid: accepted %d, rejected %d, %d rejections", len(b.items), bad, got.Accepted, got.Rejected, len(got.Rejections))
	}
	for _, r := range got.Rejections {
		f, bad := b.faults[r.Index]
		if want := fmt.Sprintf("measurements[%d]%s", r.Index, f.field); !bad || r.Error.Code != f.code || r.Error.Parameter != want {
			return fmt.Sprintf("item %d: rejected as %s %s, wanted %s %s", r.Index, r.Error.Code, r.Error.Parameter, f.code, want)
		}
	}
	if got.batchID == "" {
		return "no Batch-Id"
	}
	return ""
}

// accepted returns the items that must arrive.
func (b *batch) accepted(id string) []ledger.Accepted {
	var list []ledger.Accepted
	for i, item := range b.items {
		if _, bad := b.faults[i]; !bad {
			list = append(list, ledger.Accepted{Item: item, Batch: id, Index: i})
		}
	}
	return list
}

// statusError is a response other than 207.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

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

// send posts a batch once. After an error that is not a *statusError it is unknown whether the batch was accepted.
func (p *poster) send(ctx context.Context, b *batch) (*result, error) {
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
		return nil, &statusError{r.StatusCode, strings.TrimSpace(string(text))}
	}
	got := &result{batchID: r.Header.Get("Batch-Id"), replayed: r.Header.Get("Idempotent-Replay") == "true"}
	return got, json.Unmarshal(text, got)
}

func pack(body string) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(body)) // writing to memory cannot fail
	_ = z.Close()
	return packed.Bytes()
}
