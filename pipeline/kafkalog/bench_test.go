package kafkalog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
)

// BenchmarkAppend makes frames of 14,000 rows durable, one after the other: in the journal on disk,
// and in a log on three brokers on this machine.
func BenchmarkAppend(b *testing.B) {
	rows := benchRows(14_000)
	run := func(b *testing.B, j pipeline.Journal) {
		require.Eventually(b, func() bool { return j.Ready("") == nil }, time.Minute, 10*time.Millisecond)
		var took []time.Duration
		cpu := func() time.Duration {
			var u unix.Rusage
			require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
			return time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		e := &durable.Entry{Data: batch.AppendFrame(nil, rows, nil)}
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

func benchRows(n int) *batch.Batch {
	rng := rand.New(rand.NewPCG(1, 2))
	rows := &batch.Batch{ProductInstance: "city"}
	rows.TypeText, rows.TypeEnd = []byte("flow"), []uint32{4}
	for i := range n {
		rows.Codes = append(rows.Codes, "DET-000000"...)
		rows.CodeEnd = append(rows.CodeEnd, uint32(len(rows.Codes)))
		rows.Type, rows.Index = append(rows.Type, 0), append(rows.Index, uint32(i))
		rows.From, rows.To = append(rows.From, 1e18), append(rows.To, 1e18+6e10)
		rows.Value, rows.Quality = append(rows.Value, float64(rng.IntN(2000))/10), append(rows.Quality, 1)
	}
	return rows
}

// BenchmarkTakeover reads the Batch-Ids of an hour of a partition with 10,000 rows a second, as a
// new owner does, from a broker on this machine.
func BenchmarkTakeover(b *testing.B) {
	const rate = 10_000
	f := func(rows int) {
		b.Run(fmt.Sprint(rows, " rows"), func(b *testing.B) {
			k := stores.StartKafka(b, stores.Broker("apache"))
			l := openLog(b, k.Brokers, "bench")
			require.Eventually(b, func() bool { return l.Ready("") == nil }, time.Minute, 10*time.Millisecond)
			frames, size := benchRows(rows), 0
			step := time.Second * time.Duration(rows) / rate
			at := time.Now().Add(-window)
			n := int(window / step)
			var waiting []*durable.Entry
			for i := range n {
				frames.ID, frames.ReceivedAt = batch.DerivedID("", "", uint64(i)), at.Add(time.Duration(i)*step).UnixNano()
				e := &durable.Entry{Data: batch.AppendFrame(nil, frames, nil)}
				size += len(e.Data)
				for l.Enqueue(e) != nil {
					require.NoError(b, waiting[0].Wait())
					waiting = waiting[1:]
				}
				waiting = append(waiting, e)
			}
			for _, e := range waiting {
				require.NoError(b, e.Wait())
			}
			b.SetBytes(int64(size))
			for b.Loop() {
				p := &Partition{log: l, base: clock{frame: uint64(n) + 1, highest: at.Add(window).UnixNano()}, ctx: b.Context(), hard: b.Context()}
				require.NoError(b, p.load(b.Context()))
				require.Len(b, p.seen.order, n)
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/takeover")
		})
	}
	f(14_000)
	f(100)
}
