package kafka

import (
	"bytes"
	"testing"

	"github.com/segmentio/kafka-go/compress"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
)

func samplePlan() plan {
	return plan{
		state:   state{cluster: "c-1", topicID: dial.TopicID{15: 7}, topic: "measurements", suspect: 300, offsets: []int64{-1, 0, 1 << 40}},
		session: session{id: 1 << 33, epoch: 5, sequences: []int32{0, 1, 1<<31 - 1}},
		codec:   compress.Zstd, rows: 14_000,
		first: rowID{id: batch.ID{1, 2}, index: 0}, last: rowID{id: batch.ID{15: 9}, index: 1<<32 - 1},
	}
}

func TestPlanRoundTrip(t *testing.T) {
	want := samplePlan()
	for _, want.topicID = range []dial.TopicID{{15: 7}, {3: '#'}, {}} {
		for _, want.cluster = range []string{"", "c-1", "c#1", "#", "c#0123456789abcdef"} {
			got, err := decodePlan(want.encode())
			require.NoError(t, err)
			require.Equal(t, want, got)
			s, err := decodeState(want.state.encode())
			require.NoError(t, err)
			require.Equal(t, want.state, s)
		}
	}
}

func TestPlanTruncated(t *testing.T) {
	p, s := samplePlan().encode(), samplePlan().state.encode()
	for n := range p {
		_, err := decodePlan(p[:n])
		require.ErrorIs(t, err, errFormat, "%d bytes", n)
	}
	for n := range s {
		_, err := decodeState(s[:n])
		require.ErrorIs(t, err, errFormat, "%d bytes", n)
	}
	_, err := decodePlan(append(p, 0))
	require.ErrorIs(t, err, errFormat)
	p[0]++
	_, err = decodePlan(p)
	require.ErrorContains(t, err, "version 2, but this program reads 1")
}

func FuzzDecodePlan(f *testing.F) {
	f.Add(samplePlan().encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePlan(b)
		if err != nil {
			require.ErrorIs(t, err, errFormat)
			return
		}
		again, err := decodePlan(p.encode())
		require.NoError(t, err)
		require.True(t, bytes.Equal(p.encode(), again.encode()))
	})
}

func TestFit(t *testing.T) {
	rng := random()
	rows := block(rowsOf(rng, 3000, 100), rowsOf(rng, 0, 1), rowsOf(rng, 3000, 100))
	f := func(partitions, maxBytes, maxRows int) {
		t.Helper()
		n := fit(rows, partitions, maxBytes, maxRows)
		require.GreaterOrEqual(t, n, 1)
		require.LessOrEqual(t, n, maxRows)
		require.LessOrEqual(t, largest(t, rows.Head(n), partitions), max(maxBytes, largest(t, rows.Head(1), partitions)))
		if n < min(maxRows, rows.Rows()) { // another row would not fit; sizes are overestimated by up to 40 bytes per row
			require.Greater(t, largest(t, rows.Head(n+1), partitions)+40*(n+1), maxBytes)
		}
	}
	f(1, 900<<10, 100_000)
	f(1, 16<<10, 100_000)
	f(6, 16<<10, 100_000)
	f(6, 16<<10, 7)
	f(100, 16<<10, 100_000)
	f(3, 1, 10)
}

// largest returns the size of the largest uncompressed record batch of the block.
func largest(t testing.TB, rows batch.Block, partitions int) (size int) {
	for _, share := range divide(rows, partitions) {
		if len(share) == 0 {
			continue
		}
		var e encoder
		frame, err := e.encode(producer{}, compress.None, rows, share)
		require.NoError(t, err)
		size = max(size, len(frame)-frameLen)
	}
	return size
}

func TestDivideKeepsOrder(t *testing.T) {
	rng := random()
	rows := block(rowsOf(rng, 500, 30), rowsOf(rng, 0, 1), rowsOf(rng, 300, 30))
	rows[0].From, rows[2].To = 10, 250
	n := 0
	for p, share := range divide(rows, 4) {
		for i, at := range share {
			require.Equal(t, p, dial.PartitionOf(rows[at.span].Code(int(at.row)), 4))
			if i > 0 {
				previous := share[i-1]
				require.True(t, previous.span < at.span || previous.span == at.span && previous.row < at.row)
			}
			n++
		}
	}
	require.Equal(t, rows.Rows(), n)
	first, last := firstAndLast(rows)
	require.Equal(t, rowID{rows[0].ID, rows[0].Index[10]}, first)
	require.Equal(t, rowID{rows[2].ID, rows[2].Index[249]}, last)
}
