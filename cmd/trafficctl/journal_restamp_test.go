package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
)

// stampedFrames returns a journal with a frame for each received_at, in several segments.
func stampedFrames(t *testing.T, at ...time.Time) string {
	dir := newTestJournal(t, nil, "clickhouse", "kafka")
	j, err := journal.Open(journalConfig(dir), []string{"clickhouse", "kafka"})
	require.NoError(t, err)
	for i, b := range journalBatches(len(at), frameRows) {
		e := durable.Entry{Data: frameOf(i+1, b)}
		batch.StampFrame(e.Data, at[i].UnixNano())
		require.NoError(t, j.Enqueue(&e))
		require.NoError(t, e.Wait())
	}
	require.NoError(t, j.Close())
	return dir
}

// stamps returns the received_at of all frames, and the frames without it.
func stamps(t *testing.T, dir string) (at []time.Time, rest []string) {
	r := requireSuccess(t, "", "journal", "dump", dir, "--frames")
	for line := range strings.Lines(r.out) {
		var f dumpedFrame
		require.NoError(t, json.Unmarshal([]byte(line), &f))
		at = append(at, f.ReceivedAt)
		rest = append(rest, strings.ReplaceAll(line, f.ReceivedAt.Format(time.RFC3339Nano), ""))
	}
	return at, rest
}

// saveCursor saves the cursor of a consumer.
func saveCursor(t *testing.T, dir, consumer string, at pipeline.CursorStatus) {
	t.Helper()
	j, err := journal.Open(journalConfig(dir), []string{"clickhouse", "kafka"})
	require.NoError(t, err)
	require.NoError(t, j.Cursor(consumer).Save(at.Done.Frame, at.Encode()))
	require.NoError(t, j.Close())
}

func TestJournalRestamp(t *testing.T) {
	now := time.Now()
	year := now.Add(365 * 24 * time.Hour)
	dir := stampedFrames(t, now.Add(-time.Hour), now.Add(-time.Minute), year, year.Add(time.Second), year.Add(3*time.Second))
	before, rest := stamps(t, dir)
	saveCursor(t, dir, "kafka", pipeline.CursorStatus{Done: batch.Position{Frame: 2}, Plan: []byte{1}, End: batch.Position{Frame: 5, Row: 2}})
	saveCursor(t, dir, "clickhouse", pipeline.CursorStatus{Done: batch.Position{Frame: 4, Row: 7}})
	cursors := requireSuccess(t, "", "journal", "cursors", dir).out

	r := requireSuccess(t, "", "journal", "restamp", dir)
	require.Contains(t, r.out, "restamped frames 3 to 5: received_at is now ")
	require.Contains(t, r.out, "clickhouse has the measurements before frame 4, row 7 with their old received_at")
	require.NotContains(t, r.out, "kafka")
	after, same := stamps(t, dir)
	require.Equal(t, rest, same, "nothing else has changed")
	require.Equal(t, before[:2], after[:2])
	for i := 1; i < len(after); i++ {
		require.True(t, after[i].After(after[i-1]), "%v", after)
	}
	require.Equal(t, before[4].Sub(before[3]), after[4].Sub(after[3]))
	require.False(t, after[4].After(time.Now()))
	requireSuccess(t, "", "journal", "verify", dir)
	require.Equal(t, len(lines(cursors)), len(lines(requireSuccess(t, "", "journal", "cursors", dir).out)))

	r = requireSuccess(t, "", "journal", "restamp", dir)
	require.Contains(t, r.out, "no frame in "+dir+" is ahead of the clock")
	again, _ := stamps(t, dir)
	require.Equal(t, after, again)
}

// TestJournalRestampKeepsBlocksInFlight checks that nothing is changed while ClickHouse may have
// rows of a block that it recognises by received_at, while a daemon runs, and if the journal is
// damaged.
func TestJournalRestampKeepsBlocksInFlight(t *testing.T) {
	f := func(want string, prepare func(dir string)) {
		t.Helper()
		dir := stampedFrames(t, time.Now(), time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))
		prepare(dir)
		before := contents(t, dir)
		requireFailure(t, "", want, "journal", "restamp", dir)
		require.Equal(t, before, contents(t, dir))
	}
	const inFlight = "wait until the block is delivered"
	start, end := batch.Position{Frame: 1}, batch.Position{Frame: 3, Row: 1}
	f(inFlight, func(dir string) {
		saveCursor(t, dir, "clickhouse", pipeline.CursorStatus{Done: start, Plan: []byte("token"), End: end})
	})
	f(inFlight, func(dir string) { // rows that may be in the table, although their block was rejected
		saveCursor(t, dir, "clickhouse", pipeline.CursorStatus{Done: start, State: []byte("/suspect-before/3.1")})
	})
	f("trafficctl journal verify", func(dir string) { changeFile(t, segmentPaths(t, dir)[0], flip(4096+24+200)) })
	f("is locked", func(dir string) {
		j, err := journal.Open(journalConfig(dir), nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, j.Close()) })
	})
	requireFailure(t, "", "contains no journal", "journal", "restamp", t.TempDir())
	if os.Geteuid() == 0 {
		f("run the command as the daemon's user", func(dir string) { require.NoError(t, os.Chown(segmentPaths(t, dir)[0], 12345, -1)) })
	}
}
