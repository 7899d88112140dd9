package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
)

// backlog counts the undelivered rows in the journal. Those that were already in the journal at
// startup are counted in the background while the delivery runs, at about 1 GiB/s. Until then, or
// if the source does not count rows, the result is an estimate.
type backlog struct {
	source Source

	mu      sync.Mutex
	at      batch.Position // delivery position
	passed  int64          // rows delivered or dead-lettered since startup
	frames  uint64         // frames completed since startup
	earlier int64          // rows that were undelivered at startup
	counted bool           // whether earlier is known
}

// recountInterval is the time after which rows are counted again if a frame could not be read.
const recountInterval = time.Minute

// advance moves the delivery position to at, after n rows were delivered or written to the
// dead-letter file.
func (b *backlog) advance(n int, at batch.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passed += int64(n)
	b.frames += at.Frame - min(b.at.Frame, at.Frame)
	b.at = at
}

// rows returns the number of undelivered rows. counted is false if it is an estimate because they
// have not been counted yet or cannot be read.
func (b *backlog) rows() (n int64, counted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	stored, _, known := b.source.Rows()
	if known && b.counted {
		return max(0, b.earlier+stored-b.passed), true
	}
	// An estimate: the number of undelivered frames times the mean number of rows per delivered frame,
	// at least 1.
	_, next := b.source.Bounds()
	frames := next - min(next, b.at.Frame)
	return int64(float64(frames) * max(1, float64(b.passed)/max(1, float64(b.frames)))), !known || frames == 0
}

// count counts the rows that were undelivered at startup. If frames are deleted before they are
// read, or cannot be read, it starts over at the current delivery position.
func (b *backlog) count(ctx context.Context, log zerolog.Logger) {
	for {
		pause := 10 * time.Millisecond
		b.mu.Lock()
		at, passed := b.at, b.passed
		stored, end, known := b.source.Rows()
		b.mu.Unlock()
		if !known {
			return
		}
		n, deleted, err := b.countRows(ctx, at, end)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // the delivery will report the same error
			log.Debug().Err(err).Msg("cannot count the undelivered rows")
			pause = recountInterval
		case !deleted:
			b.mu.Lock()
			b.earlier, b.counted = passed+n-stored, true
			b.mu.Unlock()
			return
		}
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

// countRows returns the number of rows from position from up to, but not including, frame end.
// deleted reports whether a frame in that range has been deleted.
func (b *backlog) countRows(ctx context.Context, from batch.Position, end uint64) (rows int64, deleted bool, err error) {
	r := b.source.Reader(from.Frame)
	var buf []byte
	for want := from.Frame; want < end; want++ {
		seq, frame, err := r.Next(ctx, buf)
		if err != nil || seq != want {
			return 0, seq != want, err
		}
		n, err := batch.FrameRows(frame)
		if err != nil {
			return 0, false, err
		}
		if seq == from.Frame {
			n -= int(from.Row)
		}
		rows, buf = rows+int64(n), frame
	}
	return rows, false, nil
}
