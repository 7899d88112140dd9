package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/schemas/contract"
)

// batchStatus asks what became of a batch.
func (d *process) batchStatus(id, key string) (status int, s contract.BatchStatus, header http.Header) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://"+d.API+contract.BatchesPath+id, nil)
	require.NoError(d.t, err)
	req.Header.Set("Authorization", "apiKey "+key)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(d.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(d.t, err)
	if resp.StatusCode == http.StatusOK {
		require.NoError(d.t, json.Unmarshal(body, &s), string(body))
	}
	return resp.StatusCode, s, resp.Header
}

// awaitFinal waits until the state of a batch is final, and returns it.
func (d *process) awaitFinal(id string) (final contract.BatchStatus) {
	d.t.Helper()
	d.Eventually(func() bool {
		var status int
		status, final, _ = d.batchStatus(id, testKey)
		return status == http.StatusOK && final.Final
	}, "the final state of batch %s", id)
	return final
}

func (d *process) postItems(batch, items int) (id string) {
	d.t.Helper()
	var list []string
	for n := range items {
		list = append(list, item(n, batch))
	}
	a, err := d.Post(d.t.Context(), batchOf(list...), "")
	require.NoError(d.t, err)
	require.Equal(d.t, items, a.Accepted, "%+v", a)
	return a.Header.Get("Batch-Id")
}

// TestBatchStatus checks what a client sees of its batches while a store is away, when a store
// rejects some of its rows, and after kills.
func TestBatchStatus(t *testing.T) {
	d, c, _ := onRealStores(t)
	d.Keys(daemontest.KeyEntry(testKey, "ingest", "UTC"), daemontest.KeyEntry("tk_other", "ingest", "UTC"))
	d.start().Await(http.StatusOK)
	begun := time.Now()

	id := d.postItems(0, 20)
	s := d.awaitFinal(id)
	require.Equal(t, 20, s.Accepted)
	require.Equal(t, 20, s.Archived.Items)
	require.Equal(t, 20, s.Forwarded.Items)
	require.Zero(t, s.Archived.DeadLettered+s.Forwarded.DeadLettered)
	for _, at := range []time.Time{s.ReceivedAt, *s.Archived.At, *s.Forwarded.At} {
		require.WithinRange(t, at, begun.Add(-time.Second), time.Now().Add(time.Second))
	}
	_, _, header := d.batchStatus(id, testKey)
	require.Equal(t, "private, max-age=60", header.Get("Cache-Control"))
	status, _, _ := d.batchStatus(id, "tk_other")
	require.Equal(t, http.StatusNotFound, status, "another client's")
	status, _, _ = d.batchStatus("0193a5c2-0000-7000-8000-000000000000", testKey)
	require.Equal(t, http.StatusNotFound, status)
	status, _, _ = d.batchStatus("latest", testKey)
	require.Equal(t, http.StatusBadRequest, status)

	all, err := d.Post(t.Context(), batchOf(strings.Replace(item(0, 0), "D0000", "nobody", 1)), "")
	require.NoError(t, err)
	require.Zero(t, all.Accepted)
	require.Equal(t, 0, d.awaitFinal(all.Header.Get("Batch-Id")).Accepted, "all items are rejected")

	c.Query(t, "ALTER TABLE trafficd.measurements ADD CONSTRAINT odd CHECK detector_code NOT IN ('D0003', 'D0005')")
	dead := d.awaitFinal(d.postItems(1, 20))
	require.Equal(t, contract.StoreStatus{Items: 18, DeadLettered: 2, At: dead.Archived.At}, *dead.Archived)
	require.Equal(t, 20, dead.Forwarded.Items)

	require.NoError(t, c.Stop())
	id = d.postItems(2, 20)
	d.Eventually(func() bool {
		status, s, header = d.batchStatus(id, testKey)
		return status == http.StatusOK && s.Forwarded.Items == 20
	}, "the batch is forwarded while the archive is away")
	require.False(t, s.Final)
	require.Equal(t, 20, s.Accepted)
	require.Equal(t, contract.StoreStatus{}, *s.Archived)
	require.Equal(t, "no-store", header.Get("Cache-Control"))
	d.kill()
	d.start().Await(http.StatusOK)
	d.Eventually(func() bool {
		status, s, _ = d.batchStatus(id, testKey)
		return status == http.StatusOK && s.Forwarded.Items == 20 && !s.Final
	}, "the same after a kill")
	status, _, _ = d.batchStatus("0193a5c2-0000-7000-8000-000000000000", testKey)
	require.Equal(t, http.StatusServiceUnavailable, status, "the archive may know it")
	require.NoError(t, c.Restart())
	s = d.awaitFinal(id)
	require.Equal(t, 18, s.Archived.Items)
	require.Equal(t, 2, s.Archived.DeadLettered)
	log := d.Terminate()
	require.NotContains(t, log, "they will be written again")
}

// TestBatchStatusOfReplicas checks that each replica knows what became of the batches of the
// others, also of one that was killed, once it runs again: the receipts of its last deliveries are
// on its disk.
func TestBatchStatusOfReplicas(t *testing.T) {
	c, broker := stores.StartClickHouse(t), stores.StartKafka(t, stores.Topic("measurements", 2))
	var replicas []*process
	for range 2 {
		brokers := strings.Join(broker.Brokers, ",")
		replicas = append(replicas, newProcess(t, "journal.kind=kafka", "journal.log.brokers="+brokers, "journal.log.partitions=3",
			"kafka.enabled=true", "kafka.brokers="+brokers, "clickhouse.enabled=true", "clickhouse.addresses="+c.TCP).start())
	}
	for _, d := range replicas {
		d.Await(http.StatusOK)
	}
	final := func(n int, d *process) {
		t.Helper()
		id := replicas[n%2].postItems(n, 20)
		for _, d := range []*process{d, replicas[n%2]} {
			s := d.awaitFinal(id)
			require.Equal(t, "20 20 20", fmt.Sprint(s.Accepted, s.Archived.Items, s.Forwarded.Items))
		}
	}
	for n := range 4 {
		final(n, replicas[1-n%2])
	}
	var list []string
	for n := range 10 {
		list = append(list, replicas[0].postItems(10+n, 20))
	}
	replicas[0].kill()
	replicas[0].start()
	for _, id := range list {
		require.Equal(t, 20, replicas[1].awaitFinal(id).Accepted)
	}
}
