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
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/chaos/internal/ledger"
)

// TestBodies: what is sent is, read by another decoder, what the ledger says,
// and all items of a client are different.
func TestBodies(t *testing.T) {
	m := newMaker(rand.New(rand.NewPCG(1, 1)), 3, 5)
	seen, last := map[ledger.Name]bool{}, map[string]int64{}
	bad := map[string]int{}
	for range 60 {
		b := m.batch(100)
		var body struct{ Measurements []json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(b.body), &body), b.body)
		require.Len(t, body.Measurements, len(b.items))
		for i, text := range body.Measurements {
			if f, spoilt := b.faults[i]; spoilt {
				bad[f.code]++
				continue
			}
			item := b.items[i]
			require.True(t, decoded(t, text).Same(item), "%s\n%v", text, item)
			require.False(t, seen[item.Name()])
			require.Greater(t, item.Seq, last[item.Detector])
			seen[item.Name()], last[item.Detector] = true, item.Seq
		}
	}
	require.Len(t, bad, 7, "each kind of fault was among them")
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

// taker is a daemon as a client sees it: it remembers its answers by key, takes
// what is before it though the answer is lost, and can be made to err.
type taker struct {
	mu       sync.Mutex
	rng      *rand.Rand
	answers  map[string]string // key → body of its 207
	accepted int
	forgets  bool // answers are not remembered
	lies     bool // rejections are left out
	broken   bool // every answer is a 400
	requests int
	enough   func() // called at each request from the 150th on
}

func (d *taker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
		panic(http.ErrAbortHandler) // nothing is taken
	}
	first, known := d.answers[key]
	if known && !d.forgets {
		w.Header().Set("Idempotent-Replay", "true")
	} else {
		first = d.take(r.Body)
		d.answers[key] = first
	}
	if d.rng.IntN(10) == 0 {
		panic(http.ErrAbortHandler) // the answer is lost
	}
	id, body, _ := strings.Cut(first, " ")
	w.Header().Set("Batch-Id", id)
	w.WriteHeader(http.StatusMultiStatus)
	_, _ = io.WriteString(w, body)
}

// take answers by what the spoilt items look like.
func (d *taker) take(body io.Reader) string {
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

func (d *taker) fault(m string) (code, field string) {
	for mark, f := range map[string]fault{
		`"nobody-`: badItems[0], `"linkId"`: badItems[1], `"valve"`: badItems[2], `"was"`: badItems[3], `no object`: badItems[4],
		`"timestampFrom":"2025-9`: badItems[5], `"timestampTo":"2024-`: badItems[6], `"value":1,"value"`: badItems[7],
	} {
		if strings.Contains(m, mark) {
			return f.code, f.field
		}
	}
	return "", ""
}

func TestRun(t *testing.T) {
	f := func(d *taker, wantWrong string) {
		t.Helper()
		d.rng, d.answers = rand.New(rand.NewPCG(5, 5)), map[string]string{}
		server := httptest.NewServer(d)
		defer server.Close()
		soft, stop := context.WithCancel(t.Context())
		defer stop()
		hard, cut := context.WithCancel(t.Context())
		defer cut()
		d.enough = stop
		if d.broken {
			d.enough = cut // no batch ever gets its 207
		}
		var book ledger.Ledger
		err := Run(soft, hard, Config{Clients: 3, Detectors: 5, Items: 50, Pause: time.Millisecond}, server.URL, "key", &book)
		accepted, wrong, tally := book.Read()
		if wantWrong != "" {
			require.NotEmpty(t, wrong)
			require.Contains(t, strings.Join(wrong, "\n"), wantWrong)
			require.Equal(t, d.broken, err != nil)
			return
		}
		require.NoError(t, err)
		require.Empty(t, wrong)
		require.Len(t, accepted, d.accepted)
		require.Equal(t, tally.Batches, len(d.answers))
		require.Positive(t, tally.Resent)
		require.Positive(t, tally.Replays)
		require.Positive(t, tally.Rejected)
	}
	f(&taker{}, "")
	f(&taker{forgets: true}, "is no replay")
	f(&taker{lies: true}, "of them bad: accepted")
	f(&taker{broken: true}, "answered 400: no")
}

func TestWriteRegistry(t *testing.T) {
	require.NoError(t, WriteRegistry(filepath.Join(t.TempDir(), "r.csv"), Config{Clients: 1, Detectors: 1}))
	require.ErrorContains(t, WriteRegistry(filepath.Join(t.TempDir(), "no", "r.csv"), Config{}), "cannot write the registry")
}
