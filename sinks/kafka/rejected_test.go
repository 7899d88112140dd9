package kafka

import (
	"bytes"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
)

func hasInvalidRow(records []byte) bool { return bytes.Contains(records, []byte("BAD-")) }

// batchWithInvalidRows returns a batch of n rows, and the IDs of the invalid ones among them, which
// are at the given positions.
func batchWithInvalidRows(n int, at ...int) (*batch.Batch, []rowID) {
	rng, b, ids := random(), rowsOf(random(), 0, 1), []rowID(nil)
	for i := range n {
		code := rowsOf(rng, 1, 40).Code(0)
		if len(at) > 0 && at[0] == i {
			at = at[1:]
			code = append([]byte("BAD-"), code...)
			ids = append(ids, rowID{b.ID, uint32(i)})
		}
		addRow(b, rng, string(code))
	}
	return b, ids
}

// TestRejectedRows checks that only the rows that the broker rejects become dead letters, although
// other partitions of their blocks were written, even if the daemon is restarted at each step.
func TestRejectedRows(t *testing.T) {
	f := func(partitions int32, restart bool, at ...int) {
		t.Helper()
		s := newFixture(t, partitions)
		s.fault(kerr.InvalidRecord, -1, hasInvalidRow)
		b, ids := batchWithInvalidRows(200, at...)
		s.offer(b)
		s.offer(rowsOf(random(), 100, 40))
		for steps := 0; len(s.deliveryLoop.rows) > 0; steps++ {
			require.Less(t, steps, 200)
			require.NoError(t, s.step(s.sink))
			if restart {
				s.restart()
			}
		}
		require.Equal(t, ids, s.dead)
		s.requireOnce(ids...)
	}
	for _, restart := range []bool{false, true} {
		f(1, restart, 0)
		f(3, restart, 0)
		f(3, restart, 117)
		f(3, restart, 199)
		f(3, restart, 3, 150)
		f(3, restart, 0, 1, 2, 57, 198)
	}
}

// TestRejectedWhileInDoubt checks that Deliver does not return a rejection while another part is in
// doubt.
func TestRejectedWhileInDoubt(t *testing.T) {
	s := newFixture(t, 2)
	b, ids := batchWithInvalidRows(60, 30)
	p := int32(dial.PartitionOf(b.Code(30), 2))
	s.fault(kerr.InvalidRecord, -1, hasInvalidRow)
	s.fault(kerr.RequestTimedOut, 3, nil, 1-p)
	s.offer(b)
	for range 3 {
		err := s.step(s.sink)
		require.Error(t, err)
		require.False(t, errors.As(err, new(*batch.PermanentError)))
	}
	s.run(s.sink)
	require.Equal(t, ids, s.dead)
	s.requireOnce(ids...)
}

// TestSingleRowRejectedWhileInDoubt checks that a single row does not become a dead letter if it
// was written without a response before the broker rejected it.
func TestSingleRowRejectedWhileInDoubt(t *testing.T) {
	s := newFixture(t, 2)
	s.fault(kerr.RequestTimedOut, 1, nil)
	s.offer(rowsOf(random(), 1, 1))
	require.Error(t, s.step(s.sink))
	s.fault(kerr.InvalidRecord, -1, nil)
	s.run(s.sink)
	require.Empty(t, s.dead)
	s.requireOnce()
}

// TestTooLarge checks that the sink sends smaller record batches if the topic accepts less than
// batch_bytes, and that only a row that is too large on its own becomes a dead letter.
func TestTooLarge(t *testing.T) {
	s := newFixture(t, 1)
	require.NoError(t, s.DeleteTopic(topic))
	require.NoError(t, s.CreateTopic(topic, 2, map[string]string{"max.message.bytes": "20000"}))
	s.offer(rowsOf(random(), 3000, 40))
	s.run(s.sink)
	require.Less(t, s.sink.batchBytes, 20_000)
	s.requireOnce()

	before := testutil.ToFloat64(errorsTotal[rejected])
	huge := rowsOf(random(), 0, 1)
	huge.ProductInstance = string(bytes.Repeat([]byte("x"), 30_000))
	addRow(huge, random(), "DET-1")
	s.offer(huge)
	s.offer(rowsOf(random(), 3000, 40))
	s.run(s.sink)
	require.Equal(t, []rowID{{huge.ID, 0}}, s.dead)
	s.requireOnce(s.dead...)
	require.Less(t, testutil.ToFloat64(errorsTotal[rejected])-before, 20.0, "too many full blocks were rejected")
}
