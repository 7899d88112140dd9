package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/internal/ops"
	"trafficd/pipeline/lib/gunzip/compress"
)

// smallJournal configures a journal of a few megabytes and short retry intervals.
var smallJournal = []string{
	"journal.max_frame_bytes=262144", "journal.max_bytes=3145728",
}

// TestBothStoresDownUntilTheJournalIsFull tests promise 5: while both stores are down, the daemon
// accepts batches until its journal is full, then rejects all, in bounded memory. Once the stores
// are available again, it delivers the backlog, oldest first, and accepts new batches. Every
// accepted item is in both stores once.
func TestBothStoresDownUntilTheJournalIsFull(t *testing.T) {
	d, c, k := onRealStores(t)
	require.NoError(t, c.Stop())
	require.NoError(t, k.Stop())
	d.Set(smallJournal...)
	d.start().Await(http.StatusOK)

	const size = 500
	var promised ledger
	full := d.fill(&promised, size)
	require.Greater(t, promised.Len(), 50)
	d.requireJournalFull(full)
	d.awaitLag("clickhouse")
	d.awaitLag("kafka")
	behind := d.Metric("trafficd_pipeline_lag_frames")
	require.Equal(t, float64(2*promised.Len()), behind, "undelivered frames of both stores")

	before := d.memory("VmRSS")
	d.rejectMany(daemontest.BatchNumber(0, 14_000), 8, 100)
	t.Logf("%d batches fill the journal; memory: %d MiB, after 800 rejected full batches: %d MiB", promised.Len(), before>>20, d.memory("VmRSS")>>20)
	require.Less(t, d.memory("VmHWM"), int64(300<<20))

	// A restart changes nothing.
	d.kill()
	d.start().Eventually(func() bool { // ready only if there is room for the smallest batch
		_, r := d.Readiness()
		return r.Components["daemon"].State == ops.OK && r.Components["registry"].State == ops.OK
	}, "the daemon has started")
	d.Eventually(func() bool { return d.Metric("trafficd_pipeline_lag_frames") == behind }, "the same frames are undelivered")
	d.awaitLag("clickhouse")
	d.awaitLag("kafka")
	d.requireJournalFull(d.send(full.batch, size))

	require.NoError(t, k.Restart())
	require.NoError(t, c.Restart())
	watch := watchArchive(t, c)
	for batch := full.batch; batch < full.batch+50; batch++ {
		d.sendUntilAccepted(&promised, batch, size)
	}
	d.awaitDelivered()
	watch.stop()
	d.Await(http.StatusOK)
	promised.Check(t, c, k)
	requireInOrder(t, k)
}

// TestOneStoreDown checks that an outage of one store does not delay the other, and that the
// journal keeps the measurements that the first has not received.
func TestOneStoreDown(t *testing.T) {
	type store interface {
		Stop() error
		Restart() error
	}
	f := func(name, other string, pick func(*stores.ClickHouse, *stores.Kafka) store) {
		t.Run(name, func(t *testing.T) {
			d, c, k := onRealStores(t)
			away := pick(c, k)
			require.NoError(t, away.Stop())
			d.Set(smallJournal...)
			d.start()
			d.Await(http.StatusOK)
			const size, batches = 200, 100
			var promised ledger
			for batch := range batches {
				d.sendUntilAccepted(&promised, batch, size)
				if batch == batches/2 {
					d.kill()
					d.start().Await(http.StatusOK)
				}
			}
			d.Eventually(func() bool {
				return d.metricOf("trafficd_pipeline_lag_frames", other) == 0 && d.metricOf("trafficd_pipeline_lag_seconds", other) == 0
			}, "%s has received everything", other)
			require.Equal(t, float64(batches), d.metricOf("trafficd_pipeline_lag_frames", name), "undelivered frames of %s", name)
			d.awaitLag(name)
			d.Eventually(func() bool {
				_, r := d.Readiness()
				return r.Components[name].State == ops.Degraded && r.Components[other].State == ops.OK
			}, "%s alone is degraded after a failed attempt", name)
			if name == "clickhouse" {
				promised.CheckTopic(t, k)
			} else {
				promised.CheckArchive(t, c)
			}

			require.NoError(t, away.Restart())
			d.awaitDelivered()
			promised.Check(t, c, k)
			requireInOrder(t, k)
		})
	}
	f("clickhouse", "kafka", func(c *stores.ClickHouse, _ *stores.Kafka) store { return c })
	f("kafka", "clickhouse", func(_ *stores.ClickHouse, k *stores.Kafka) store { return k })
}

// sent is a batch and its response.
type sent struct {
	batch int
	response
}

// fill sends batches one after another until one is rejected.
func (d *process) fill(promised *ledger, size int) sent {
	d.t.Helper()
	for batch := range 5000 {
		r := d.send(batch, size)
		if r.Status != http.StatusMultiStatus {
			return r
		}
		promised.Add(d.t, batch, r.response)
	}
	d.t.Fatal("the journal is not full after 5,000 batches")
	return sent{}
}

// send sends a batch with unique items once and accepts any response.
func (d *process) send(batch, size int) sent {
	d.t.Helper()
	a, err := d.Post(d.t.Context(), daemontest.BatchNumber(batch, size), fmt.Sprint("batch-", batch))
	require.NoError(d.t, err)
	return sent{batch, a}
}

// sendUntilAccepted sends a batch until it gets a 207; every earlier response must be 503.
func (d *process) sendUntilAccepted(promised *ledger, batch, size int) {
	d.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		r := d.send(batch, size)
		if r.Status == http.StatusMultiStatus {
			require.Equal(d.t, size, r.Accepted)
			promised.Add(d.t, batch, r.response)
			return
		}
		requireRetryAfter(d.t, r.response)
	}
	d.t.Fatalf("batch %d was not accepted within a minute", batch)
}

// awaitLag waits until the metrics show that a sink is behind.
func (d *process) awaitLag(sink string) {
	d.t.Helper()
	d.Eventually(func() bool { return d.metricOf("trafficd_pipeline_lag_seconds", sink) > 0 }, "%s lags behind", sink)
}

// requireJournalFull checks that batches are rejected because the journal is full, and that the
// readiness check reports it.
func (d *process) requireJournalFull(r sent) {
	d.t.Helper()
	requireRetryAfter(d.t, r.response)
	status, ready := d.Readiness()
	require.Equal(d.t, http.StatusServiceUnavailable, status)
	require.Equal(d.t, ops.NotReady, ready.Components["journal"].State)
	require.Contains(d.t, strings.Join(ready.Components["journal"].Reasons, " "), "the journal is full")
}

// requireRetryAfter checks the response of a daemon that cannot accept a batch yet (contract 1.1).
func requireRetryAfter(t *testing.T, a response) {
	t.Helper()
	require.Equal(t, http.StatusServiceUnavailable, a.Status, "%+v", a)
	require.Equal(t, "GENERAL_SERVICE_UNAVAILABLE", a.ErrorCode)
	require.NotEmpty(t, a.Header.Get("Retry-After"))
}

// rejectMany has several clients send a batch repeatedly, which must be rejected each time.
func (d *process) rejectMany(body string, clients, times int) {
	d.t.Helper()
	packed := compress.Gzip(body)
	var sending sync.WaitGroup
	var wrong atomic.Int64
	for range clients {
		sending.Go(func() {
			for range times {
				a, err := d.PostPacked(d.t.Context(), http.DefaultClient, packed, "")
				if err != nil || a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
					d.t.Logf("a rejected batch got %+v, %v", a, err)
					wrong.Add(1)
				}
			}
		})
	}
	sending.Wait()
	require.Zero(d.t, wrong.Load())
}

// memory returns a line of the daemon's /proc/…/status in bytes: VmRSS is its resident memory,
// VmHWM the peak.
func (d *process) memory(line string) int64 {
	d.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	require.NoError(d.t, err)
	_, rest, found := strings.Cut(string(status), line+":")
	require.True(d.t, found)
	var kilobytes int64
	_, err = fmt.Sscan(rest, &kilobytes)
	require.NoError(d.t, err)
	return kilobytes << 10
}

// watching observes a growing archive until stop is called.
type watching struct{ stop func() }

// watchArchive checks that the archive holds the first batches without a gap at any time. They must
// have been sent one after the other.
func watchArchive(t *testing.T, c *stores.ClickHouse) watching {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	reads := 0
	go func() {
		defer close(done)
		for stopped := false; !stopped; {
			stopped = ctx.Err() != nil // read once more: on a busy machine, this goroutine might not have run before
			seen, err := c.Do(t.Context(), fmt.Sprintf(`SELECT uniqExact(timestamp_from), intDiv(max(toUnixTimestamp(timestamp_from)) - %d, 300) + 1, count() FROM trafficd.measurements`, day.Unix()))
			var batches, last, rows int
			if n, _ := fmt.Sscan(seen, &batches, &last, &rows); err == nil && n == 3 && rows > 0 {
				reads++
				if batches != last {
					t.Errorf("got %d batches in the archive, want %d, because the last one has this number", batches, last)
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return watching{func() {
		cancel()
		<-done
		if reads == 0 {
			t.Error("the archive was never read")
		}
	}}
}

// requireInOrder checks that no partition holds a batch before an earlier one. The batches must
// have been sent one after the other.
func requireInOrder(t *testing.T, k *stores.Kafka) {
	t.Helper()
	last := map[int32]int{}
	for _, r := range k.Records(t, "measurements") {
		batch, n := daemontest.Identity(t, r)
		at := batch*1_000_000 + n
		require.LessOrEqual(t, last[r.Partition], at, "partition %d, offset %d", r.Partition, r.Offset)
		last[r.Partition] = at
	}
}

// TestBatchesWithoutAcceptedItemsLeaveTheJournal checks that a batch without accepted items
// occupies the journal only until its Idempotency-Key has been copied. It needs no store, and any
// number of them leaves the journal with free space.
func TestBatchesWithoutAcceptedItemsLeaveTheJournal(t *testing.T) {
	unused := daemontest.FreeAddress(t)
	d := newProcess(t, "kafka.enabled=true", "kafka.brokers="+unused, "clickhouse.enabled=true", "clickhouse.addresses="+unused)
	d.Set(smallJournal...)
	d.start().Await(http.StatusOK)
	unknown := strings.Replace(item(1, 0), daemontest.Detector(1), strings.Repeat("x", 64), 1)
	packed := compress.Gzip(batchOf(slices.Repeat([]string{unknown}, 2000)...))
	for n := range 100 { // each takes about 150 kB of 3 MB
		d.Eventually(func() bool {
			a, err := d.PostPacked(t.Context(), http.DefaultClient, packed, daemontest.KeyOf(n))
			require.NoError(t, err)
			return a.Status == http.StatusMultiStatus && a.Rejected == 2000
		}, "batch %d is accepted", n)
	}
	d.Eventually(func() bool { return d.Metric("trafficd_pipeline_lag_frames") == 0 }, "everything is delivered")
}
