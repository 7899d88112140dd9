package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
)

// frameRows is the number of rows of a test frame: two such frames fill a segment.
const frameRows = 300

// fiveFrames returns a journal of five undelivered frames in three segments.
func fiveFrames(t *testing.T) string {
	return newTestJournal(t, journalBatches(5, frameRows), "clickhouse", "kafka")
}

// lines returns the lines of a text, with runs of white space replaced by one space.
func lines(text string) (all []string) {
	for line := range strings.Lines(text) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}

func TestJournalList(t *testing.T) {
	r := requireSuccess(t, "", "journal", "ls", fiveFrames(t))
	require.Equal(t, []string{
		"segment state first last frames bytes",
		"00000000000000000001.seg sealed 1 2 2 20,480",
		"00000000000000000003.seg sealed 3 4 2 20,480",
		"00000000000000000005.seg active 5 5 1 12,288",
		"3 segments 5 53,248",
	}, lines(r.out))

	r = requireSuccess(t, "", "journal", "ls", newTestJournal(t, nil, "kafka"))
	require.Contains(t, lines(r.out), "00000000000000000001.seg active - - 0 4,096")
}

func TestJournalListShowsDamage(t *testing.T) {
	dir := fiveFrames(t)
	changeFile(t, segmentPaths(t, dir)[1], flip(4096))
	r := requireFailure(t, "", "trafficctl journal verify "+dir, "journal", "ls", dir)
	require.Contains(t, lines(r.out), "00000000000000000003.seg damaged - - 0 20,480")
	require.Contains(t, r.out, "is corrupt at offset 4096, where frame 3 should be")

	config := file(t, "trafficd.yaml", "journal: {dir: "+dir+"}")
	r = runWith(t, "", "journal", "ls", "--config", config)
	require.Contains(t, r.err, "trafficctl journal verify "+dir)
	r = runWith(t, "", "journal", "verify", "--config", config)
	require.Contains(t, r.out, "mkdir "+dir+"/damaged")
}

// TestJournalWrongDirectory checks that all subcommands report the same error for a directory that
// is not a journal.
func TestJournalWrongDirectory(t *testing.T) {
	f := func(dir, want string) {
		t.Helper()
		for _, sub := range []string{"ls", "verify", "dump", "cursors"} {
			r := requireFailure(t, "", want, "journal", sub, dir)
			require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
		}
	}
	f(filepath.Join(t.TempDir(), "nowhere"), "no such file or directory; specify the daemon's journal.dir")
	f(t.TempDir(), "contains no journal")
	f(file(t, "x", ""), "not a directory; specify the daemon's journal.dir")
	other := filepath.Dir(file(t, "notes.seg", "text"))
	f(other, "contains no journal: it has no segment (20 digits and .seg) and no cursor (.cursor)")
}

// TestJournalAdoptWithoutStores checks that adopt delivers to the default stores, on this machine,
// only if a configuration file says so.
func TestJournalAdoptWithoutStores(t *testing.T) {
	const want = "the stores are not set; add --config"
	dir := t.TempDir()
	f := func(want string, flags ...string) {
		t.Helper()
		requireFailure(t, "", want, append([]string{"journal", "adopt", dir}, flags...)...)
	}
	f(want)
	f(want, "--set", "clickhouse.addresses=ch:9000")
	f(want, "--set", "kafka.brokers=k:9092")
	const noJournal = "contains no journal"
	f(noJournal, "--set", "kafka.brokers=k:9092", "--set", "clickhouse.addresses=ch:9000")
	f(noJournal, "--set", "kafka.brokers=k:9092", "--set", "clickhouse.enabled=false")
	f(noJournal, "--config", file(t, "trafficd.yaml", "log: {level: info}"))
}

// TestJournalSetWithDirectory checks that --set is an error with DIR, where no settings are loaded.
func TestJournalSetWithDirectory(t *testing.T) {
	dir := fiveFrames(t)
	for _, command := range []string{"ls", "verify", "dump", "cursors"} {
		requireFailure(t, "", "--set needs --config or --brokers", "journal", command, dir, "--set", "no.such=setting")
	}
}

func TestJournalVerify(t *testing.T) {
	dir := fiveFrames(t)
	r := requireSuccess(t, "", "journal", "verify", dir)
	require.Empty(t, r.err)
	require.Equal(t, []string{
		"00000000000000000001.seg intact, frames 1 to 2",
		"00000000000000000003.seg intact, frames 3 to 4",
		"00000000000000000005.seg intact, frames 5 to 5",
		"clickhouse.cursor intact, at frame 1",
		"kafka.cursor intact, at frame 1",
		"no damage found",
	}, lines(r.out))

	changeFile(t, segmentPaths(t, dir)[2], func(b []byte) []byte { return append(b, "half a frame"...) })
	r = requireSuccess(t, "", "journal", "verify", dir)
	require.Contains(t, r.out, "torn tail of 12 bytes")
}

// TestJournalVerifyReportsDamage checks that verify reports what is damaged, which frames are
// lost, and what to do.
func TestJournalVerifyReportsDamage(t *testing.T) {
	f := func(damage func(dir string, s []string), want ...string) {
		t.Helper()
		dir := fiveFrames(t)
		damage(dir, segmentPaths(t, dir))
		before := contents(t, dir)
		r := requireFailure(t, "", "the journal ", "journal", "verify", dir)
		for _, text := range want {
			require.Contains(t, r.out+r.err, strings.ReplaceAll(text, "DIR", dir))
		}
		require.Equal(t, before, contents(t, dir), "nothing is changed")
	}
	change := func(i int, with func([]byte) []byte) func(string, []string) {
		return func(_ string, s []string) { changeFile(t, s[i], with) }
	}
	const header, payload = 4096, 4096 + 24 + 50
	f(change(1, flip(payload)),
		"00000000000000000003.seg  DAMAGED\n    at offset 4,096, frame 3: the frame was acknowledged but is invalid: frame 4",
		"lost: frame 3, received after 2026-07-01T06:00:02.000Z, received before 2026-07-01T06:00:04.000Z",
		"not yet delivered to: clickhouse, kafka",
		"trafficctl journal dump DIR --skip-damaged --from 1 > rescued.ndjson",
		"mv DIR/*.seg DIR/*.cursor DIR/damaged/",
		"If they belong to several, save each one to a file of its own with --product-instance",
		"ask the integrators to resend",
		"the journal is damaged")
	f(change(1, flip(header)), "lost: frames 3 to 4, received after 2026-07-01T06:00:02.000Z, received before 2026-07-01T06:00:05.000Z")
	f(change(0, flip(20)), "at offset 0: its header has a wrong checksum", "lost: frames 1 to 2, received before")
	f(func(_ string, s []string) { require.NoError(t, os.Remove(s[1])) },
		"the previous segment should be 00000000000000000003.seg", "lost: frames 3 to 4")
	f(func(dir string, _ []string) { // both slots
		changeFile(t, filepath.Join(dir, "kafka.cursor"), func(b []byte) []byte { clear(b); return b })
	}, "kafka.cursor  DAMAGED\n    at offset 0: neither slot is valid", "Move the damaged cursor files away")
	f(change(1, func(b []byte) []byte { b[8] = 9; return b }),
		"has format version 9", "was written by a different version of trafficd")
}

// TestJournalVerifyFindsMissingFrames checks that verify finds frames that are missing according
// to the cursors.
func TestJournalVerifyFindsMissingFrames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(journalConfig(dir), []string{"clickhouse", "kafka"})
	require.NoError(t, err)
	addBatches(t, j, 1, journalBatches(5, frameRows))
	require.NoError(t, j.Cursor("kafka").Save(6, nil))
	require.NoError(t, j.Close())
	require.NoError(t, os.Remove(segmentPaths(t, dir)[2]))
	r := requireFailure(t, "", "the journal is damaged", "journal", "verify", dir)
	require.Contains(t, r.out, "lost: frame 5\n      not yet delivered to: clickhouse\n")
	r = requireFailure(t, "", "the journal or a cursor is damaged", "journal", "cursors", dir)
	require.Contains(t, r.out, "kafka: 1 frame missing that it has already consumed")
}

// TestJournalVerifyDeliveredFrames checks that damage to frames that every store has received is
// reported as harmless, and that no frame is sent again only because the idempotency store lacks
// it.
func TestJournalVerifyDeliveredFrames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(journalConfig(dir), []string{"kafka", pipeline.IdempotencyConsumer})
	require.NoError(t, err)
	addBatches(t, j, 1, journalBatches(2, frameRows))
	require.NoError(t, j.Cursor("kafka").Save(2, nil))
	require.NoError(t, j.Close())
	changeFile(t, segmentPaths(t, dir)[0], flip(5000))
	r := requireFailure(t, "", "the journal is damaged", "journal", "verify", dir)
	require.Contains(t, r.out, "not yet delivered to: idempotency")
	require.Contains(t, r.out, "No measurement is lost. If the daemon is running and delivering, leave it running")
	require.Contains(t, r.out, "journal dump "+dir+" --skip-damaged --from 2", "frame 2 is intact and not delivered")
	require.NotContains(t, r.out, "ask the integrators")
}

func TestJournalVerifyWithoutCursors(t *testing.T) {
	dir := newTestJournal(t, journalBatches(3, frameRows))
	changeFile(t, segmentPaths(t, dir)[0], flip(5000))
	r := requireFailure(t, "", "the journal is damaged", "journal", "verify", dir)
	require.Contains(t, r.out, "no cursor shows whether they were delivered")
	require.Contains(t, r.out, "ask the integrators")
	require.Contains(t, r.out, "--skip-damaged > rescued.ndjson")
}

// TestJournalAdvice checks that following the advice of verify repairs a journal with which the
// daemon does not start.
func TestJournalAdvice(t *testing.T) {
	dir := newTestJournal(t, journalBatches(4, frameRows), "kafka")
	changeFile(t, segmentPaths(t, dir)[1], flip(5000)) // frame 3
	_, err := journal.Open(journalConfig(dir), []string{"kafka"})
	require.Error(t, err)
	require.Contains(t, runWith(t, "", "journal", "verify", dir).out, "lost: frame 3")

	rescued := file(t, "rescued.ndjson", runWith(t, "", "journal", "dump", dir, "--skip-damaged", "--from", "1").out)
	damaged := filepath.Join(dir, "damaged")
	require.NoError(t, os.Mkdir(damaged, 0o750))
	for _, pattern := range []string{"*.seg", "*.cursor"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			require.NoError(t, os.Rename(path, filepath.Join(damaged, filepath.Base(path))))
		}
	}
	j, err := journal.Open(journalConfig(dir), []string{"kafka"})
	require.NoError(t, err)
	require.NoError(t, j.Close())
	d := newDaemon(t)
	requireSuccess(t, "", to(d, "resubmit", rescued)...)
	require.Len(t, d.Items(), 3*frameRows)
}

// TestJournalInterrupted checks that an interrupt ends the commands while they read.
func TestJournalInterrupted(t *testing.T) {
	for _, command := range []string{"ls", "verify", "cursors"} {
		dir := t.TempDir()
		segment := filepath.Join(dir, "00000000000000000001.seg")
		require.NoError(t, syscall.Mkfifo(segment, 0o600)) // blocks whoever opens it
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, interrupt)
		var errs bytes.Buffer
		require.Equal(t, exitFailed, run(ctx, []string{"journal", command, dir}, streams{err: &errs, out: io.Discard}))
		require.Contains(t, errs.String(), "interrupted")
		_, err := syscall.Open(segment, syscall.O_RDWR, 0) // ends the abandoned call, which may open it again later
		require.NoError(t, err)
	}
}

// TestJournalDumpThenResubmit checks that resubmit accepts a dump and sends the same measurements.
func TestJournalDumpThenResubmit(t *testing.T) {
	batches := journalBatches(3, 4)
	batches[1].Instance, batches[1].Codes[0] = "south", `A "b"\ü`
	dir := newTestJournal(t, batches)
	r := requireSuccess(t, "", "journal", "dump", dir)
	require.Contains(t, r.err, "wrote 12 measurements from 3 frames")
	all := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Len(t, all, 12)
	require.Equal(t, `{"item":{"detectorCode":"A \"b\"\\ü","measureTypeCode":"speed","timestampFrom":"2026-07-01T06:00:00Z","timestampTo":"2026-07-01T06:05:00Z","value":0.5},`+
		`"index":0,"batchId":"`+batchID(2).String()+`","receivedAt":"2026-07-01T06:00:02Z","productInstance":"south"}`, all[4])

	d := newDaemon(t)
	requireSuccess(t, "", to(d, "resubmit", file(t, "dump.ndjson", r.out))...)
	var want []string
	for _, line := range all {
		var l struct{ Item json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		want = append(want, string(l.Item))
	}
	require.ElementsMatch(t, want, texts(d))
}

func TestJournalDumpFilters(t *testing.T) {
	batches := journalBatches(5, 3)
	batches[3].Instance, batches[3].Codes[2] = "south", "D1.1"
	dir := newTestJournal(t, batches)
	f := func(want string, flags ...string) {
		t.Helper()
		r := requireSuccess(t, "", append([]string{"journal", "dump", dir}, flags...)...)
		var got []string
		for line := range strings.Lines(r.out) {
			var l struct {
				Item  struct{ DetectorCode string }
				Index int
			}
			require.NoError(t, json.Unmarshal([]byte(line), &l))
			got = append(got, fmt.Sprintf("%s/%d", l.Item.DetectorCode, l.Index))
		}
		require.Equal(t, want, strings.Join(got, " "))
	}
	f("D5.0/0 D5.1/1 D5.2/2", "--from", "5")
	f("D1.0/0 D1.1/1 D1.2/2", "--to", "1")
	f("D2.0/0 D2.1/1 D2.2/2", "--from", "2", "--to", "2")
	f("D1.1/1 D1.1/2", "--detector", "D1.1")
	f("D1.1/2", "--detector", "D1.1", "--from", "2")
	f("D3.0/0 D3.1/1 D3.2/2", "--batch", batchID(3).String())
	f("D4.0/0 D4.1/1 D1.1/2", "--product-instance", "south")
	f("", "--batch", batchID(3).String(), "--detector", "D1.1")

	bad := func(want string, flags ...string) {
		t.Helper()
		requireFailure(t, "", want, append([]string{"journal", "dump", dir}, flags...)...)
	}
	bad("--to 2 must not be less than --from 3", "--from", "3", "--to", "2")
	bad("must be a Batch-Id", "--batch", "17")
}

func TestJournalDumpFrames(t *testing.T) {
	batches := journalBatches(3, 3)
	batches[1].Key, batches[1].Rejected = "again", 2
	dir := newTestJournal(t, batches)
	r := requireSuccess(t, "", "journal", "dump", dir, "--frames")
	want := ""
	for i, members := range []string{`"rows":3,"rejected":0,"idempotencyKey":false`, `"rows":3,"rejected":2,"idempotencyKey":true`, `"rows":3,"rejected":0,"idempotencyKey":false`} {
		want += fmt.Sprintf(`{"seq":%d,"batchId":"%s","receivedAt":"2026-07-01T06:00:0%dZ","productInstance":"north",%s,"bytes":%d}`+"\n",
			i+1, batchID(i+1), i+1, members, len(frameOf(i+1, batches[i])))
	}
	require.Equal(t, want, r.out)
	r = runWith(t, "", "journal", "dump", dir, "--frames", "--detector", "D2.1")
	require.Equal(t, 1, strings.Count(r.out, "\n"))
	require.Contains(t, r.out, `"seq":2`)
}

// TestJournalDumpReportsDamage checks that a dump stops at damage unless --skip-damaged is set.
func TestJournalDumpReportsDamage(t *testing.T) {
	dir := fiveFrames(t)
	changeFile(t, segmentPaths(t, dir)[1], flip(5000))
	r := requireFailure(t, "", "cannot read frame 3: ", "journal", "dump", dir, "--frames")
	require.Equal(t, 2, strings.Count(r.out, "\n"))
	require.Contains(t, r.err, "--skip-damaged continues")
	r = requireFailure(t, "", "skipped 1 gap of unreadable frames", "journal", "dump", dir, "--frames", "--skip-damaged")
	require.Equal(t, 4, strings.Count(r.out, "\n"))
	require.Zero(t, runWith(t, "", "journal", "dump", dir, "--to", "2").code, "it ends before the damage")
}

// TestJournalDumpOfAnotherFrameVersion checks that a frame written by another version of the
// daemon is not reported as damage.
func TestJournalDumpOfAnotherFrameVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(journalConfig(dir), nil)
	require.NoError(t, err)
	e := durable.Entry{Data: []byte{9, 1, 2, 3}}
	require.NoError(t, j.Enqueue(&e))
	require.NoError(t, e.Wait())
	require.NoError(t, j.Close())
	r := requireFailure(t, "", "version 9, but this program reads ", "journal", "dump", dir)
	require.Contains(t, r.err, "check that trafficctl and the daemon have the same version")
}

// stuckSink is a sink that accepts some blocks and then hangs, so that the next one stays in
// flight.
type stuckSink struct {
	accepts int
	waiting chan struct{}
}

func (s *stuckSink) Plan(_ context.Context, _ []byte, rows batch.Block) (int, []byte, error) {
	return min(2, rows.Rows()), []byte("two rows"), nil
}

func (s *stuckSink) Probe(context.Context) error { return nil }

func (s *stuckSink) Deliver(ctx context.Context, _ []byte, _ batch.Block) ([]byte, error) {
	if s.accepts--; s.accepts >= 0 {
		return []byte("state"), nil
	}
	close(s.waiting)
	<-ctx.Done()
	return nil, ctx.Err()
}

func (*stuckSink) Close() error { return nil }

// deliver lets a sink accept a number of blocks of two rows, and stops it during the next one.
func deliver(t *testing.T, j *journal.Journal, name string, blocks int) {
	t.Helper()
	cfg := pipeline.DeliveryConfig{MaxRows: 2, MinRows: 1, RetryMin: time.Millisecond, RetryMax: time.Millisecond}
	sink := &stuckSink{accepts: blocks, waiting: make(chan struct{})}
	dead := pipeline.NewDeadLetters(filepath.Join(t.TempDir(), "dead"))
	d, err := pipeline.NewDelivery(name, cfg, pipeline.Local(j, name), sink, dead, zerolog.Nop())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, ctx) }()
	<-sink.waiting
	stop()
	require.NoError(t, <-done)
}

func TestJournalCursors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(journalConfig(dir), []string{pipeline.IdempotencyConsumer, "clickhouse", "kafka"})
	require.NoError(t, err)
	addBatches(t, j, 1, journalBatches(4, 3))
	require.NoError(t, j.Cursor(pipeline.IdempotencyConsumer).Save(4, nil))
	deliver(t, j, "clickhouse", 2) // rows 1 to 4 are delivered; 5 and 6, the last two of frame 2, are in flight
	deliver(t, j, "kafka", 0)
	require.NoError(t, j.Close())

	r := requireSuccess(t, "", "journal", "cursors", dir)
	require.Equal(t, []string{
		"consumer next frames behind rows behind oldest received block in flight",
		"clickhouse frame 2, row 1 3 8 2026-07-01T06:00:02.000Z 2 rows, before frame 3",
		"idempotency frame 4 1 - 2026-07-01T06:00:04.000Z -",
		"kafka frame 1 4 12 2026-07-01T06:00:01.000Z 2 rows, before frame 1, row 2",
		"clickhouse: the token of the block in flight is two rows",
		"kafka: the token of the block in flight is two rows",
	}, lines(r.out))

	changeFile(t, segmentPaths(t, dir)[0], flip(4096+24+50)) // frame 1
	r = requireFailure(t, "", "the journal or a cursor is damaged", "journal", "cursors", dir)
	require.Contains(t, r.out, "not counted: cannot read frame 1")
	require.Contains(t, lines(r.out), "kafka frame 1 3 9 2026-07-01T06:00:02.000Z 0 rows, before frame 1, row 2")
}

func TestJournalCursorOfAnotherVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(journalConfig(dir), []string{"kafka"})
	require.NoError(t, err)
	require.NoError(t, j.Cursor("kafka").Save(1, []byte{9}))
	require.NoError(t, j.Close())
	r := requireFailure(t, "", "the journal or a cursor is damaged", "journal", "cursors", dir)
	require.Contains(t, r.out, "kafka: cannot read the cursor at frame 1: ")
}

// TestJournalOfIdempotencyStore tests the journal of the idempotency store, which has frames
// without rows.
func TestJournalOfIdempotencyStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "idempotency")
	j, err := journal.Open(journalConfig(dir), []string{"window"})
	require.NoError(t, err)
	e := durable.Entry{Data: batch.FrameWithoutRows(frameOf(1, journalBatch{Instance: "north", Codes: []string{"D"}, Key: "k", Rejected: 3}))}
	require.NoError(t, j.Enqueue(&e))
	require.NoError(t, e.Wait())
	require.NoError(t, j.Close())
	require.Contains(t, lines(runWith(t, "", "journal", "ls", dir).out), "00000000000000000001.seg active 1 1 1 8,192")
	require.Contains(t, runWith(t, "", "journal", "verify", dir).out, "no damage found")
	require.Contains(t, runWith(t, "", "journal", "dump", dir, "--frames").out, `"rows":0,"rejected":3,"idempotencyKey":true`)
}

// TestJournalOfRunningDaemon checks that while a daemon writes, delivers and deletes, ls and
// cursors find an undamaged journal and do not disturb the daemon, and verify and dump do not
// begin.
func TestJournalOfRunningDaemon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(journalConfig(dir), []string{"clickhouse", "kafka"})
	require.NoError(t, err)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() { // the daemon; stops when quit is closed
		defer close(done)
		for n := 1; ; n++ {
			select {
			case <-quit:
				return
			default:
			}
			e := durable.Entry{Data: frameOf(n, journalBatches(1, 1+n%frameRows)[0])}
			if j.Enqueue(&e) != nil || e.Wait() != nil || j.Cursor("clickhouse").Save(uint64(n), nil) != nil || j.Cursor("kafka").Save(uint64(n+1), nil) != nil {
				t.Error("the daemon was disturbed")
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(quit)
		<-done
		require.NoError(t, j.Close())
	})
	for range 40 {
		requireSuccess(t, "", "journal", "ls", dir)
		requireSuccess(t, "", "journal", "cursors", dir)
	}
	for _, command := range []string{"verify", "dump"} {
		r := requireFailure(t, "", dir+": a daemon is using it; stop the daemon or copy the directory", "journal", command, dir)
		require.Empty(t, r.out)
	}
}

// TestJournalLocked checks that no daemon starts on a journal that is being read.
func TestJournalLocked(t *testing.T) {
	dir := fiveFrames(t)
	directory, err := inspect.Open(dir)
	require.NoError(t, err)
	_, err = journal.Open(journalConfig(dir), []string{"kafka"})
	require.ErrorIs(t, err, journal.ErrLocked)
	directory.Close()
	j, err := journal.Open(journalConfig(dir), []string{"kafka"})
	require.NoError(t, err)
	require.NoError(t, j.Close())
}

// contents returns the content of all files in a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all[e.Name()] = textOf(t, filepath.Join(dir, e.Name()))
	}
	return all
}

func TestByteProgressLines(t *testing.T) {
	var w strings.Builder
	p, add := newByteProgress(&w, "verified", 10e6, false)
	p.lastLine = time.Now().Add(-time.Minute)
	add(5e6)
	add(1) // too soon for another line
	p.end()
	require.Equal(t, "trafficctl: verified 5.0 of 10.0 MB (50%)\n", w.String())
}
