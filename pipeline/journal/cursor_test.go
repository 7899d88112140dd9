package journal

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/crashfs"
	"trafficd/pipeline/lib/durable"
)

func TestNewConsumerStartsAtTheOldestFrame(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs, "a")
	addSegments(t, j)
	require.NoError(t, j.Cursor("a").Save(15, nil))
	oldest, _ := j.Bounds()
	require.Greater(t, oldest, uint64(1))
	require.NoError(t, j.Close())

	j = mustOpen(t, testConfig(), fs, "a", "b")
	seq, state := j.Cursor("b").Load()
	require.Equal(t, oldest, seq)
	require.Empty(t, state)
	require.Nil(t, j.Cursor("c"))
	require.NoError(t, j.Cursor("a").Save(20, nil))
	same, _ := j.Bounds()
	require.Equal(t, oldest, same, "b needs it")
	require.NoError(t, j.Close())

	j = mustOpen(t, testConfig(), fs, "a") // b is not configured: it keeps no frames
	later, _ := j.Bounds()
	require.Greater(t, later, oldest)
	require.Equal(t, segmentBytes(t, fs), j.bytes, "Open deletes segments")
	require.NoError(t, j.Close())

	j = mustOpen(t, testConfig(), fs, "a", "b") // b is configured again; the frames it missed are deleted
	seq, _ = j.Cursor("b").Load()
	require.Equal(t, later, seq)
	require.NoError(t, j.Close())
}

func TestInvalidSaves(t *testing.T) {
	f := func(seq uint64, state []byte, want string) {
		t.Helper()
		j := mustOpen(t, testConfig(), newMemFS(1), "a")
		add(t, j, nil)
		add(t, j, nil)
		require.NoError(t, j.Cursor("a").Save(2, []byte("s")))
		err := j.Cursor("a").Save(seq, state)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
			got, s := j.Cursor("a").Load()
			require.EqualValues(t, 2, got)
			require.Equal(t, "s", string(s))
		}
		require.NoError(t, j.Close())
		require.ErrorIs(t, j.Cursor("a").Save(3, nil), durable.ErrClosed)
	}
	f(1, nil, "cannot move back")
	f(2, []byte("other"), "")
	f(3, nil, "")
	f(4, nil, "newest durable frame is 2")
	f(3, make([]byte, MaxStateBytes), "")
	f(3, make([]byte, MaxStateBytes+1), "the maximum is 1048576")
}

func TestConsumerNames(t *testing.T) {
	f := func(want string, names ...string) {
		t.Helper()
		_, err := Open(testConfig(), names, WithFS(newMemFS(1)))
		require.ErrorContains(t, err, want)
	}
	f("consumer name", "")
	f("consumer name", "../a")
	f("consumer name", "A")
	f("consumer name", strings.Repeat("a", 65))
	f("duplicate consumer a", "a", "b", "a")
}

// TestTornSavesOfTwoProcesses checks that a torn save does not complete what the failed saves of a
// previous process have left in the slot.
func TestTornSavesOfTwoProcesses(t *testing.T) {
	const path = "/journal/a.cursor"
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs, "a")
	require.NoError(t, j.Cursor("a").Save(1, []byte("older"))) // slot 1
	require.NoError(t, j.Cursor("a").Save(1, []byte("saved"))) // slot 0
	require.NoError(t, j.Close())
	tear := func(state string, n int) {
		b := fs.Bytes(path)
		copy(b[slotBytes:], slot{gen: 4, seq: 1, state: []byte(state)}.encode(nil)[:n])
		fs.Put(path, b)
	}
	check := func() {
		t.Helper()
		j := mustOpen(t, testConfig(), fs, "a")
		_, state := j.Cursor("a").Load()
		require.Equal(t, "saved", string(state))
		require.NoError(t, j.Close())
	}
	tear("failed", slotHeaderBytes+6)
	tear("shorter", 16)
	check()
	tear("latest", 16)
	check()
}

func TestTornCursor(t *testing.T) {
	const path = "/journal/a.cursor"
	build := func() (*memFS, []byte) {
		fs := newMemFS(1)
		j := mustOpen(t, testConfig(), fs, "a")
		add(t, j, nil)
		add(t, j, nil)
		require.NoError(t, j.Cursor("a").Save(2, []byte("before"))) // slot 1
		require.NoError(t, j.Cursor("a").Save(3, sized(2000)))      // slot 0
		require.NoError(t, j.Close())
		return fs, fs.Bytes(path)
	}
	load := func(fs *memFS, b []byte) (uint64, []byte, error) {
		fs.Put(path, b)
		j, err := Open(testConfig(), []string{"a"}, WithFS(fs))
		if err != nil {
			return 0, nil, err
		}
		seq, state := j.Cursor("a").Load()
		require.NoError(t, j.Cursor("a").Save(3, []byte("next"))) // goes to the torn slot
		require.NoError(t, j.Close())
		j = mustOpen(t, testConfig(), fs.crash(true), "a")
		_, next := j.Cursor("a").Load()
		require.Equal(t, "next", string(next))
		require.NoError(t, j.Close())
		return seq, state, nil
	}
	fs, b := build()
	seq, state, err := load(fs, b)
	require.NoError(t, err)
	require.EqualValues(t, 3, seq)
	require.Equal(t, sized(2000), state)

	for _, at := range []int{0, 8, 12, 16, 24, 32, slotHeaderBytes, slotHeaderBytes + 1999} {
		fs, b := build()
		clear(b[at : at+1])
		b[at]++ // version 0 becomes 1: torn or valid, never another version
		if b[at] == 1 && at == 8 {
			b[at] = 0
		}
		seq, state, err := load(fs, b)
		require.NoError(t, err, "byte %d", at)
		require.EqualValues(t, 2, seq, "byte %d", at)
		require.Equal(t, "before", string(state))
	}

	fs, b = build()
	b[30] ^= 1
	b[slotBytes+30] ^= 1
	_, _, err = load(fs, b)
	require.True(t, isCorrupt(err), "both slots are broken: %v", err)

	fs, b = build()
	binary.LittleEndian.PutUint32(b[8:], 7)
	_, _, err = load(fs, b)
	var version *VersionError
	require.ErrorAs(t, err, &version)
	require.EqualValues(t, 7, version.Version)
}

func TestCursorPastTheEnd(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs, "a")
	add(t, j, nil)
	require.NoError(t, j.Cursor("a").Save(2, nil))
	require.NoError(t, j.Close())
	require.NoError(t, fs.Remove(firstSegment))
	_, err := Open(testConfig(), []string{"a"}, WithFS(fs))
	require.True(t, isCorrupt(err), "frames that were acknowledged, and delivered, are missing: %v", err)
	require.ErrorContains(t, err, "a.cursor")
}

func TestSaveThatFailsCanBeRepeated(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs, "a")
	add(t, j, nil)
	fs.SetFault(func(op, path string) bool { return strings.HasPrefix(path, "a.cursor") })
	require.ErrorIs(t, j.Cursor("a").Save(2, nil), crashfs.ErrFaulty)
	seq, _ := j.Cursor("a").Load()
	require.EqualValues(t, 1, seq)
	fs.SetFault(nil)
	require.NoError(t, j.Cursor("a").Save(2, nil))
	require.NoError(t, j.Close())
}

func TestDeletionThatFailsIsRepeated(t *testing.T) {
	f := func(failing ...string) {
		t.Helper()
		fs := newMemFS(1)
		j := mustOpen(t, testConfig(), fs, "a")
		addSegments(t, j)
		fs.SetFault(func(op, _ string) bool { return slices.Contains(failing, op) })
		require.NoError(t, j.Cursor("a").Save(20, nil), "the position is durable anyway")
		oldest, _ := j.Bounds()
		require.EqualValues(t, 1, oldest)
		fs.SetFault(nil)
		require.NoError(t, j.Cursor("a").Save(20, nil))
		oldest, _ = j.Bounds()
		require.Greater(t, oldest, uint64(15))
		require.NoError(t, j.Close())
		in, err := Verify("/journal", WithFS(fs.crash(true)))
		require.NoError(t, err)
		require.NoError(t, in.Err())
		require.Equal(t, oldest, in.Segments[0].First)
	}
	f("rename", "remove")
	f("syncdir")
}

// TestDeletedSegmentsAreReused checks that new segments overwrite the files of deleted ones. After
// a crash, the frames of the former segment are ignored.
func TestDeletedSegmentsAreReused(t *testing.T) {
	fs := newMemFS(1)
	created := 0
	fs.SetFault(func(op, path string) bool {
		if op == "create" && strings.HasSuffix(path, segmentSuffix+tempSuffix) {
			created++
		}
		return false
	})
	j := mustOpen(t, testConfig(), fs, "a")
	for range 100 {
		add(t, j, sized(4000))
		_, next := j.Bounds()
		require.NoError(t, j.Cursor("a").Save(next, nil))
	}
	require.Equal(t, 2, created, "one that is written to, and one before it")

	oldest, next := j.Bounds()
	path := filepath.Join("/journal", segmentName(j.newest().first))
	require.Greater(t, int64(len(fs.Bytes(path))), j.newest().end, "frames of the former segment follow")
	for _, powerLost := range []bool{false, true} {
		again := mustOpen(t, testConfig(), fs.clone().crash(powerLost), "a")
		gotOldest, gotNext := again.Bounds()
		require.Equal(t, []uint64{oldest, next}, []uint64{gotOldest, gotNext})
		require.Equal(t, next, add(t, again, []byte("after")))
		require.NoError(t, again.Close())
	}
	require.NoError(t, j.Close())
	require.Len(t, fs.Bytes(path), int(j.newest().end), "Close truncates them")
}

// TestSpareThatCannotBeOpened checks that the file of a deleted segment that cannot be opened again
// is neither left on the disk nor voids frames.
func TestSpareThatCannotBeOpened(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, testConfig(), fs, "a")
	addSegments(t, j)
	require.NoError(t, j.Cursor("a").Save(20, nil))
	require.Len(t, j.spares, maxSpares)
	failed := 0
	fs.SetFault(func(op, path string) bool {
		hit := op == "open" && strings.HasSuffix(path, tempSuffix)
		if hit {
			failed++
		}
		return hit
	})
	addSegments(t, j)
	require.Equal(t, maxSpares, failed)
	fs.SetFault(nil)
	requireNoTempFiles(t, fs)
	require.NoError(t, j.Close())
}

// TestSpaceIsFreedInSteps checks that a segment is deleted even if the disk has no space for
// another name, and its space is freed in steps.
func TestSpaceIsFreedInSteps(t *testing.T) {
	fs := newMemFS(1)
	const path = "/journal/large.tmp"
	fs.Put(path, make([]byte, 2*removeStep+1))
	var steps []int
	fs.SetGate(func(string) { steps = append(steps, len(fs.Bytes(path))) })
	require.NoError(t, removeInSteps(fs, path))
	require.Equal(t, []int{removeStep + 1, 1}, steps)
	require.NoError(t, removeInSteps(fs, path), "there is none")
	fs.SetGate(nil)

	j := mustOpen(t, testConfig(), fs, "a")
	addSegments(t, j)
	fs.SetFault(func(op, path string) bool { return op == "rename" && strings.HasSuffix(path, tempSuffix) })
	require.NoError(t, j.Cursor("a").Save(20, nil))
	oldest, _ := j.Bounds()
	require.Greater(t, oldest, uint64(15))
	require.NoError(t, j.Close())
	requireNoTempFiles(t, fs)
}
