package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

const (
	deliverBatches    = 72 // about a million rows
	deliverTopic      = "measurements"
	bareTopic         = "bare"
	deliverPartitions = 6
	bareBlock         = 7 // batches in each INSERT of the bare client: about as many rows as the sink inserts
)

// deliver compares the daemon's CPU time from the socket to both stores with that of ingestion
// alone plus that of bare clients.
func (o options) deliver(ctx context.Context) {
	stores := must.Get(launch.StartStores(ctx, launch.Options{
		Topics: map[string]int{deliverTopic: deliverPartitions, bareTopic: deliverPartitions}, Stderr: o.notes,
	}))
	defer func() { _ = stores.Close() }()
	b := synthetic()
	journal := start(ctx, o.daemon, b.detectors)
	defer journal.stop()
	d := o.delivering(ctx, b, stores)
	defer d.stop()
	d.load(b, 1, 1)
	d.awaitDelivered(ctx) // the bare clients copy this batch from the stores
	bare := newBareClients(ctx, stores)
	defer bare.close()

	var sent launch.Metrics // growth of the daemon's metrics in the last round
	var archived float64    // bytes that ClickHouse received in the last round
	o.medians(o.rounds, func(add series) {
		journal.load(b, 2, 1)
		before := journal.cpu()
		journal.load(b, 2, deliverBatches/2)
		ingest := perMillion(journal.cpu()-before, deliverBatches*b.items)
		var spent time.Duration
		spent, sent, archived = d.deliverAll(ctx, b, stores.ClickHouse)
		deliver := perMillion(spent, deliverBatches*b.items)
		before = ownCPU()
		bare.insert(ctx)
		insert := perMillion(ownCPU()-before, bare.rows())
		before = ownCPU()
		bare.produce(ctx)
		produce := perMillion(ownCPU()-before, bare.rows())
		add("bare_clickhouse_cpu_s_per_million", insert, "s")
		add("bare_kafka_cpu_s_per_million", produce, "s")
		add("delivered_cpu_s_per_million", deliver, "s")
		add("delivered_over_bare_and_ingest", deliver/(ingest+insert+produce), "ratio")
		add("ingest_cpu_s_per_million", ingest, "s")
	})
	o.line("bare_clickhouse_bytes_per_row", bare.sent/float64(bare.rows()), "B")
	o.line("bare_kafka_bytes_per_row", float64(bare.bytes.Load())/float64(bare.rows()*(o.rounds+1)), "B")
	o.line("delivered_clickhouse_bytes_per_row", archived/sent[archiveRows], "B")
	o.line("delivered_clickhouse_rows_per_block", sent[archiveRows]/sent["trafficd_clickhouse_blocks_total"], "rows")
	o.line("delivered_kafka_bytes_per_row", sent["trafficd_kafka_bytes_total"]/sent[kafkaRecords], "B")
	o.line("delivered_kafka_rows_per_request", sent[kafkaRecords]/sent["trafficd_kafka_requests_total"], "rows")
}

// delivering starts a daemon that delivers to both stores.
func (o options) delivering(ctx context.Context, b body, stores *launch.Stores) *daemon {
	return start(ctx, o.daemon, b.detectors,
		"clickhouse.enabled=true", "clickhouse.addresses="+stores.ClickHouse.TCP, "clickhouse.derive_interval=0s",
		"kafka.enabled=true", "kafka.brokers="+stores.Kafka.Brokers[0], "kafka.topic="+deliverTopic)
}

func perMillion(spent time.Duration, rows int) float64 { return spent.Seconds() / float64(rows) * 1e6 }

const (
	archiveRows  = "trafficd_clickhouse_rows_inserted_total"
	kafkaRecords = "trafficd_kafka_records_total"
)

// received returns the number of bytes that a ClickHouse server has received over the network.
func received(ctx context.Context, c *launch.ClickHouse) float64 {
	text := must.Get(c.Do(ctx, "SELECT value FROM system.events WHERE event = 'NetworkReceiveBytes'"))
	return must.Get(strconv.ParseFloat(text, 64))
}

// deliverAll sends one round of batches over two connections and waits until both stores have them.
// It returns the daemon's CPU time, the growth of its metrics, and the bytes received by
// ClickHouse.
func (d *daemon) deliverAll(
	ctx context.Context, b body, archive *launch.ClickHouse,
) (spent time.Duration, growth launch.Metrics, archived float64) {
	old, receivedBefore := must.Get(d.Metrics(ctx)), received(ctx, archive)
	before := d.cpu()
	d.load(b, 2, deliverBatches/2)
	until(ctx, "delivery of all rows", func() bool {
		growth = must.Get(d.Metrics(ctx))
		for name := range growth {
			growth[name] -= old[name]
		}
		return int(min(growth[archiveRows], growth[kafkaRecords])) >= deliverBatches*b.items
	})
	spent = d.cpu() - before
	return spent, growth, received(ctx, archive) - receivedBefore
}

// bareClients repeatedly sends a batch that the daemon has delivered: encoded records with
// franz-go, and filled columns with clickhouse-go, both compressed with lz4.
type bareClients struct {
	kafka   *kgo.Client
	records []*kgo.Record
	bytes   atomic.Int64 // total size of the compressed records
	archive clickhouse.Conn
	columns []any // of one INSERT
	server  *launch.ClickHouse
	sent    float64 // bytes that the server received during the last call of insert
}

// newBareClients reads the rows and the records of one batch from the stores.
func newBareClients(ctx context.Context, stores *launch.Stores) *bareClients {
	c := &bareClients{server: stores.ClickHouse}
	for _, r := range must.Get(launch.ReadTopic(ctx, stores.Kafka.Brokers, deliverTopic))[:batchItems] {
		c.records = append(c.records, &kgo.Record{Topic: bareTopic, Key: r.Key, Value: r.Value, Headers: r.Headers})
	}
	c.kafka = must.Get(kgo.NewClient(kgo.SeedBrokers(stores.Kafka.Brokers...), kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.WithHooks(c), kgo.MaxBufferedRecords(1_000_000)))
	c.archive = must.Get(clickhouse.Open(&clickhouse.Options{
		Addr: []string{stores.ClickHouse.TCP}, Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	}))
	must.Get(stores.ClickHouse.Do(ctx, "CREATE TABLE trafficd.bare AS trafficd.measurements ENGINE = Null"))
	// The result is one row of arrays. groupArrayArray keeps NULL, which groupArray omits.
	arrays := "groupArrayArray([" + strings.ReplaceAll(bareColumns, ", ", "]), groupArrayArray([") + "])"
	row := must.Get(c.archive.Query(ctx, fmt.Sprintf("SELECT %s FROM (SELECT * FROM trafficd.measurements LIMIT %d)", arrays, batchItems)))
	defer func() { _ = row.Close() }() // Scan reports errors
	row.Next()
	for _, t := range row.ColumnTypes() {
		c.columns = append(c.columns, reflect.New(t.ScanType()).Interface())
	}
	must.Do(row.Scan(c.columns...))
	for i, column := range c.columns {
		values := reflect.ValueOf(column).Elem()
		block := values
		for range bareBlock - 1 {
			block = reflect.AppendSlice(block, values)
		}
		c.columns[i] = block.Interface()
	}
	return c
}

const bareColumns = "product_instance, detector_code, measure_type_code, timestamp_from, timestamp_to, value, quality, " +
	"batch_id, batch_index, received_at"

func (c *bareClients) rows() int { return deliverBatches / bareBlock * bareBlock * batchItems }

func (c *bareClients) insert(ctx context.Context) {
	before := received(ctx, c.server)
	// The server builds the LowCardinality dictionaries, as it does for the daemon.
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"low_cardinality_allow_in_native_format": 0}))
	for range deliverBatches / bareBlock {
		b := must.Get(c.archive.PrepareBatch(ctx, "INSERT INTO trafficd.bare ("+bareColumns+")"))
		for i, column := range c.columns {
			must.Do(b.Column(i).Append(column))
		}
		must.Do(b.Send())
	}
	c.sent = received(ctx, c.server) - before
}

func (c *bareClients) produce(ctx context.Context) {
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
	must.Do(*cmp.Or(failed.Load(), new(error)))
}

// OnProduceBatchWritten implements kgo.HookProduceBatchWritten.
func (c *bareClients) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	c.bytes.Add(int64(m.CompressedBytes))
}

func (c *bareClients) close() {
	c.kafka.Close()
	_ = c.archive.Close()
}
