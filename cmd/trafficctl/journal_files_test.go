package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
	"trafficd/schemas/contract"
)

// journalStart is the time at which batch 0 would be received.
var journalStart = time.Date(2026, 7, 1, 6, 0, 0, 0, time.UTC)

// journalBatch describes one frame.
type journalBatch struct {
	Instance string
	Codes    []string // a row for each
	Key      string   // Idempotency-Key
	Rejected int
}

// journalBatches returns n batches of rows rows: row 3 of batch 7 has the detector D7.3.
func journalBatches(n, rows int) []journalBatch {
	var all []journalBatch
	for i := range n {
		b := journalBatch{Instance: "north"}
		for row := range rows {
			b.Codes = append(b.Codes, fmt.Sprintf("D%d.%d", i+1, row))
		}
		all = append(all, b)
	}
	return all
}

// batchID returns the Batch-Id of the n-th batch, from 1.
func batchID(n int) batch.ID {
	return batch.ID{0x01, 0x98, 0xf3, 0xa2, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, byte(n >> 8), byte(n)}
}

// receivedAt returns the time at which the n-th batch was received.
func receivedAt(n int) time.Time { return journalStart.Add(time.Duration(n) * time.Second) }

// journalConfig returns the configuration of a journal whose segments hold two frames of 300 rows.
func journalConfig(dir string) journal.Config {
	c := journal.DefaultConfig()
	c.Dir, c.SegmentBytes, c.MaxBytes, c.MaxFrameBytes, c.MinFreeBytes = dir, 20<<10, 32<<20, 1<<20, 0
	return c
}

// newTestJournal writes a journal to a new directory, with a cursor for each consumer, and closes
// it.
func newTestJournal(t testing.TB, batches []journalBatch, consumers ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(journalConfig(dir), consumers)
	require.NoError(t, err)
	addBatches(t, j, 1, batches)
	require.NoError(t, j.Close())
	return dir
}

// addBatches appends batches, numbered from first, with one commit each.
func addBatches(t testing.TB, j *journal.Journal, first int, batches []journalBatch) {
	t.Helper()
	for i, b := range batches {
		e := durable.Entry{Data: frameOf(first+i, b)}
		require.NoError(t, j.Enqueue(&e))
		require.NoError(t, e.Wait())
	}
}

// frameOf returns the frame of the n-th batch.
func frameOf(n int, of journalBatch) []byte {
	b := batch.Batch{ID: batchID(n), ProductInstance: of.Instance, ReceivedAt: receivedAt(n).UnixNano()}
	b.TypeText, b.TypeEnd = []byte("speed"), []uint32{5}
	for row, code := range of.Codes {
		b.Codes = append(b.Codes, code...)
		b.CodeEnd = append(b.CodeEnd, uint32(len(b.Codes)))
		b.Type = append(b.Type, 0)
		b.From = append(b.From, journalStart.UnixNano())
		b.To = append(b.To, journalStart.Add(5*time.Minute).UnixNano())
		b.Value = append(b.Value, float64(row)+0.5)
		b.Quality = append(b.Quality, math.NaN())
		b.Index = append(b.Index, uint32(row))
	}
	a := batch.Response{Key: of.Key, Items: len(of.Codes) + of.Rejected}
	for i := range of.Rejected {
		a.Add(len(of.Codes)+i, contract.UnknownDetector, contract.FieldDetectorCode, []byte("X"))
	}
	return batch.AppendFrame(nil, &b, &a)
}

// segmentPaths returns the paths of a journal's segments.
func segmentPaths(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	slices.Sort(paths)
	return paths
}

// changeFile rewrites a file.
func changeFile(t testing.TB, path string, change func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, change(b), 0o640))
}

// flip returns a change that flips one bit.
func flip(at int) func(b []byte) []byte {
	return func(b []byte) []byte { b[at] ^= 1; return b }
}
