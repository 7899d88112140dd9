package journal

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/crashfs"
)

// invert changes every byte of a frame.
func invert(_ uint64, data []byte) {
	for i := range data {
		data[i] = ^data[i]
	}
}

// TestEdit checks that exactly the frames from the given one on are changed, and that the journal
// is otherwise the same.
func TestEdit(t *testing.T) {
	_, frames := inspected(t)
	for from := 1; from <= len(frames)+1; from++ {
		fs, _ := inspected(t)
		before, err := Verify("/journal", WithFS(fs))
		require.NoError(t, err)
		require.NoError(t, Edit("/journal", uint64(from), invert, WithFS(fs)))
		after, err := Verify("/journal", WithFS(fs))
		require.NoError(t, err)
		require.NoError(t, after.Err())
		require.Equal(t, before, after)
		want := slices.Clone(frames)
		for i := from; i <= len(want); i++ {
			want[i-1] = bytes.Clone(want[i-1])
			invert(0, want[i-1])
		}
		j := mustOpen(t, testConfig(), fs.crash(true), "archive", "forward")
		require.Equal(t, want, readAll(t, j))
		add(t, j, payload(1, 10))
		require.NoError(t, j.Close())
	}
}

// TestEditCrashes checks that after a crash each frame is unchanged or changed, none before a
// changed one is unchanged, and that a second Edit completes the first.
func TestEditCrashes(t *testing.T) {
	_, frames := inspected(t)
	state := func(got []byte, i int) (changed bool) {
		t.Helper()
		if bytes.Equal(got, frames[i]) {
			return false
		}
		invert(0, got)
		require.Equal(t, frames[i], got, "frame %d is neither the old nor the new one", i+1)
		return true
	}
	crashes := 0
	for budget := 1; ; budget++ {
		fs, _ := inspected(t)
		fs.Budget = budget
		err := Edit("/journal", 3, invert, WithFS(fs))
		fs = fs.crash(budget%2 == 0)
		done := uint64(3) // first unchanged frame
		j := mustOpen(t, testConfig(), fs, "archive", "forward")
		for i, got := range readAll(t, j) {
			if seq := uint64(i + 1); state(got, i) {
				require.Equal(t, done, seq, "a frame before it is unchanged")
				done++
			}
		}
		require.NoError(t, j.Close())
		require.NoError(t, Edit("/journal", done, invert, WithFS(fs)))
		j = mustOpen(t, testConfig(), fs, "archive", "forward")
		for i, got := range readAll(t, j) {
			require.Equal(t, i >= 2, state(got, i))
		}
		require.NoError(t, j.Close())
		if err == nil {
			break
		}
		require.ErrorIs(t, err, crashfs.ErrPower)
		crashes++
	}
	require.Greater(t, crashes, 20)
}

// TestEditOfADamagedSegment checks that a segment with a damaged frame is not replaced.
func TestEditOfADamagedSegment(t *testing.T) {
	fs, _ := inspected(t)
	in, err := Inspect("/journal", WithFS(fs))
	require.NoError(t, err)
	path := "/journal/" + in.Segments[1].Name
	b := fs.Bytes(path)
	b[blockBytes+frameHeaderBytes+100] ^= 1
	fs.Put(path, b)
	require.True(t, isCorrupt(Edit("/journal", in.Segments[1].First, invert, WithFS(fs))))
	require.Equal(t, b, fs.Bytes(path))
}

func TestLock(t *testing.T) {
	fs, _ := inspected(t)
	lock, err := Lock("/journal", WithFS(fs))
	require.NoError(t, err)
	_, err = Open(testConfig(), nil, WithFS(fs))
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, lock.Close())
	j := mustOpen(t, testConfig(), fs)
	_, err = Lock("/journal", WithFS(fs))
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, j.Close())
}
