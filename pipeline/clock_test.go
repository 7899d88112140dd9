package pipeline

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
	"trafficd/schemas/contract"
)

// skewed is a clock whose wall clock is ahead by skew.
type skewed struct {
	clock
	skew time.Duration
	log  bytes.Buffer
}

func newSkewed() *skewed {
	c := new(skewed)
	c.clock = clock{now: func() time.Time { return time.Now().Add(c.skew) }, began: time.Now(), log: zerolog.New(&c.log), ordered: true}
	c.trusted = c.read()
	return c
}

// stamp stamps a frame with the given outcome.
func (c *skewed) stamp(outcome error) (receivedAt int64, err error) {
	frame := make([]byte, 32)
	if err := c.enqueue(frame, func() error { return nil }); err != nil {
		return 0, err
	}
	c.committed(frame, outcome)
	return batch.FrameReceivedAt(frame), nil
}

// TestClockJumps checks that after a jump ahead no frame is stamped until the clock is right again
// or has kept its new time, and that no stamp is a minute ahead of the clock.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSkewed()
		last := int64(0)
		accepts := func() {
			t.Helper()
			at, err := c.stamp(nil)
			require.NoError(t, err)
			require.NoError(t, c.Check())
			require.Greater(t, at, last)
			require.LessOrEqual(t, at, c.now().Add(ClockTolerance).UnixNano())
			last = at
		}
		rejects := func(reason string) {
			t.Helper()
			_, err := c.stamp(nil)
			require.ErrorIs(t, err, errClock)
			require.ErrorContains(t, err, reason)
			require.ErrorContains(t, c.Check(), reason)
		}
		const year = 365 * 24 * time.Hour
		accepts()
		time.Sleep(3 * 24 * time.Hour) // without batches
		accepts()
		c.skew = 59 * time.Second
		accepts()
		c.skew = 0
		accepts()
		c.skew = 2 * time.Minute
		rejects("has jumped ahead by 1m")
		c.skew = year
		rejects("has jumped ahead by 87")
		c.skew = 0
		accepts() // at once
		c.skew = -year
		rejects("ahead of the clock")
		c.skew = 0
		accepts()

		c.skew = year
		rejects("has jumped ahead")
		time.Sleep(clockConfirmation - time.Second)
		rejects("has jumped ahead")
		c.skew = year + time.Hour // not the time that it has kept
		rejects("has jumped ahead")
		time.Sleep(clockConfirmation - time.Second)
		rejects("has jumped ahead")
		time.Sleep(time.Second)
		accepts()
		c.skew = 0 // it was wrong nevertheless
		rejects("which is 8761h0m0s ahead of the clock")
		time.Sleep(year)
		rejects("ahead of the clock")
		time.Sleep(time.Hour)
		accepts()
		require.Contains(t, c.log.String(), `"message":"the clock is right again: accepting batches"`)
	})
}

// TestVoidedFrameGivesItsStampBack checks that a frame that was stamped by a wrong clock, and is
// not in the journal, has no effect on later frames.
func TestVoidedFrameGivesItsStampBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := func(outcome error, ordered bool, want error) {
			t.Helper()
			c := newSkewed()
			c.ordered = ordered
			before, err := c.stamp(nil)
			require.NoError(t, err)
			c.skew = time.Hour
			c.trusted = c.read() // as if the daemon had started now
			_, err = c.stamp(outcome)
			require.NoError(t, err)
			c.skew = 0
			at, err := c.stamp(nil)
			require.ErrorIs(t, err, want)
			if want == nil {
				require.LessOrEqual(t, at, c.now().UnixNano()+1)
				require.True(t, at > before || !ordered)
			}
		}
		f(durable.ErrVoided, true, nil)
		f(durable.ErrUnknown, true, errClock)
		f(nil, true, errClock)
		f(nil, false, nil) // the readers of a log in Kafka set received_at
		f(durable.ErrVoided, false, nil)

		c := newSkewed()
		c.skew = time.Hour
		c.trusted = c.read()
		require.Error(t, c.enqueue(make([]byte, 32), func() error { return errors.New("full") }))
		c.skew = 0
		_, err := c.stamp(nil)
		require.NoError(t, err, "a frame that was not queued")
	})
}

// TestNewestFrameAheadOfTheClock checks that a daemon that starts with frames from the future
// rejects batches without storing any part of them, and reads its journal.
func TestNewestFrameAheadOfTheClock(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	h.setClock(func() time.Time { return time.Now().Add(time.Hour) })
	_, err := h.submit(measurements(item("A", 1)), "")
	require.NoError(t, err)
	h.close()

	h = open(t, dir)
	defer h.close()
	require.ErrorContains(t, h.intake.CheckClock(), "trafficctl journal restamp")
	require.Equal(t, "cannot accept the batch: the daemon's clock is wrong", h.intake.Ready("city").Description)
	for _, key := range []string{"", "k"} {
		_, err = h.submit(measurements(item("A", 1)), key)
		var r *contract.APIError
		require.ErrorAs(t, err, &r)
		require.Equal(t, contract.ServiceUnavailable, r.Code)
	}
	require.Len(t, h.frames(), 1)
}
