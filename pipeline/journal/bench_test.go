package journal

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"trafficd/pipeline/lib/durable"
)

// batchBytes is what 14,000 measurements take in the journal.
const batchBytes = 430_000

// TestAllocations checks that neither writing nor reading a frame allocates, including the
// goroutine of the writer.
func TestAllocations(t *testing.T) {
	cfg := testConfig()
	cfg.Dir = t.TempDir()
	cfg.SegmentBytes, cfg.MaxBytes = 64<<20, 128<<20 // no new segment, which would allocate
	j := mustOpen(t, cfg, osFS{}, "a")
	e := &durable.Entry{Data: sized(10_000)}
	r := j.Reader(0)
	c := j.Cursor("a")
	state := sized(1000)
	var buf []byte
	allocs := testing.AllocsPerRun(200, func() {
		if err := j.Enqueue(e); err != nil {
			t.Fatal(err)
		}
		if err := e.Wait(); err != nil {
			t.Fatal(err)
		}
		seq, frame, ok, err := r.TryNext(buf)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		buf = frame
		if err := c.Save(seq+1, state); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, allocs)
	require.NoError(t, j.Close())
}

// BenchmarkAppend makes frames durable on the disk of the temporary directory. cpu-ms/frame is user
// and system time of the process: checksum, copy into the page cache, sync.
func BenchmarkAppend(b *testing.B) {
	for _, producers := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("430kB/producers=%d", producers), func(b *testing.B) { benchmarkAppend(b, producers, batchBytes) })
	}
	b.Run("100B/producers=16", func(b *testing.B) { benchmarkAppend(b, 16, 100) })
}

func benchmarkAppend(b *testing.B, producers, size int) {
	cfg := DefaultConfig()
	cfg.Dir, cfg.MinFreeBytes, cfg.MaxBytes = b.TempDir(), 0, 1<<38
	j := mustOpen(b, cfg, osFS{}, "a")
	stop := keepDelivered(j)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime()
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			e := &durable.Entry{Data: sized(size)}
			for i := p; i < b.N; i += producers {
				if err := j.Enqueue(e); err != nil {
					b.Error(err)
					return
				}
				if err := e.Wait(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpuTime()-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/frame")
	stop()
	require.NoError(b, j.Close())
}

// keepDelivered moves the cursor forward from time to time, so that the disk does not fill up.
func keepDelivered(j *Journal) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				_, next := j.Bounds()
				_ = j.Cursor("a").Save(next, nil) // a failure shows as a disk that fills up
			}
		}
	}()
	return func() { close(quit); <-done }
}

func BenchmarkRead(b *testing.B) {
	cfg := DefaultConfig()
	cfg.Dir, cfg.MinFreeBytes = b.TempDir(), 0
	j := mustOpen(b, cfg, osFS{})
	for range 100 {
		add(b, j, sized(batchBytes))
	}
	var buf []byte
	r := j.Reader(0)
	b.SetBytes(batchBytes)
	b.ReportAllocs()
	for b.Loop() {
		_, frame, ok, err := r.TryNext(buf)
		if err != nil {
			b.Fatal(err)
		}
		if !ok {
			r = j.Reader(0)
		}
		buf = frame
	}
	require.NoError(b, j.Close())
}

// BenchmarkSave saves a cursor with a state of the size that the delivery keeps.
func BenchmarkSave(b *testing.B) {
	cfg := DefaultConfig()
	cfg.Dir, cfg.MinFreeBytes = b.TempDir(), 0
	j := mustOpen(b, cfg, osFS{}, "a")
	state := sized(100 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if err := j.Cursor("a").Save(1, state); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, j.Close())
}

func cpuTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
