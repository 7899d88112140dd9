package kafkalog

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"trafficd/cmd/devstores/stores"
	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
)

// BenchmarkAppend makes frames of 14,000 rows durable, one after the other: in the journal on disk, and in a log on three brokers on
// this machine.
func BenchmarkAppend(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	rows := &batch.Batch{ProductInstance: "city"}
	rows.TypeText, rows.TypeEnd = []byte("flow"), []uint32{4}
	for i := range 14_000 {
		rows.Codes = append(rows.Codes, "DET-000000"...)
		rows.CodeEnd = append(rows.CodeEnd, uint32(len(rows.Codes)))
		rows.Type, rows.Index = append(rows.Type, 0), append(rows.Index, uint32(i))
		rows.From, rows.To = append(rows.From, 1e18), append(rows.To, 1e18+6e10)
		rows.Value, rows.Quality = append(rows.Value, float64(rng.IntN(2000))/10), append(rows.Quality, 1)
	}
	run := func(b *testing.B, j pipeline.Journal) {
		require.Eventually(b, func() bool { return j.Ready() == nil }, time.Minute, 10*time.Millisecond)
		var took []time.Duration
		cpu := func() time.Duration {
			var u unix.Rusage
			require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
			return time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		e := &journal.Entry{Data: batch.AppendFrame(nil, rows, nil), Rows: rows.Rows()}
		b.SetBytes(int64(len(e.Data)))
		start := cpu()
		for b.Loop() {
			begin := time.Now()
			require.NoError(b, j.Enqueue(e))
			require.NoError(b, e.Wait())
			took = append(took, time.Since(begin))
		}
		b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	}
	b.Run("local", func(b *testing.B) {
		cfg := journal.DefaultConfig()
		cfg.Dir, cfg.MinFreeBytes = b.TempDir(), 0
		j, err := journal.Open(cfg, nil)
		require.NoError(b, err)
		defer j.Close()
		run(b, j)
	})
	b.Run("kafka", func(b *testing.B) {
		k := stores.StartKafka(b, stores.Broker("apache"), stores.Brokers(3))
		run(b, openLog(b, k.Brokers, "bench"))
	})
}
