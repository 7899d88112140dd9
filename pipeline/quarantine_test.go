package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/durable"
)

// brokenSource is a Source in which each third frame and the frames from the given one on are
// broken records.
type brokenSource struct {
	Source
	from uint64
	lose context.CancelFunc // another process takes over the cursor
}

func (s *brokenSource) broken(frame uint64) bool { return frame%3 == 0 || frame >= s.from }

func (s *brokenSource) Confirm() error {
	if s.lose != nil {
		s.lose()
		return durable.ErrClosed
	}
	return nil
}

func (s *brokenSource) Reader(frame uint64) durable.Reader {
	return brokenReader{s, s.Source.Reader(frame)}
}

type brokenReader struct {
	source *brokenSource
	durable.Reader
}

func (r brokenReader) Next(ctx context.Context, buf []byte) (uint64, []byte, error) {
	seq, frame, err := r.Reader.Next(ctx, buf)
	return r.result(seq, frame, err)
}

func (r brokenReader) TryNext(buf []byte) (uint64, []byte, bool, error) {
	seq, frame, ok, err := r.Reader.TryNext(buf)
	if ok {
		seq, frame, err = r.result(seq, frame, err)
	}
	return seq, frame, ok, err
}

func (r brokenReader) result(seq uint64, frame []byte, err error) (uint64, []byte, error) {
	if err == nil && r.source.broken(seq) {
		return seq, nil, &durable.RecordError{Topic: "log", Partition: 1, Offset: int64(seq) - 1, Data: []byte{0xff, byte(seq)}, Reason: errors.New("broken")}
	}
	return seq, frame, err
}

// TestBrokenRecords checks that each broken record is written to the dead-letter file once and not
// before the rows that precede it are delivered, however often the delivery is restarted, and that
// the cursor passes it.
func TestBrokenRecords(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	h.stopCopying()
	h.add(t, 20)
	source := &brokenSource{Source: Local(h.journal, "sink"), from: 18}
	path := filepath.Join(h.dir, "dead.ndjson")
	store := newFakeStore(1)
	f := func(cursor durable.Cursor, until func(d *Delivery) bool) {
		t.Helper()
		d, err := NewDelivery("sink", quick, source, store, NewDeadLetters(path), zerolog.Nop())
		require.NoError(t, err)
		d.cursor = cursor
		defer run(t, d)()
		require.Eventually(t, func() bool { return until(d) }, time.Minute, time.Millisecond)
	}
	at := func(frame uint64) func(*Delivery) bool {
		return func(*Delivery) bool { seq, _ := h.journal.Cursor("sink").Load(); return seq >= frame }
	}
	letters := func() (frames []uint64) {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			var l DeadLetter
			require.NoError(t, json.Unmarshal([]byte(line), &l))
			require.Equal(t, "sink broken", l.Sink+" "+l.Reason)
			require.Equal(t, DeadLetterRecord{"log", 1, l.Record.Offset, []byte{0xff, byte(l.Record.Offset + 1)}}, *l.Record)
			require.NotContains(t, line, "item")
			frames = append(frames, uint64(l.Record.Offset)+1)
		}
		return frames
	}
	store.down = true
	for range 3 {
		f(source.Cursor(), func(d *Delivery) bool { return d.Status().Trouble != nil })
		require.Empty(t, letters(), "the rows before the first one are not delivered")
	}
	store.down = false
	f(source.Cursor(), at(5))
	f(source.Cursor(), at(9))
	f(source.Cursor(), at(21))
	f(source.Cursor(), at(21))
	require.Equal(t, []uint64{3, 6, 9, 12, 15, 18, 19, 20}, letters())
	var want []string
	for _, frame := range []int{1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17} {
		for row := range rowsOfFrame {
			want = append(want, fmt.Sprintf("%d-%d", frame, row))
		}
	}
	require.Equal(t, want, store.rows)
	dead := NewDeadLetters(path)
	rows, records := dead.Count("sink")
	require.Equal(t, "0 8", fmt.Sprint(rows, " ", records))

	ctx, lose := context.WithCancel(t.Context())
	source.lose = lose
	h.add(t, 1)
	d, err := NewDelivery("sink", quick, source, store, dead, zerolog.Nop())
	require.NoError(t, err)
	require.ErrorIs(t, d.Run(ctx, ctx), durable.ErrClosed)
	require.Len(t, letters(), 8, "the next owner writes it")
}

// TestBrokenRecordsAndFailingCursor checks that no row and no broken record is lost while the
// dead-letter file cannot be written or the cursor not saved.
func TestBrokenRecordsAndFailingCursor(t *testing.T) {
	h := open(t, t.TempDir())
	defer h.close()
	h.stopCopying()
	h.add(t, 30)
	source := &brokenSource{Source: Local(h.journal, "sink"), from: 31}
	store := newFakeStore(2)
	dir := filepath.Join(h.dir, "later")
	path := filepath.Join(dir, "dead.ndjson")
	d, err := NewDelivery("sink", quick, source, store, NewDeadLetters(path), zerolog.Nop())
	require.NoError(t, err)
	d.cursor = flaky{d.cursor}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx, ctx) }()
	require.Eventually(t, func() bool {
		trouble := d.Status().Trouble
		return trouble != nil && strings.Contains(trouble.Error(), "cannot write the dead-letter file")
	}, time.Minute, time.Millisecond)
	seq, _ := h.journal.Cursor("sink").Load()
	require.LessOrEqual(t, seq, uint64(3))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.Eventually(t, func() bool { seq, _ := h.journal.Cursor("sink").Load(); return seq == 31 }, time.Minute, time.Millisecond)
	stop()
	<-ended // its last save may fail
	require.Len(t, store.rows, 20*rowsOfFrame)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 10, strings.Count(string(text), "\n"), "each record once, because the process did not restart")
}
