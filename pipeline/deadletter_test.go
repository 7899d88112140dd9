package pipeline

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

// letterLines returns the lines of a dead-letter file.
func letterLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func TestDeadLetterHoldsTheWholeMeasurement(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	good := strings.TrimSuffix(item("B", -2.5), "}") + `,"quality":0.75}`
	s, err := h.submit(measurements(item("A", 1), item("unknown", 0), good), "")
	require.NoError(t, err)
	kept := h.frames()[0]
	path := filepath.Join(h.dir, "dead.ndjson")
	rows := batch.Block{{Batch: &kept, Frame: 1, To: kept.Rows()}}
	require.NoError(t, NewDeadLetters(path).Add("sink", batch.RejectedRows{Rows: rows, Reason: errors.New("no\nroom")}))

	lines := letterLines(t, path)
	require.Len(t, lines, 2)
	var l DeadLetter
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &l))
	require.Nil(t, l.Item.Quality)
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &l))
	require.WithinDuration(t, time.Now(), l.At, time.Hour)
	quality := 0.75
	want := DeadLetter{
		Sink: "sink", Reason: "no\nroom", At: l.At, ProductInstance: "city", BatchID: s.Result.ID.String(), Index: 2,
		ReceivedAt: time.Unix(0, kept.ReceivedAt).UTC(),
	}
	want.Item.DetectorCode, want.Item.MeasureTypeCode, want.Item.Value, want.Item.Quality = "B", "speed", -2.5, &quality
	want.Item.TimestampFrom, want.Item.TimestampTo = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 5, 0, 0, time.UTC)
	require.Equal(t, want, l)
}

// TestLongReason checks that the length of a dead letter does not depend on that of the store's
// error.
func TestLongReason(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	_, err := h.submit(measurements(item("A", 1)), "")
	require.NoError(t, err)
	kept := h.frames()[0]
	path := filepath.Join(h.dir, "dead.ndjson")
	reason := errors.New(strings.Repeat("é", 1<<20))
	require.NoError(t, NewDeadLetters(path).Add("sink", batch.RejectedRows{Rows: batch.Block{{Batch: &kept, Frame: 1, To: 1}}, Reason: reason}))
	lines := letterLines(t, path)
	require.Less(t, len(lines[0]), maxReason+1000)
	var l DeadLetter
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &l))
	require.Equal(t, strings.Repeat("é", maxReason/2)+"…", l.Reason)
}

// TestDeadLettersAfterTornLine checks that after a crash has truncated the last line, the next
// one starts on a new line.
func TestDeadLettersAfterTornLine(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	_, err := h.submit(measurements(item("A", 1)), "")
	require.NoError(t, err)
	kept := h.frames()[0]
	path := filepath.Join(h.dir, "dead.ndjson")
	require.NoError(t, os.WriteFile(path, []byte(`{"sink":"si`), 0o600))
	d := NewDeadLetters(path)
	for range 2 {
		require.NoError(t, d.Add("sink", batch.RejectedRows{Rows: batch.Block{{Batch: &kept, Frame: 1, To: 1}}, Reason: errors.New("no")}))
	}
	lines := letterLines(t, path)
	require.Len(t, lines, 3)
	require.Equal(t, `{"sink":"si`, lines[0])
	for _, line := range lines[1:] {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

func TestUnwritableDeadLetters(t *testing.T) {
	dir := t.TempDir()
	f := func(path, want string) {
		t.Helper()
		d := NewDeadLetters(path)
		for _, err := range []error{d.Check(), d.Add("sink", batch.RejectedRows{Rows: batch.Block{}, Reason: errors.New("no")})} {
			require.ErrorContains(t, err, "cannot write the dead-letter file")
			require.ErrorContains(t, err, want)
		}
	}
	f(filepath.Join(dir, "none", "dead.ndjson"), filepath.Join(dir, "none"))
	f(dir, "is a directory")

	d := NewDeadLetters(filepath.Join(dir, "dead.ndjson"))
	require.NoError(t, d.Check())
	require.NoFileExists(t, d.path, "the disk may be full")
	require.NoError(t, d.Add("sink", batch.RejectedRows{Rows: batch.Block{}, Reason: errors.New("no")}))
	require.NoError(t, d.Check())
}

// TestDeadLetterRows checks that the number of rows is that of the present file: also after a
// restart, and after operators have moved the file away, replaced or truncated it.
func TestDeadLetterRows(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	_, err := h.submit(measurements(item("A", 1), item("B", 1)), "")
	require.NoError(t, err)
	kept := h.frames()[0]
	path := filepath.Join(h.dir, "dead.ndjson")
	d := NewDeadLetters(path)
	add := func(sink string, rows int) {
		require.NoError(t, d.Add(sink, batch.RejectedRows{Rows: batch.Block{{Batch: &kept, Frame: 1, To: rows}}, Reason: errors.New("no")}))
	}
	require.Zero(t, rowsOf(d, "clickhouse"))
	add("clickhouse", 2)
	require.Equal(t, 2, rowsOf(d, "clickhouse"))
	add("kafka", 1)
	add("clickhouse", 1)
	for range 2 {
		require.Equal(t, 3, rowsOf(d, "clickhouse"))
		require.Equal(t, 1, rowsOf(d, "kafka"))
		d = NewDeadLetters(path) // a restart
	}

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(text, `{"sink":"kaf`...), 0o600)) // a crash
	require.Equal(t, 1, rowsOf(d, "kafka"))
	add("kafka", 1)
	require.Equal(t, 2, rowsOf(d, "kafka"))

	require.NoError(t, os.Rename(path, path+".resent"))
	require.Zero(t, rowsOf(d, "clickhouse"))
	add("clickhouse", 1)
	require.Equal(t, 1, rowsOf(d, "clickhouse"))
	require.NoError(t, os.Rename(path+".resent", path))
	require.Equal(t, 3, rowsOf(d, "clickhouse"))
	require.NoError(t, os.Truncate(path, 0))
	require.Zero(t, rowsOf(d, "clickhouse"))
}

func rowsOf(d *DeadLetters, sink string) int {
	rows, _ := d.Count(sink)
	return rows
}
