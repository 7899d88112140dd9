package journal

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/crashfs"
	"trafficd/pipeline/lib/durable"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedChildDir); dir != "" {
		killedChild(dir)
	}
	goleak.VerifyTestMain(m)
}

func mustOpen(t testing.TB, cfg Config, fs FS, consumers ...string) *Journal {
	t.Helper()
	j, err := Open(cfg, consumers, WithFS(fs))
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() }) // most tests close it themselves and look at the error
	return j
}

// add makes one frame durable.
func add(t testing.TB, j *Journal, data []byte) uint64 {
	t.Helper()
	e := &durable.Entry{Data: data}
	require.NoError(t, j.Enqueue(e))
	require.NoError(t, e.Wait())
	return e.Seq
}

// addSegments makes 20 frames durable, which fill seven segments.
func addSegments(t testing.TB, j *Journal) {
	t.Helper()
	for range 20 {
		add(t, j, sized(4000))
	}
}

// addTogether makes frames durable with one commit.
func addTogether(t testing.TB, j *Journal, fs *memFS, data ...[]byte) {
	t.Helper()
	began, open := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fs.SetGate(func(string) { once.Do(func() { close(began); <-open }) })
	first := &durable.Entry{Data: []byte("holds up the writer")}
	require.NoError(t, j.Enqueue(first))
	<-began // the next commit takes all that is enqueued while this one syncs
	var entries []*durable.Entry
	for _, d := range data {
		e := &durable.Entry{Data: d}
		require.NoError(t, j.Enqueue(e))
		entries = append(entries, e)
	}
	close(open)
	for _, e := range append(entries, first) {
		require.NoError(t, e.Wait())
	}
	fs.SetGate(nil)
}

// readAll returns all durable frames from the oldest on.
func readAll(t testing.TB, j *Journal) [][]byte {
	t.Helper()
	var frames [][]byte
	r := j.Reader(0)
	for {
		_, frame, ok, err := r.TryNext(nil)
		require.NoError(t, err)
		if !ok {
			return frames
		}
		frames = append(frames, frame)
	}
}

func requireNoTempFiles(t *testing.T, fs FS) {
	t.Helper()
	names, err := fs.List("/journal")
	require.NoError(t, err)
	for _, name := range names {
		require.NotContains(t, name, tempSuffix)
	}
}

func sized(n int) []byte { return bytes.Repeat([]byte{'x'}, n) }

func TestOnTheRealDisk(t *testing.T) {
	cfg := testConfig()
	cfg.Dir = filepath.Join(t.TempDir(), "some", "journal")
	j := mustOpen(t, cfg, osFS{}, "archive")
	var want [][]byte
	for i := range 40 {
		frame := payload(uint64(i), 8+i*100)
		require.EqualValues(t, i+1, add(t, j, frame))
		want = append(want, frame)
	}
	require.NoError(t, j.Cursor("archive").Save(17, []byte("state")))
	require.NoError(t, j.Close())

	j = mustOpen(t, cfg, osFS{}, "archive")
	oldest, next := j.Bounds()
	require.EqualValues(t, 41, next)
	require.Greater(t, oldest, uint64(1), "the first segments are delivered")
	require.Equal(t, want[oldest-1:], readAll(t, j))
	seq, state := j.Cursor("archive").Load()
	require.EqualValues(t, 17, seq)
	require.Equal(t, "state", string(state))
	require.NoError(t, j.Close())
}

func TestTwoOpensOfOneDirectory(t *testing.T) {
	cfg := testConfig()
	cfg.Dir = t.TempDir()
	j := mustOpen(t, cfg, osFS{})
	_, err := Open(cfg, nil)
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, cfg.Dir)
	require.ErrorContains(t, err, fmt.Sprintf("process %d", os.Getpid()))
	require.NoError(t, j.Close())
	require.NoError(t, mustOpen(t, cfg, osFS{}).Close())
}

func TestFullUntilCursorsAdvance(t *testing.T) {
	cfg := testConfig()
	cfg.MaxBytes = 2 * roomFor(cfg.MaxFrameBytes)
	fs := newMemFS(1)
	j := mustOpen(t, cfg, fs, "a", "b")
	var err error
	for err == nil {
		e := &durable.Entry{Data: sized(5000)}
		if err = j.Enqueue(e); err == nil {
			require.NoError(t, e.Wait())
		}
	}
	require.ErrorIs(t, err, durable.ErrFull)
	require.ErrorIs(t, j.Ready(""), durable.ErrFull, "Ready agrees with Enqueue")
	require.LessOrEqual(t, segmentBytes(t, fs), cfg.MaxBytes)

	_, next := j.Bounds()
	require.NoError(t, j.Cursor("a").Save(next, nil))
	require.ErrorIs(t, j.Ready(""), durable.ErrFull, "b still needs everything")
	require.NoError(t, j.Cursor("b").Save(next, nil))
	require.NoError(t, j.Ready(""))
	require.Equal(t, next, add(t, j, sized(12<<10)), "the largest frame fits when all is delivered")
	require.NoError(t, j.Close())
}

func segmentBytes(t *testing.T, fs FS) (sum int64) {
	in, err := Inspect(testConfig().Dir, WithFS(fs))
	require.NoError(t, err)
	for _, s := range in.Segments {
		sum += s.Bytes
	}
	return sum
}

func TestDiskLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newMemFS(1)
		j := mustOpen(t, testConfig(), fs)
		require.NoError(t, j.Ready(""))
		require.NoError(t, j.NearlyLow())
		fs.SetFree(2*testConfig().MinFreeBytes - 1)
		time.Sleep(2 * maintenanceInterval)
		require.ErrorContains(t, j.NearlyLow(), "will soon be low on space")
		require.NoError(t, j.Ready(""))
		fs.SetFree(testConfig().MinFreeBytes + roomFor(0) - 1)
		time.Sleep(2 * maintenanceInterval)
		require.ErrorIs(t, j.Ready(""), ErrDiskLow)
		require.NoError(t, j.NearlyLow())
		require.ErrorIs(t, j.Enqueue(&durable.Entry{}), ErrDiskLow)
		fs.SetFree(testConfig().MinFreeBytes + roomFor(0))
		time.Sleep(2 * maintenanceInterval)
		require.EqualValues(t, 1, add(t, j, nil))
		require.NoError(t, j.Close())
	})
}

// TestDiskLowBeforeItIsFull checks that MinFreeBytes of the disk stay free and no frame finds the
// disk full, no matter how fast frames arrive.
func TestDiskLowBeforeItIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes while frames are queued
		fs := newMemFS(1)
		fs.Capacity = 512 << 10
		cfg := testConfig()
		cfg.MinFreeBytes = 64 << 10
		j := mustOpen(t, cfg, fs)
		var queued []*durable.Entry
		for {
			e := &durable.Entry{Data: sized(3000)}
			if err := j.Enqueue(e); err != nil {
				require.ErrorIs(t, err, ErrDiskLow)
				break
			}
			if queued = append(queued, e); len(queued)%7 == 0 {
				require.NoError(t, e.Wait())
				queued = queued[:len(queued)-1]
			}
		}
		for _, e := range queued {
			require.NoError(t, e.Wait())
		}
		require.GreaterOrEqual(t, fs.Available(), cfg.MinFreeBytes)
		require.Less(t, fs.Available(), cfg.MinFreeBytes+2*cfg.SegmentBytes, "the space above the limit is used")
		require.NoError(t, j.Close())
	})
}

// TestDiskLowFreesSpares checks that while the disk is low, the files of deleted segments are
// freed instead of kept for reuse.
func TestDiskLowFreesSpares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newMemFS(1)
		fs.Capacity = 4 << 20
		cfg := testConfig()
		cfg.MinFreeBytes = 64 << 10
		j := mustOpen(t, cfg, fs, "a")
		addSegments(t, j)
		require.NoError(t, j.Cursor("a").Save(20, nil))
		require.Len(t, j.spares, maxSpares)
		fs.Fill(cfg.MinFreeBytes) // another program fills the disk up to the limit
		require.Equal(t, cfg.MinFreeBytes, fs.Available())
		time.Sleep(2 * maintenanceInterval)
		require.NoError(t, j.Ready(""), "the spares have freed enough")
		requireNoTempFiles(t, fs)
		add(t, j, sized(4000))
		require.NoError(t, j.Close())
	})
}

// TestLostDirectory checks that no frame is acknowledged after the directory was deleted or hidden,
// even if there is a new one, but that earlier frames can be read and cursors saved.
func TestLostDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Dir = filepath.Join(t.TempDir(), "journal")
		j := mustOpen(t, cfg, osFS{}, "a")
		add(t, j, []byte("one"))
		require.NoError(t, os.Rename(cfg.Dir, cfg.Dir+".hidden"))
		for range 2 {
			time.Sleep(2 * maintenanceInterval)
			require.ErrorIs(t, j.Enqueue(&durable.Entry{Data: []byte("lost")}), ErrFailed)
			require.ErrorContains(t, j.Ready(""), "deleted or hidden by a mount")
			require.NoError(t, os.MkdirAll(cfg.Dir, 0o700)) // heal must not use it
		}
		require.Equal(t, [][]byte{[]byte("one")}, readAll(t, j))
		require.NoError(t, j.Cursor("a").Save(2, nil))

		require.NoError(t, os.Remove(cfg.Dir))
		require.NoError(t, os.Rename(cfg.Dir+".hidden", cfg.Dir))
		time.Sleep(2 * maintenanceInterval)
		add(t, j, []byte("two"))
		require.NoError(t, j.Close())
		in, err := Verify(cfg.Dir)
		require.NoError(t, err)
		require.NoError(t, in.Err())
	})
}

func TestFailedCommitIsVoided(t *testing.T) {
	f := func(failing string) {
		t.Helper()
		fs := newMemFS(1)
		j := mustOpen(t, testConfig(), fs)
		add(t, j, []byte("one"))
		fs.FailOnce(failing)
		e := &durable.Entry{Data: []byte("never")}
		require.NoError(t, j.Enqueue(e))
		require.ErrorIs(t, e.Wait(), durable.ErrVoided)
		require.Eventually(t, func() bool { return j.Ready("") == nil }, time.Minute, time.Millisecond)

		require.EqualValues(t, 2, add(t, j, []byte("two")), "the seq of a voided frame is reused")
		require.Equal(t, [][]byte{[]byte("one"), []byte("two")}, readAll(t, j))
		require.NoError(t, j.Close())
		in, err := Verify(testConfig().Dir, WithFS(fs))
		require.NoError(t, err)
		require.NoError(t, in.Err())
		require.Len(t, in.Segments, 2, "the segment of the failure is not written to again")
	}
	f("write")
	f("sync")
}

func TestUnknownUntilTheDiskRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newMemFS(1)
		j := mustOpen(t, testConfig(), fs)
		add(t, j, []byte("one"))
		fs.SetFault(func(op, _ string) bool { return op == "sync" })
		began, open := make(chan struct{}), make(chan struct{})
		var once sync.Once
		fs.SetGate(func(string) { once.Do(func() { close(began); <-open }) })

		written, waiting := &durable.Entry{Data: []byte("written")}, &durable.Entry{Data: []byte("not written")}
		require.NoError(t, j.Enqueue(written))
		<-began
		require.NoError(t, j.Enqueue(waiting))
		close(open)
		require.ErrorIs(t, written.Wait(), durable.ErrUnknown)
		require.ErrorIs(t, waiting.Wait(), durable.ErrVoided, "it was not written")
		synctest.Wait()
		require.ErrorIs(t, j.Enqueue(&durable.Entry{}), ErrFailed)
		require.ErrorIs(t, j.Ready(""), ErrFailed)
		require.ErrorContains(t, j.Ready(""), crashfs.ErrFaulty.Error(), "Ready names the cause")
		require.Equal(t, [][]byte{[]byte("one")}, readAll(t, j), "durable frames can still be read")

		fs.SetFault(nil)
		time.Sleep(2 * maintenanceInterval)
		require.NoError(t, j.Ready(""))
		add(t, j, []byte("two"))
		require.Equal(t, [][]byte{[]byte("one"), []byte("two")}, readAll(t, j))
		require.NoError(t, j.Close())
	})
}

func TestCloseReturnsTheFailure(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs)
	fs.SetFault(func(op, _ string) bool { return op == "sync" || op == "syncdir" })
	e := &durable.Entry{Data: []byte("lost")}
	require.NoError(t, j.Enqueue(e))
	require.ErrorIs(t, e.Wait(), durable.ErrUnknown)
	require.ErrorIs(t, j.Close(), crashfs.ErrFaulty)
}

func TestEnqueueErrors(t *testing.T) {
	cfg := testConfig()
	cfg.MaxBytes = 64 << 20
	fs := newMemFS(1)
	j := mustOpen(t, cfg, fs)
	require.ErrorIs(t, j.Enqueue(&durable.Entry{Data: sized(cfg.MaxFrameBytes + 1)}), durable.ErrTooLarge)

	open := make(chan struct{})
	fs.SetGate(func(string) { <-open }) // the disk hangs; Enqueue must not
	var entries []*durable.Entry
	for range maxQueueEntries {
		e := &durable.Entry{Data: []byte("waits")}
		require.NoError(t, j.Enqueue(e))
		entries = append(entries, e)
	}
	require.ErrorIs(t, j.Enqueue(&durable.Entry{}), durable.ErrBusy, "what is being written counts too: its memory is not free")
	require.NoError(t, j.Ready(""), "a full queue is temporary")
	close(open)
	for i, e := range entries {
		require.NoError(t, e.Wait())
		require.EqualValues(t, i+1, e.Seq)
	}
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
	require.ErrorIs(t, j.Enqueue(&durable.Entry{}), durable.ErrClosed)
	require.ErrorIs(t, j.Ready(""), durable.ErrClosed)
}

func TestQueueBytes(t *testing.T) {
	cfg := testConfig()
	defer func(n int64) { maxQueueBytes = n }(maxQueueBytes)
	maxQueueBytes = int64(cfg.MaxFrameBytes)
	fs := newMemFS(1)
	j := mustOpen(t, cfg, fs)
	open := make(chan struct{})
	fs.SetGate(func(string) { <-open })
	e := &durable.Entry{Data: sized(cfg.MaxFrameBytes)}
	require.NoError(t, j.Enqueue(e))
	require.ErrorIs(t, j.Enqueue(&durable.Entry{Data: sized(1)}), durable.ErrBusy)
	close(open)
	require.NoError(t, e.Wait())
	require.EqualValues(t, 2, add(t, j, sized(1)))
	require.NoError(t, j.Close())
}

func TestCloseWritesTheQueue(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs)
	entries := make([]durable.Entry, 50)
	for i := range entries {
		entries[i].Data = payload(uint64(i), 2000)
		require.NoError(t, j.Enqueue(&entries[i]))
	}
	require.NoError(t, j.Close())
	for i := range entries {
		require.NoError(t, entries[i].Wait())
	}
	j = mustOpen(t, testConfig(), fs.crash(true))
	require.Len(t, readAll(t, j), len(entries))
}

func TestLastIsKept(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs, "a")
	seq, _, err := j.Last()
	require.NoError(t, err)
	require.Zero(t, seq)
	addSegments(t, j)
	newest := add(t, j, []byte("newest"))
	// A failure begins an empty segment: all frames are in older ones now.
	fs.FailOnce("sync")
	e := &durable.Entry{Data: []byte("never")}
	require.NoError(t, j.Enqueue(e))
	require.ErrorIs(t, e.Wait(), durable.ErrVoided)
	require.NoError(t, j.Cursor("a").Save(newest+1, nil))
	for range 2 {
		seq, frame, err := j.Last()
		require.NoError(t, err)
		require.Equal(t, newest, seq)
		require.Equal(t, "newest", string(frame))
		require.NoError(t, j.Close())
		j = mustOpen(t, testConfig(), fs, "a")
	}
	require.NoError(t, j.Close())
}

func TestManyProducersAndReaders(t *testing.T) {
	const producers, each = 8, 60
	cfg := testConfig()
	cfg.Dir = t.TempDir()
	cfg.MaxBytes = 2 * producers * each * blockBytes // nothing is delivered, and each frame may get its own commit
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	j := mustOpen(t, cfg, osFS{}, "a")
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			var e durable.Entry
			for i := range each {
				e.Data = append(e.Data[:0], payload(uint64(p*each+i), 8+i*20)...)
				if err := j.Enqueue(&e); err != nil {
					t.Errorf("cannot enqueue: %v", err)
					return
				}
				if err := e.Wait(); err != nil {
					t.Errorf("not durable: %v", err)
				}
			}
		})
	}
	var want [][]byte
	for range 2 {
		wg.Go(func() {
			r := j.Reader(1)
			var buf []byte
			for want := uint64(1); want <= producers*each; want++ {
				seq, frame, err := r.Next(ctx, buf)
				buf = frame
				if err != nil || seq != want || !bytes.Equal(frame, payload(idOf(frame), len(frame))) {
					t.Errorf("frame %d: got %d, %v", want, seq, err)
					return
				}
			}
		})
	}
	wg.Wait()
	want = readAll(t, j)
	require.Len(t, want, producers*each)
	require.NoError(t, j.Close())
}

func TestFrameLargerThanASegment(t *testing.T) {
	cfg := testConfig()
	cfg.MaxFrameBytes = 100 << 10
	fs := newMemFS(1)
	j := mustOpen(t, cfg, fs)
	want := [][]byte{payload(1, 100), payload(2, 100<<10), payload(3, 50<<10), payload(4, 100)}
	for _, frame := range want {
		add(t, j, frame)
	}
	require.Len(t, j.segments, 4)
	require.Equal(t, want, readAll(t, j))
	require.NoError(t, j.Close())
	j = mustOpen(t, testConfig(), fs.crash(true)) // a lower limit must not make frames unreadable
	require.Equal(t, want, readAll(t, j))
	require.NoError(t, j.Close())
}

// TestReserve checks that space is reserved only beyond the end of the newest segment, and
// released when the segment is sealed.
func TestReserve(t *testing.T) {
	cfg := testConfig()
	cfg.Dir = t.TempDir()
	cfg.SegmentBytes, cfg.MaxFrameBytes = 1<<20, 1000<<10
	cfg.MaxBytes = 8 << 20
	j := mustOpen(t, cfg, osFS{})
	add(t, j, sized(100<<10))
	require.GreaterOrEqual(t, diskBytes(t, j.segments[0].path), reservable(t, cfg.SegmentBytes))
	require.EqualValues(t, 104<<10+blockBytes, j.bytes)
	add(t, j, sized(1000<<10)) // does not fit into the first
	require.Len(t, j.segments, 2)
	in, err := Verify(cfg.Dir)
	require.NoError(t, err)
	require.NoError(t, in.Err())
	require.Less(t, diskBytes(t, j.segments[0].path), cfg.SegmentBytes/4)
	require.NoError(t, j.Close())
}

func diskBytes(t *testing.T, path string) int64 {
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	return st.Blocks * 512
}

// reservable returns the number of bytes that the file system of the temporary directory reserves
// for n bytes. Some file systems reserve nothing.
func reservable(t *testing.T, n int64) int64 {
	path := filepath.Join(t.TempDir(), "probe")
	f, err := osFS{}.Open(path, os.O_RDWR|os.O_CREATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	if f.Reserve(n) != nil {
		return 0
	}
	return diskBytes(t, path)
}

// TestSaveDuringClose is for the race detector: a Save may delete segments while Close runs.
func TestSaveDuringClose(t *testing.T) {
	for range 20 {
		j := mustOpen(t, testConfig(), newMemFS(1), "a")
		addSegments(t, j)
		var wg sync.WaitGroup
		wg.Go(func() { _ = j.Cursor("a").Save(20, nil) }) // done or ErrClosed
		require.NoError(t, j.Close())
		wg.Wait()
	}
}

func TestTornTailIsLogged(t *testing.T) {
	fs := threeCommits(t)
	fs.Put(firstSegment, append(fs.Bytes(firstSegment), "torn off"...))
	var log bytes.Buffer
	j, err := Open(wideConfig(), nil, WithFS(fs), WithLogger(zerolog.New(&log)))
	require.NoError(t, err)
	require.NoError(t, j.Close())
	require.Contains(t, log.String(), `"bytes":8`)
	require.Contains(t, log.String(), `"last":5`)
	require.Contains(t, log.String(), firstSegment)
}

func TestMetrics(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs, "a")
	n := j.counters
	frames, commits, voided, failed := testutil.ToFloat64(n.frames), testutil.ToFloat64(n.commits), testutil.ToFloat64(n.voided), testutil.ToFloat64(n.commitErrors)
	addTogether(t, j, fs, []byte("a"), []byte("b")) // and a first commit of one frame
	for range 9 {
		add(t, j, sized(4000))
	}
	require.EqualValues(t, 12, testutil.ToFloat64(n.frames)-frames)
	require.EqualValues(t, 11, testutil.ToFloat64(n.commits)-commits)
	gauges := func() (values []float64) {
		for _, c := range j.collectors {
			values = append(values, testutil.ToFloat64(c))
		}
		return values
	}
	c := testConfig()
	want := []float64{
		float64(segmentBytes(t, fs)), float64(c.MaxBytes), float64(len(j.segments)), 0, maxQueueEntries, 1 << 40, float64(c.MinFreeBytes),
	}
	require.Equal(t, want, gauges())
	require.NoError(t, j.Cursor("a").Save(12, nil))
	want[0], want[2] = float64(segmentBytes(t, fs)), float64(len(j.segments))
	require.Equal(t, want, gauges())

	other := testConfig()
	other.Dir = "other"
	second, err := Open(other, []string{"a"}, WithFS(newMemFS(2)), WithName("other"))
	require.NoError(t, err)
	add(t, second, sized(1))
	require.Equal(t, want, gauges(), "gauges of the first journal")
	require.EqualValues(t, 12, testutil.ToFloat64(n.frames)-frames, "counters of the first journal")
	require.NoError(t, second.Close())

	fs.FailOnce("sync")
	e := &durable.Entry{}
	require.NoError(t, j.Enqueue(e))
	require.ErrorIs(t, e.Wait(), durable.ErrVoided)
	require.EqualValues(t, 1, testutil.ToFloat64(n.voided)-voided)
	require.EqualValues(t, 1, testutil.ToFloat64(n.commitErrors)-failed)
	require.NoError(t, j.Close())
}

func TestConfigValidate(t *testing.T) {
	f := func(change func(*Config), want string) {
		t.Helper()
		c := DefaultConfig()
		c.Dir = "x"
		change(&c)
		err := c.Validate()
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
	}
	f(func(*Config) {}, "")
	f(func(c *Config) { c.Dir = "" }, "dir is empty")
	f(func(c *Config) { c.MaxFrameBytes = 0 }, "max_frame_bytes is 0")
	f(func(c *Config) { c.MaxFrameBytes = 1<<30 + 1 }, "max_frame_bytes is")
	f(func(c *Config) { c.MaxBytes = 2 * roomFor(c.MaxFrameBytes) }, "")
	f(func(c *Config) { c.MaxBytes = 2*roomFor(c.MaxFrameBytes) - 1 }, "max_bytes is")
	f(func(c *Config) { c.MinFreeBytes = -1 }, "min_free_bytes is -1")

	for max, want := range map[int64]int64{1 << 20: 16 << 10, 1 << 30: 8 << 20, 8 << 30: 64 << 20, 256 << 30: 64 << 20, 512 << 30: 128 << 20} {
		require.Equal(t, want, Config{MaxBytes: max}.segmentBytes())
	}

	_, err := Open(Config{}, nil, WithLogger(zerolog.Nop()))
	require.ErrorContains(t, err, "dir is empty")
}
