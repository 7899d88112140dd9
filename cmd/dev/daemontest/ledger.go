package daemontest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

// Ledger records the 207 responses: the Batch-Id and the number of accepted items of each batch.
type Ledger struct {
	mu      sync.Mutex
	batches map[int]promise
}

type promise struct {
	id    string
	items int
}

// Add records a 207. All responses to a batch must promise the same.
func (l *Ledger) Add(t *testing.T, batch int, a Response) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches == nil {
		l.batches = map[int]promise{}
	}
	got := promise{a.Header.Get("Batch-Id"), a.Accepted}
	if first, ok := l.batches[batch]; ok && got != first {
		t.Errorf("batch %d: got %+v, want %+v, as in the first response", batch, got, first)
	}
	l.batches[batch] = got
}

// Len returns the number of batches.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.batches)
}

// Items returns the number of accepted items.
func (l *Ledger) Items() (sum int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.batches {
		sum += p.items
	}
	return sum
}

// Check requires that both stores hold exactly the promised items, each once. Batches must be those
// of BatchNumber, and both deliveries must be up to date.
func (l *Ledger) Check(t *testing.T, c *stores.ClickHouse, k *stores.Kafka) {
	t.Helper()
	l.CheckArchive(t, c)
	l.CheckTopic(t, k)
	t.Logf("%d batches with %d items, each once in both stores", l.Len(), l.Items())
}

// CheckArchive requires the same of the archive. It also counts the rows of all inserts, because
// merges of the table would hide duplicates.
func (l *Ledger) CheckArchive(t *testing.T, c *stores.ClickHouse) {
	t.Helper()
	want := map[string]int{}
	for _, p := range l.batches {
		want[p.id] = p.items
	}
	got := map[string]int{}
	for line := range strings.Lines(c.Query(t, "SELECT batch_id, count() FROM trafficd.measurements FINAL GROUP BY batch_id")) {
		var id string
		var rows int
		_, err := fmt.Sscan(line, &id, &rows)
		require.NoError(t, err)
		got[id] = rows
	}
	require.Equal(t, want, got, "rows in ClickHouse")
	c.Query(t, "SYSTEM FLUSH LOGS")
	require.Equal(t, fmt.Sprint(l.Items()), c.Query(t, `SELECT sum(rows) FROM system.part_log
		WHERE event_type = 'NewPart' AND error = 0 AND database = 'trafficd' AND table = 'measurements'`), "rows of all inserts")
}

// CheckTopic requires that the topic holds exactly the promised items, each once.
func (l *Ledger) CheckTopic(t *testing.T, k *stores.Kafka) {
	t.Helper()
	type place struct{ batch, item int }
	got := map[place]int{}
	for _, r := range k.Records(t, "measurements") {
		batch, n := Identity(t, r)
		got[place{batch, n}]++
		require.Equal(t, l.batches[batch].id, r.Header("batch-id"), "Batch-Id of batch %d in Kafka", batch)
	}
	require.Len(t, got, l.Items(), "distinct items in Kafka")
	for where, times := range got {
		require.Equal(t, 1, times, "item %d of batch %d in Kafka", where.item, where.batch)
	}
}

// Identity returns the batch of a record and the number of its item in the batch.
func Identity(t *testing.T, r stores.Record) (batch, n int) {
	t.Helper()
	var m trafficdv1.Measurement
	require.NoError(t, proto.Unmarshal(r.Value, &m))
	var low, high int
	_, err := fmt.Sscanf(m.GetDetectorCode()+m.GetMeasureTypeCode(), "D%04dflow%d", &low, &high)
	require.NoError(t, err)
	return int(m.GetTimestampFrom().AsTime().Sub(Day) / (5 * time.Minute)), 100*high + low
}

// OnRealStores starts both stores and a daemon that delivers to them.
func OnRealStores(t *testing.T) (*Trafficd, *stores.ClickHouse, *stores.Kafka) {
	t.Helper()
	c := stores.StartClickHouse(t)
	k := stores.StartKafka(t, stores.Topic("measurements", 4))
	d := New(t, "clickhouse.enabled=true", "clickhouse.addresses="+c.TCP, "kafka.enabled=true", "kafka.brokers="+strings.Join(k.Brokers, ","))
	return d, c, k
}

// AwaitDelivered waits until both stores have received everything in the journal.
func (d *Trafficd) AwaitDelivered() {
	d.T.Helper()
	idle := func() bool { return d.Delivered(d.T.Context()) == nil }
	d.Eventually(idle, "both deliveries are up to date")
}
