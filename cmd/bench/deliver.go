package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/internal/launch"
)

const (
	deliverBatches    = 72 // about a million rows
	deliverTopic      = "measurements"
	bareTopic         = "bare"
	deliverPartitions = 6
	bareBlock         = 7 // batches per INSERT of the bare client; about as many rows as clickhouse.block_rows
)

// deliver compares the daemon's CPU time from the socket to both stores with that of ingestion plus
// that of bare clients, which send finished rows and records.
func (o options) deliver(ctx context.Context) error {
	stores, err := launch.StartStores(ctx, launch.Options{
		Topics: map[string]int{deliverTopic: deliverPartitions, bareTopic: deliverPartitions}, Stderr: o.notes,
	})
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }()
	b := synthetic()
	journal, err := start(ctx, o.daemon, b.detectors)
	if err != nil {
		return err
	}
	defer journal.stop()
	d, err := newDaemon(o.daemon, b.detectors)
	if d != nil {
		defer d.stop()
	}
	if err != nil {
		return err
	}
	d.Set("clickhouse.enabled=true", "clickhouse.addresses="+stores.ClickHouse.TCP, "clickhouse.derive_interval=0s",
		"kafka.enabled=true", "kafka.brokers="+stores.Kafka.Brokers[0], "kafka.topic="+deliverTopic)
	if err := d.start(ctx); err != nil {
		return err
	}
	if err := o.deliveryLag(ctx, d, b); err != nil {
		return err
	}
	bare, err := newBareClients(ctx, stores)
	if err != nil {
		return err
	}
	defer bare.close()

	seconds := map[string][]float64{} // of CPU per million rows, and ratios
	sizes := map[string]float64{}
	for round := range o.rounds + 1 {
		of, err := deliverRound(ctx, d, journal, b, bare, stores, sizes)
		if err != nil {
			return err
		}
		if round > 0 { // the first is a warm-up
			for name, v := range of {
				seconds[name] = append(seconds[name], v)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seconds)) {
		unit := "s"
		if name == "delivered_over_bare_and_ingest" {
			unit = "ratio"
		}
		o.line(name, median(seconds[name]), unit)
	}
	sizes["bare_clickhouse_bytes_per_row"] = bare.sent / float64(bare.rows())
	sizes["bare_kafka_bytes_per_row"] = float64(bare.bytes.Load()) / float64(bare.rows()*(o.rounds+1))
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		unit := "B"
		if name == "delivered_kafka_rows_per_request" || name == "delivered_clickhouse_rows_per_block" {
			unit = "rows"
		}
		o.line(name, sizes[name], unit)
	}
	return nil
}

// deliverRound measures each part once, in seconds of CPU time per million rows. It sets the sizes
// of rows, blocks and requests in sizes.
func deliverRound(
	ctx context.Context, d, journal *daemon, b body, bare *bareClients, stores *launch.Stores, sizes map[string]float64,
) (of map[string]float64, err error) {
	of = map[string]float64{}
	if of["delivered_cpu_s_per_million"], err = d.deliverAll(ctx, b, stores.ClickHouse, sizes); err != nil {
		return nil, err
	}
	if _, err := journal.load(b, 2, 1); err != nil {
		return nil, err
	}
	before := journal.cpu()
	if _, err := journal.load(b, 2, deliverBatches/2); err != nil {
		return nil, err
	}
	of["ingest_cpu_s_per_million"] = (journal.cpu() - before).Seconds() / deliverBatches / float64(b.items) * 1e6
	for name, send := range map[string]func(context.Context) error{"bare_clickhouse": bare.insert, "bare_kafka": bare.produce} {
		before := ownCPU()
		if err := send(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		of[name+"_cpu_s_per_million"] = (ownCPU() - before).Seconds() / float64(bare.rows()) * 1e6
	}
	of["delivered_over_bare_and_ingest"] = of["delivered_cpu_s_per_million"] / (of["ingest_cpu_s_per_million"] +
		of["bare_clickhouse_cpu_s_per_million"] + of["bare_kafka_cpu_s_per_million"])
	return of, nil
}

// deliveryCounters are the metrics that show what was delivered.
type deliveryCounters struct {
	rows, blocks             float64 // ClickHouse
	records, requests, bytes float64 // Kafka
}

func (d *daemon) counters(ctx context.Context) (c deliveryCounters, err error) {
	m, err := d.Metrics(ctx)
	return deliveryCounters{
		m["trafficd_clickhouse_rows_inserted_total"], m["trafficd_clickhouse_blocks_total"],
		m["trafficd_kafka_records_total"], m["trafficd_kafka_requests_total"], m["trafficd_kafka_bytes_total"],
	}, err
}

// received returns the number of bytes that a ClickHouse server has received over the network.
func received(ctx context.Context, c *launch.ClickHouse) (n float64, err error) {
	text, err := c.Do(ctx, "SELECT value FROM system.events WHERE event = 'NetworkReceiveBytes'")
	if err == nil {
		n, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
	}
	return n, err
}

// deliverAll sends a round of batches over two connections and waits until both stores have them.
// It returns CPU seconds per million rows, and sets the sizes of rows, blocks and requests in
// sizes.
func (d *daemon) deliverAll(ctx context.Context, b body, archive *launch.ClickHouse, sizes map[string]float64) (float64, error) {
	old, err := d.counters(ctx)
	if err != nil {
		return 0, err
	}
	receivedBefore, err := received(ctx, archive)
	if err != nil {
		return 0, err
	}
	before := d.cpu()
	if _, err := d.load(b, 2, deliverBatches/2); err != nil {
		return 0, err
	}
	if err := d.delivered(ctx, old, deliverBatches*b.items); err != nil {
		return 0, err
	}
	used := d.cpu() - before
	now, err := d.counters(ctx)
	if err != nil {
		return 0, err
	}
	receivedAfter, err := received(ctx, archive)
	sizes["delivered_clickhouse_bytes_per_row"] = (receivedAfter - receivedBefore) / (now.rows - old.rows)
	sizes["delivered_clickhouse_rows_per_block"] = (now.rows - old.rows) / (now.blocks - old.blocks)
	sizes["delivered_kafka_bytes_per_row"] = (now.bytes - old.bytes) / (now.records - old.records)
	sizes["delivered_kafka_rows_per_request"] = (now.records - old.records) / (now.requests - old.requests)
	return used.Seconds() / deliverBatches / float64(b.items) * 1e6, err
}

// delivered waits until both stores have the given number of rows more than old.
func (d *daemon) delivered(ctx context.Context, old deliveryCounters, rows int) error {
	return until(ctx, "everything is delivered", func() (bool, error) {
		now, err := d.counters(ctx)
		return int(min(now.rows-old.rows, now.records-old.records)) >= rows, err
	})
}

// deliveryLag measures the time from a 207 to each store while the daemon is otherwise idle.
func (o options) deliveryLag(ctx context.Context, d *daemon, b body) error {
	c, err := d.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	lags := map[string][]float64{}
	for range o.rounds + 1 {
		old, err := d.counters(ctx)
		if err != nil {
			return err
		}
		if err := c.post(b); err != nil {
			return err
		}
		began := time.Now()
		lag := map[string]float64{}
		for len(lag) < 2 && time.Since(began) < 30*time.Second {
			now, err := d.counters(ctx)
			if err != nil {
				return err
			}
			ms := float64(time.Since(began).Microseconds()) / 1000
			for name, n := range map[string]float64{"clickhouse": now.rows - old.rows, "kafka": now.records - old.records} {
				if lag[name] == 0 && int(n) >= b.items {
					lag[name] = ms
				} else if lag[name] == 0 {
					delete(lag, name)
				}
			}
		}
		if len(lag) < 2 {
			return errors.New("a batch was not delivered within 30 seconds")
		}
		for name, ms := range lag {
			lags[name] = append(lags[name], ms)
		}
		time.Sleep(1500 * time.Millisecond) // idle
	}
	for _, name := range slices.Sorted(maps.Keys(lags)) {
		o.line("delivery_lag_idle_"+name+"_ms", median(lags[name][1:]), "ms")
	}
	return nil
}

// bareClients sends rows and records that the daemon has delivered before, repeatedly and with lz4:
// finished records with franz-go, and finished columns with clickhouse-go.
type bareClients struct {
	kafka   *kgo.Client
	records []*kgo.Record
	bytes   atomic.Int64 // of compressed records
	archive clickhouse.Conn
	columns []any // of an INSERT
	server  *launch.ClickHouse
	sent    float64 // bytes of the last inserts
}

// newBareClients reads the rows and the records of one batch from the stores.
func newBareClients(ctx context.Context, stores *launch.Stores) (c *bareClients, err error) {
	c = &bareClients{server: stores.ClickHouse}
	records, err := launch.ReadTopic(ctx, stores.Kafka.Brokers, deliverTopic)
	if err != nil {
		return nil, err
	}
	for _, r := range records[:batchItems] {
		c.records = append(c.records, &kgo.Record{Topic: bareTopic, Key: r.Key, Value: r.Value, Headers: r.Headers})
	}
	if c.kafka, err = kgo.NewClient(kgo.SeedBrokers(stores.Kafka.Brokers...), kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.WithHooks(c), kgo.MaxBufferedRecords(1_000_000)); err != nil {
		return nil, err
	}
	if c.archive, err = clickhouse.Open(&clickhouse.Options{
		Addr: []string{stores.ClickHouse.TCP}, Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	}); err != nil {
		return nil, err
	}
	if _, err := stores.ClickHouse.Do(ctx, "CREATE TABLE trafficd.bare AS trafficd.measurements ENGINE = Null"); err != nil {
		return nil, err
	}
	return c, c.readRows(ctx)
}

func (c *bareClients) readRows(ctx context.Context) error {
	rows, err := c.archive.Query(ctx, "SELECT "+bareColumns+" FROM trafficd.measurements LIMIT "+fmt.Sprint(batchItems))
	if err != nil {
		return err
	}
	defer rows.Close()
	var instances, codes, types []string
	var from, to, received []time.Time
	var values []float64
	var qualities []*float64
	var ids []uuid.UUID
	var indexes []uint32
	for rows.Next() {
		var r struct {
			instance, code, kind string
			from, to, received   time.Time
			value                float64
			quality              *float64
			id                   uuid.UUID
			index                uint32
		}
		if err := rows.Scan(&r.instance, &r.code, &r.kind, &r.from, &r.to, &r.value, &r.quality, &r.id, &r.index, &r.received); err != nil {
			return err
		}
		instances, codes, types = append(instances, r.instance), append(codes, r.code), append(types, r.kind)
		from, to, received = append(from, r.from), append(to, r.to), append(received, r.received)
		values, qualities, ids, indexes = append(values, r.value), append(qualities, r.quality), append(ids, r.id), append(indexes, r.index)
	}
	c.columns = []any{
		slices.Repeat(instances, bareBlock), slices.Repeat(codes, bareBlock), slices.Repeat(types, bareBlock),
		slices.Repeat(from, bareBlock), slices.Repeat(to, bareBlock), slices.Repeat(values, bareBlock), slices.Repeat(qualities, bareBlock),
		slices.Repeat(ids, bareBlock), slices.Repeat(indexes, bareBlock), slices.Repeat(received, bareBlock),
	}
	return rows.Err()
}

const bareColumns = "product_instance, detector_code, measure_type_code, timestamp_from, timestamp_to, value, quality," +
	" batch_id, batch_index, received_at"

func (c *bareClients) rows() int { return deliverBatches / bareBlock * bareBlock * batchItems }

func (c *bareClients) insert(ctx context.Context) error {
	before, err := received(ctx, c.server)
	if err != nil {
		return err
	}
	// The server builds the dictionaries, as it does for the daemon.
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"low_cardinality_allow_in_native_format": 0}))
	for range deliverBatches / bareBlock {
		b, err := c.archive.PrepareBatch(ctx, "INSERT INTO trafficd.bare ("+bareColumns+")")
		if err != nil {
			return err
		}
		for i, column := range c.columns {
			if err := b.Column(i).Append(column); err != nil {
				return errors.Join(err, b.Abort())
			}
		}
		if err := b.Send(); err != nil {
			return err
		}
	}
	after, err := received(ctx, c.server)
	c.sent = after - before
	return err
}

func (c *bareClients) produce(ctx context.Context) error {
	var failed atomic.Pointer[error]
	var pending sync.WaitGroup
	for range c.rows() / batchItems {
		pending.Add(len(c.records))
		for _, r := range c.records {
			again := *r
			c.kafka.Produce(ctx, &again, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
				}
				pending.Done()
			})
		}
	}
	pending.Wait()
	return *cmp.Or(failed.Load(), new(error))
}

// OnProduceBatchWritten implements kgo.HookProduceBatchWritten.
func (c *bareClients) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	c.bytes.Add(int64(m.CompressedBytes))
}

func (c *bareClients) close() {
	c.kafka.Close()
	_ = c.archive.Close()
}
