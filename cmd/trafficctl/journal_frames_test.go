package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
)

// read returns the frames that can be read, and the gaps as text.
func read(t testing.TB, dir string, from uint64) (frames []uint64, gaps []string) {
	t.Helper()
	f, err := inspect.Open(dir)
	require.NoError(t, err)
	defer f.Close()
	for frame, err := range f.Frames(from, inspect.NoEnd) {
		var gap *inspect.Gap
		if errors.As(err, &gap) {
			gaps = append(gaps, gap.Range())
			continue
		}
		require.NoError(t, err)
		frames = append(frames, frame.Seq)
		var b batch.Batch
		require.NoError(t, batch.DecodeFrame(frame.Data, &b, nil))
		require.Equal(t, batchID(int(frame.Seq)), b.ID)
	}
	return frames, gaps
}

// segmentsOf returns the segments of an undamaged journal.
func segmentsOf(t testing.TB, dir string) []journal.SegmentInfo {
	t.Helper()
	in, err := journal.Inspect(dir)
	require.NoError(t, err)
	require.NoError(t, in.Err())
	return in.Segments
}

func TestFramesContinueAfterDamage(t *testing.T) {
	f := func(name string, damage func(dir string, s []string), want []uint64, wantGaps ...string) {
		t.Helper()
		dir := newTestJournal(t, journalBatches(8, frameRows))
		require.Len(t, segmentsOf(t, dir), 4, "two frames in a segment")
		damage(dir, segmentPaths(t, dir))
		frames, gaps := read(t, dir, 0)
		require.Equal(t, want, frames, name)
		require.Equal(t, wantGaps, gaps, name)
	}
	change := func(i int, with func([]byte) []byte) func(string, []string) {
		return func(_ string, s []string) { changeFile(t, s[i], with) }
	}
	const header, payload = 4096, 4096 + 24 + 50 // of the first frame of a segment
	all := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	f("none", func(string, []string) {}, all)
	f("a payload", change(1, flip(payload)), []uint64{1, 2, 4, 5, 6, 7, 8}, "frame 3")
	f("a frame's header", change(1, flip(header)), []uint64{1, 2, 5, 6, 7, 8}, "frames 3 to 4")
	f("the first payload", change(0, flip(payload)), []uint64{2, 3, 4, 5, 6, 7, 8}, "frame 1")
	f("a payload of the newest segment", change(3, flip(payload)), []uint64{1, 2, 3, 4, 5, 6, 8}, "frame 7")
	f("a header in the newest segment", change(3, flip(header)), []uint64{1, 2, 3, 4, 5, 6}, "frames from 7 on")
	f("a segment's header", change(1, flip(20)), []uint64{1, 2, 5, 6, 7, 8}, "frames 3 to 4")
	f("the first segment's header", change(0, flip(20)), []uint64{3, 4, 5, 6, 7, 8}, "frames 1 to 2")
	f("the newest segment's header", change(3, flip(20)), []uint64{1, 2, 3, 4, 5, 6}, "frames from 7 on")
	f("a truncated sealed segment", change(2, func(b []byte) []byte { return b[:len(b)-8192] }), []uint64{1, 2, 3, 4, 5, 7, 8}, "frame 6")
	f("a missing segment", func(_ string, s []string) { require.NoError(t, os.Remove(s[1])) }, []uint64{1, 2, 5, 6, 7, 8}, "frames 3 to 4")
	f("a torn tail", change(3, func(b []byte) []byte { return append(b, "a commit that was never finished"...) }), all)
	f("two damaged payloads", func(_ string, s []string) {
		changeFile(t, s[0], flip(payload))
		changeFile(t, s[2], flip(payload))
	}, []uint64{2, 3, 4, 6, 7, 8}, "frame 1", "frame 5")
	f("two damaged segments in a row", func(_ string, s []string) {
		changeFile(t, s[1], flip(header))
		changeFile(t, s[2], flip(payload))
	}, []uint64{1, 2, 6, 7, 8}, "frames 3 to 5")
}

func TestFramesFrom(t *testing.T) {
	dir := newTestJournal(t, journalBatches(5, frameRows))
	for from := range uint64(8) {
		frames, gaps := read(t, dir, from)
		require.Empty(t, gaps)
		var want []uint64
		for n := max(from, 1); n <= 5; n++ {
			want = append(want, n)
		}
		require.Equal(t, want, frames)
	}
}

// TestFramesWithRandomDamage checks that regardless of the damage, each frame is either read or
// reported as lost, once and in order, and the sequence ends.
func TestFramesWithRandomDamage(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 60 {
		dir := newTestJournal(t, journalBatches(1+r.IntN(9), 1+r.IntN(2*frameRows)))
		paths := segmentPaths(t, dir)
		for range 1 + r.IntN(3) {
			damage(t, r, paths[r.IntN(len(paths))])
		}
		next := uint64(1)
		f, err := inspect.Open(dir)
		require.NoError(t, err)
		for frame, err := range f.Frames(0, inspect.NoEnd) {
			message := fmt.Sprintf("seed %d, round %d", seed, round)
			var gap *inspect.Gap
			if !errors.As(err, &gap) {
				require.NoError(t, err, message)
				gap = &inspect.Gap{From: frame.Seq, To: frame.Seq}
			}
			require.Equal(t, next, gap.From, message)
			require.GreaterOrEqual(t, gap.To, gap.From, message)
			next = gap.To + 1
		}
		f.Close()
	}
}

// damage damages a random part of a file.
func damage(t testing.TB, r *rand.Rand, path string) {
	changeFile(t, path, func(b []byte) []byte {
		if len(b) == 0 {
			return b
		}
		switch r.IntN(3) {
		case 0:
			return b[:r.IntN(len(b))]
		case 1:
			clear(b[r.IntN(len(b)):])
			return b
		}
		return flip(r.IntN(len(b)))(b)
	})
}

// TestGapTimes checks that a gap has the times at which its neighbours were received.
func TestGapTimes(t *testing.T) {
	dir := newTestJournal(t, journalBatches(5, frameRows))
	changeFile(t, segmentPaths(t, dir)[1], flip(5000))
	f, err := inspect.Open(dir)
	require.NoError(t, err)
	defer f.Close()
	for _, err := range f.Frames(0, inspect.NoEnd) {
		var gap *inspect.Gap
		if errors.As(err, &gap) {
			require.True(t, gap.After.Equal(receivedAt(2)))
			require.True(t, gap.Before.Equal(receivedAt(4)))
			var corrupt *journal.CorruptError
			require.ErrorAs(t, gap.Err, &corrupt)
			return
		}
	}
	t.Fatal("got no gap, want one")
}
