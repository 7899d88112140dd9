package pipeline

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
)

const (
	// ClockTolerance is how far received_at may be ahead of the clock, and the clock ahead of the time
	// that has passed since the last stamp. It is more than NTP steps a clock that it keeps.
	ClockTolerance = time.Minute
	// clockConfirmation is how long a clock that has jumped ahead must keep its new time. A clock that
	// is wrong at boot is usually corrected sooner.
	clockConfirmation = 5 * time.Minute
)

// clock stamps frames with received_at, which increases from frame to frame. It does not follow a
// clock that is wrong: one reading far ahead would put all later frames far ahead, too, and a
// correction that comes through another replica would lose to the measurement that it corrects.
type clock struct {
	now   func() time.Time // only the wall clock is used
	began time.Time        // start of the monotonic time
	log   zerolog.Logger

	mu      sync.Mutex // held from stamping a frame until it is queued, so that frames are queued in the order of their stamps
	ordered bool       // the journal needs increasing stamps
	stamped int64      // received_at of the newest frame that may be in the journal or is queued; 0 unless ordered
	durable int64      // the same without the queued frames
	queued  int        // frames that are stamped but not settled
	trusted reading    // the last stamp
	jumped  reading    // the first reading after a jump ahead
	failure error      // result of the last check
}

// reading is a time of the wall clock, in nanoseconds, and the monotonic time at which it was read.
type reading struct {
	wall    int64
	elapsed time.Duration
}

// aheadOf returns how much further the wall clock has moved than the monotonic time since an
// earlier reading.
func (r reading) aheadOf(earlier reading) time.Duration {
	return time.Duration(r.wall-earlier.wall) - (r.elapsed - earlier.elapsed)
}

func (c *clock) read() reading { return reading{c.now().UnixNano(), time.Since(c.began)} }

// Check returns an error if no frame can be stamped now, because the clock has jumped ahead, or
// because the newest frame in the journal is ahead of the clock.
func (c *clock) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.check(c.read())
}

// check is Check for a reading. The caller must hold mu.
func (c *clock) check(r reading) error {
	var err error
	jump := r.aheadOf(c.trusted)
	if jump <= ClockTolerance {
		c.jumped = reading{}
	} else if c.jumped == (reading{}) || r.aheadOf(c.jumped).Abs() > ClockTolerance {
		c.jumped = r
	}
	ahead := time.Duration(c.stamped - r.wall)
	switch {
	case c.jumped != (reading{}) && r.elapsed-c.jumped.elapsed < clockConfirmation:
		err = fmt.Errorf("the clock has jumped ahead by %s: batches are rejected with 503 until it is set back, has kept its new time for %s, "+
			"or the daemon is restarted", jump.Round(time.Second), clockConfirmation)
	case ahead > ClockTolerance:
		err = fmt.Errorf("the newest frame in the journal was received at %s, which is %s ahead of the clock: batches are rejected with 503; "+
			"correct the clock, or stop the daemon and run trafficctl journal restamp",
			time.Unix(0, c.stamped).UTC().Format(time.RFC3339), ahead.Round(time.Second))
	case c.jumped != (reading{}):
		c.trusted, c.jumped = r, reading{}
		c.log.Warn().Dur("jump", jump).Msg("the clock has kept its new time: accepting batches again")
	}
	if (err == nil) != (c.failure == nil) {
		if err != nil {
			c.log.Error().Err(err).Msg("rejecting batches because of the clock")
		} else {
			c.log.Info().Msg("the clock is right again: accepting batches")
		}
	}
	c.failure = err
	return err
}

// enqueue stamps a frame and calls queue to queue it. If it returns nil, settle must be called with
// the frame's outcome. Its errors are those of Check and queue.
func (c *clock) enqueue(frame []byte, queue func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.read()
	if err := c.check(r); err != nil {
		return fmt.Errorf("%w: %w", errClock, err)
	}
	r.wall = max(r.wall, c.stamped+1)
	batch.StampFrame(frame, r.wall)
	if err := queue(); err != nil {
		return err
	}
	c.queued++
	c.trusted = r
	if c.ordered {
		c.stamped = r.wall
	}
	return nil
}

// committed records the outcome of a frame. Once no frame is queued, the stamps of voided frames no
// longer count.
func (c *clock) committed(frame []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ordered && !errors.Is(err, durable.ErrVoided) {
		c.durable = max(c.durable, batch.FrameReceivedAt(frame))
	}
	if c.queued--; c.queued == 0 {
		c.stamped = c.durable
	}
}

// errClock is wrapped by errors of clock.enqueue that are about the clock.
var errClock = errors.New("the daemon's clock is wrong")
