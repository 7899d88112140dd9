package kafka

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
)

// BenchmarkEncode encodes record batches of 900 KiB. The throughput in MB/s refers to records
// before compression.
func BenchmarkEncode(b *testing.B) {
	rows := block(rowsOf(random(), 14_000, 3000))
	n := fit(rows, 1, DefaultConfig().BatchBytes, 1_000_000)
	share := divide(rows, 1)[0][:n]
	for _, name := range []string{"none", "lz4", "snappy", "zstd", "gzip"} {
		b.Run(name, func(b *testing.B) {
			var e encoder
			frame, err := e.encode(producer{}, codecs[name], rows, share)
			require.NoError(b, err)
			b.SetBytes(int64(len(e.records)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.encode(producer{}, codecs[name], rows, share); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(e.records))/float64(len(frame)), "ratio")
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkDeliver plans and delivers whole batches to a broker process.
func BenchmarkDeliver(b *testing.B) {
	k := stores.StartKafka(b)
	const batches = 5
	rows := block()
	for range batches {
		rows = append(rows, block(rowsOf(random(), 14_000, 3000))...)
	}
	for _, name := range []string{"none", "lz4", "zstd"} {
		for _, partitions := range []int{1, 6, 24} {
			b.Run(fmt.Sprintf("%s/%d", name, partitions), func(b *testing.B) {
				cfg := testConfig(fmt.Sprintf("bench-%s-%d-%d", name, partitions, b.N), k.Brokers...)
				cfg.Compression = name
				cfg.CreateTopic = CreateTopic{Partitions: partitions, ReplicationFactor: 1}
				s, err := New(cfg, zerolog.Nop())
				require.NoError(b, err)
				defer s.Close()
				loop := &deliveryLoop{t: b}
				loop.add(rows.Head(1))
				loop.run(s)
				b.ReportAllocs()
				for b.Loop() {
					loop.add(rows)
					loop.run(s)
				}
				b.ReportMetric(float64(rows.Rows())*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

// BenchmarkManyPartitions delivers one batch of 14,000 rows at a time to 96 partitions on three
// Apache brokers, with three replicas of each partition.
func BenchmarkManyPartitions(b *testing.B) {
	k := stores.StartKafka(b, stores.Broker(stores.Apache), stores.Brokers(3))
	cfg := testConfig("many", k.Brokers...)
	cfg.CreateTopic = CreateTopic{Partitions: 96, ReplicationFactor: 3}
	s, err := New(cfg, zerolog.Nop())
	require.NoError(b, err)
	defer s.Close()
	rows := block(rowsOf(random(), 14_000, 3000))
	loop := &deliveryLoop{t: b}
	for range 20 { // warm up the brokers' JVM
		loop.add(rows)
		loop.run(s)
	}
	var times []float64
	for b.Loop() {
		start := time.Now()
		loop.add(rows)
		loop.run(s)
		times = append(times, float64(time.Since(start).Microseconds())/1000)
	}
	slices.Sort(times)
	b.ReportMetric(times[len(times)/2], "p50-ms")
	b.ReportMetric(times[len(times)*99/100], "p99-ms")
}

// BenchmarkPlan measures fit and divide, which process each row of a block besides the encoder.
func BenchmarkPlan(b *testing.B) {
	rows := block(rowsOf(random(), 14_000, 3000))
	b.Run("fit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fit(rows, 6, 900<<10, 100_000)
		}
		b.ReportMetric(14_000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
	b.Run("divide", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			divide(rows, 6)
		}
		b.ReportMetric(14_000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
}
