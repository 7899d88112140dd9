package kafka

import (
	"bytes"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/dial"
)

func bad(records []byte) bool { return bytes.Contains(records, []byte("BAD-")) }

// withBad returns a batch with invalid rows at the given positions, and their names.
func withBad(n int, at ...int) (*batch.Batch, []name) {
	rng, b, names := random(), rowsOf(random(), 0, 1), []name(nil)
	for i := range n {
		code := rowsOf(rng, 1, 40).Code(0)
		if len(at) > 0 && at[0] == i {
			at = at[1:]
			code = append([]byte("BAD-"), code...)
			names = append(names, name{b.ID, uint32(i)})
		}
		addRow(b, rng, string(code))
	}
	return b, names
}

// TestRejectedRows has the broker reject record batches with certain rows. Only these become dead
// letters, although other partitions of their blocks were written, even if the daemon is restarted
// at each step, or the delivery loop plans from the state before the rejection.
func TestRejectedRows(t *testing.T) {
	f := func(partitions int32, restart bool, at ...int) {
		t.Helper()
		s := newScene(t, partitions)
		s.careless = !restart && len(at) > 1
		s.fault(kerr.InvalidRecord, -1, bad)
		b, names := withBad(200, at...)
		s.offer(b)
		s.offer(rowsOf(random(), 100, 40))
		for steps := 0; len(s.journal.rows) > 0; steps++ {
			require.Less(t, steps, 200)
			require.NoError(t, s.step(s.sink))
			if restart {
				s.restart()
			}
		}
		require.Equal(t, names, s.dead)
		s.requireOnce(names...)
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

// TestRejectedWhileInDoubt checks that Deliver returns no rejection while another part has no
// response.
func TestRejectedWhileInDoubt(t *testing.T) {
	s := newScene(t, 2)
	b, names := withBad(60, 30)
	p := int32(dial.PartitionOf(b.Code(30), 2))
	s.fault(kerr.InvalidRecord, -1, bad)
	s.fault(kerr.RequestTimedOut, 3, nil, 1-p)
	s.offer(b)
	for range 3 {
		err := s.step(s.sink)
		require.Error(t, err)
		require.False(t, errors.As(err, new(*batch.PermanentError)))
	}
	s.run(s.sink)
	require.Equal(t, names, s.dead)
	s.requireOnce(names...)
}

// TestRejectedAloneWhileInDoubt checks that a single row does not become a dead letter if it was
// written without a response before the broker rejected it.
func TestRejectedAloneWhileInDoubt(t *testing.T) {
	s := newScene(t, 2)
	s.fault(kerr.RequestTimedOut, 1, nil)
	s.offer(rowsOf(random(), 1, 1))
	require.Error(t, s.step(s.sink))
	s.fault(kerr.InvalidRecord, -1, nil)
	s.run(s.sink)
	require.Empty(t, s.dead)
	s.requireOnce()
}

// TestTooLarge checks that record batches get smaller if the topic accepts less than batch_bytes,
// and that only a row that is too large on its own becomes a dead letter.
func TestTooLarge(t *testing.T) {
	s := newScene(t, 1)
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
	require.Equal(t, []name{{huge.ID, 0}}, s.dead)
	s.requireOnce(s.dead...)
	require.Less(t, testutil.ToFloat64(errorsTotal[rejected])-before, 20.0, "full blocks were tried again and again")
}
