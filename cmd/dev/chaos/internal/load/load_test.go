package load

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/chaos/internal/ledger"
)

// TestBodies checks that encoding/json decodes exactly the generated items, and that all items of a
// client are different.
func TestBodies(t *testing.T) {
	m := newGenerator(rand.New(rand.NewPCG(1, 1)), 3, 5)
	seen, last := map[ledger.Key]bool{}, map[string]int64{}
	bad := map[string]int{}
	for range 60 {
		b := m.batch(100)
		var body struct{ Measurements []json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(b.body), &body), b.body)
		require.Len(t, body.Measurements, len(b.items))
		for i, text := range body.Measurements {
			if f, invalid := b.faults[i]; invalid {
				bad[f.code]++
				continue
			}
			item := b.items[i]
			require.True(t, decoded(t, text).Same(item), "%s\n%v", text, item)
			require.False(t, seen[item.Key()])
			require.Greater(t, item.Seq, last[item.Detector])
			seen[item.Key()], last[item.Detector] = true, item.Seq
		}
	}
	require.Len(t, bad, 7, "each kind of fault occurred")
}

func decoded(t *testing.T, text []byte) ledger.Item {
	var m struct {
		DetectorCode, MeasureTypeCode string
		TimestampFrom, TimestampTo    time.Time
		Value                         float64
		Quality                       *float64
	}
	require.NoError(t, json.Unmarshal(text, &m), string(text))
	i := ledger.Item{Detector: m.DetectorCode, Type: m.MeasureTypeCode, From: m.TimestampFrom.UnixNano(), To: m.TimestampTo.UnixNano(), Value: m.Value, Quality: math.NaN()}
	if m.Quality != nil {
		i.Quality = *m.Quality
	}
	return i
}

// fakeDaemon stores its results by key, accepts batches even if the response is lost, and can be
// made to misbehave.
type fakeDaemon struct {
	mu       sync.Mutex
	rng      *rand.Rand
	results  map[string]string // key → body of its 207
	accepted int
	forgets  bool // results are not stored
	lies     bool // rejections are omitted
	broken   bool // every response is a 400
	requests int
	enough   func() // called at each request from the 150th on
}

func (d *fakeDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.requests++; d.requests >= 150 {
		d.enough()
	}
	key := r.Header.Get("Idempotency-Key")
	switch n := d.rng.IntN(10); {
	case d.broken:
		http.Error(w, "no", http.StatusBadRequest)
		return
	case n == 0:
		http.Error(w, "later", http.StatusServiceUnavailable)
		return
	case n == 1:
		panic(http.ErrAbortHandler) // nothing is accepted
	}
	first, known := d.results[key]
	if known && !d.forgets {
		w.Header().Set("Idempotent-Replay", "true")
	} else {
		first = d.accept(r.Body)
		d.results[key] = first
	}
	if d.rng.IntN(10) == 0 {
		panic(http.ErrAbortHandler) // the response is lost
	}
	id, body, _ := strings.Cut(first, " ")
	w.Header().Set("Batch-Id", id)
	w.WriteHeader(http.StatusMultiStatus)
	_, _ = io.WriteString(w, body)
}

// accept returns a result that rejects the items of badItems.
func (d *fakeDaemon) accept(body io.Reader) string {
	z, _ := gzip.NewReader(body)
	text, _ := io.ReadAll(z)
	var b struct{ Measurements []json.RawMessage }
	_ = json.Unmarshal(text, &b)
	var rejections []string
	for i, m := range b.Measurements {
		if code, field := d.fault(string(m)); code != "" && !d.lies {
			rejections = append(rejections, fmt.Sprintf(`{"index":%d,"error":{"errorCode":%q,"parameter":"measurements[%d]%s"}}`, i, code, i, field))
		}
	}
	n := len(b.Measurements) - len(rejections)
	d.accepted += n
	return fmt.Sprintf(`id-%d {"accepted":%d,"rejected":%d,"rejections":[%s]}`, d.accepted, n, len(rejections), strings.Join(rejections, ","))
}

func (d *fakeDaemon) fault(m string) (code, field string) {
	for mark, f := range map[string]fault{
		`"unknown-`: badItems[0], `"linkId"`: badItems[1], `"valve"`: badItems[2], `"was"`: badItems[3], `not an object`: badItems[4],
		`"timestampFrom":"x`: badItems[5], `"timestampTo":"200`: badItems[6], `"value":1,"value"`: badItems[7],
	} {
		if strings.Contains(m, mark) {
			return f.code, f.field
		}
	}
	return "", ""
}

func TestRun(t *testing.T) {
	f := func(d *fakeDaemon, wantWrong string) {
		t.Helper()
		d.rng, d.results = rand.New(rand.NewPCG(5, 5)), map[string]string{}
		server := httptest.NewServer(d)
		defer server.Close()
		soft, stop := context.WithCancel(t.Context())
		defer stop()
		hard, cut := context.WithCancel(t.Context())
		defer cut()
		d.enough = stop
		if d.broken {
			d.enough = cut // no batch ever receives its 207
		}
		var book ledger.Ledger
		err := New(Config{Endpoints: []string{server.URL}, Clients: 3, Detectors: 5, Items: 50, Pause: time.Millisecond}, &book).Run(soft, hard)
		accepted, unexpected, tally := book.Read()
		if wantWrong != "" {
			require.NotEmpty(t, unexpected)
			require.Contains(t, strings.Join(unexpected, "\n"), wantWrong)
			require.Equal(t, d.broken, err != nil)
			return
		}
		require.NoError(t, err)
		require.Empty(t, unexpected)
		require.Len(t, accepted, d.accepted)
		require.Equal(t, tally.Batches, len(d.results))
		require.Positive(t, tally.Failed)
		require.Positive(t, tally.Replays)
		require.Positive(t, tally.Rejected)
	}
	f(&fakeDaemon{}, "")
	f(&fakeDaemon{forgets: true}, "is not a replay")
	f(&fakeDaemon{lies: true}, "of them invalid: accepted")
	f(&fakeDaemon{broken: true}, "status 400: no")
}

// TestWrongStatusBesides207 checks that a status that is not retryable is reported even if another
// replica accepts the batch.
func TestWrongStatusBesides207(t *testing.T) {
	replica := func(status int) (url string) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "{}")
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	var book ledger.Ledger
	cfg := Config{Clients: 1, Endpoints: []string{replica(207), replica(500), replica(503)}, Balancer: replica(502)}
	c := New(cfg, &book)[0]
	defer c.http.CloseIdleConnections()
	_, err := c.sendUntilAccepted(t.Context(), &batch{key: "k"})
	require.NoError(t, err)
	_, unexpected, _ := book.Read()
	for _, text := range unexpected { // one for each attempt with that replica
		require.Equal(t, "batch k: status 500: {}", text)
	}
}
