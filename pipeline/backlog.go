package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
)

// backlog counts the undelivered rows in the journal. Those that were in the journal at the start
// are counted while the delivery runs, at about one GiB per second, and are included as soon as all
// are counted. If the source does not count rows, the result is an estimate.
type backlog struct {
	source Source

	mu      sync.Mutex
	at      batch.Position // the delivery's position
	passed  int64          // rows that the delivery has passed since the start
	frames  uint64         // frames that it has passed since the start
	earlier int64          // rows that were undelivered at the start
}

// pass moves the delivery's position to at, after n rows were delivered or written to the
// dead-letter file.
func (b *backlog) pass(n int, at batch.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passed += int64(n)
	b.frames += at.Frame - min(b.at.Frame, at.Frame)
	b.at = at
}

func (b *backlog) rows() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	stored, _, known := b.source.Rows()
	if known {
		return max(0, b.earlier+stored-b.passed)
	}
	// An estimate: the undelivered frames times the mean rows of the delivered ones, at least 1.
	_, next := b.source.Bounds()
	return int64(float64(next-min(next, b.at.Frame)) * max(1, float64(b.passed)/max(1, float64(b.frames))))
}

// count counts the rows that were undelivered at the start. If frames are deleted before it has
// read them, it starts again at the delivery's position.
func (b *backlog) count(ctx context.Context, log zerolog.Logger) {
	for {
		b.mu.Lock()
		at, passed := b.at, b.passed
		stored, end, known := b.source.Rows()
		b.mu.Unlock()
		if !known {
			return
		}
		n, deleted, err := b.between(ctx, at, end)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // the delivery will report the same error
			log.Debug().Err(err).Msg("cannot count the undelivered rows")
			return
		case !deleted:
			b.mu.Lock()
			b.earlier = passed + n - stored
			b.mu.Unlock()
			return
		}
		if sleep(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// between returns the number of rows from a position to the end of the frame before end. deleted
// reports that a frame is missing.
func (b *backlog) between(ctx context.Context, from batch.Position, end uint64) (rows int64, deleted bool, err error) {
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
