package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const firstSegment = "/journal/00000000000000000001.seg"

// wideConfig leaves room for all of threeCommits, and more, in one segment.
func wideConfig() Config {
	c := testConfig()
	c.SegmentBytes = 64 << 10
	return c
}

// threeCommits is a segment with the commits {1}, {2, 3, 4}, {5}; frames 2 to 4 share one.
func threeCommits(t testing.TB) *memFS {
	fs := newMemFS(1)
	j := mustOpen(t, wideConfig(), fs)
	addTogether(t, j, fs, payload(2, 3000), payload(3, 100), payload(4, 3000))
	add(t, j, payload(5, 900))
	require.NoError(t, j.Close())
	return fs
}

// Offsets of the commits.
const (
	commit1, commit2, commit3 = 4096, 8192, 16384
	frame2                    = commit2
	frame3                    = frame2 + frameHeaderBytes + 3000
	frame4                    = frame3 + frameHeaderBytes + 104
	threeCommitsEnd           = 20480
)

// TestTornWrites checks that the remains of an unfinished write are truncated and the frames before
// it remain.
func TestTornWrites(t *testing.T) {
	f := func(name string, tear func(b []byte) []byte, wantLast uint64) {
		t.Helper()
		fs := threeCommits(t)
		fs.Put(firstSegment, tear(fs.Bytes(firstSegment)))
		j, err := Open(wideConfig(), nil, WithFS(fs))
		require.NoError(t, err, name)
		_, next := j.Bounds()
		require.Equal(t, wantLast, next-1, name)
		frames := readAll(t, j)
		require.Len(t, frames, int(wantLast), name)
		require.Equal(t, wantLast+1, add(t, j, []byte("after")), name)
		frames = append(frames, []byte("after"))
		require.NoError(t, j.Close())
		j = mustOpen(t, wideConfig(), fs.crash(true))
		require.Equal(t, frames, readAll(t, j), name)
		require.NoError(t, j.Close())
	}
	zero := func(from, to int) func([]byte) []byte {
		return func(b []byte) []byte { clear(b[from:to]); return b }
	}
	cut := func(at int) func([]byte) []byte { return func(b []byte) []byte { return b[:at] } }
	garble := func(tear func([]byte) []byte, at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 0x10; return tear(b) }
	}
	more := func(p ...byte) func([]byte) []byte { return func(b []byte) []byte { return append(b, p...) } }

	f("nothing torn", cut(threeCommitsEnd), 5)
	f("zeros after the end", more(make([]byte, 10000)...), 5)
	f("junk after the end", more(bytes.Repeat([]byte("junk"), 3000)...), 5)
	f("header of the last frame lost", zero(commit3, commit3+512), 4)
	f("payload of the last frame lost", zero(commit3+512, commit3+1024), 4)
	f("one bit of the last frame's length", garble(cut(threeCommitsEnd), commit3+4), 4)
	f("one bit of the last frame's payload", garble(cut(threeCommitsEnd), commit3+frameHeaderBytes), 4)
	f("last commit missing", cut(commit3), 4)
	f("last commit all zeros", zero(commit3, threeCommitsEnd), 4)
	f("padding of the last commit lost", cut(commit3+frameHeaderBytes+900), 5)
	f("middle commit torn at its end", cut(frame4+100), 3)
	f("middle commit torn in the middle, its end kept", func(b []byte) []byte { return zero(frame3, frame3+8)(b[:commit3]) }, 2)
	f("middle commit torn at its beginning, the rest kept", func(b []byte) []byte { return zero(frame2, frame2+512)(b[:commit3]) }, 1)
	f("length that points past the file", func(b []byte) []byte {
		binary.LittleEndian.PutUint32(b[commit3+4:], 1<<29)
		return b
	}, 4)
	f("only the file's header", cut(blockBytes), 0)
}

// TestDamageIsNoTear checks that damage to acknowledged frames is reported, not truncated.
func TestDamageIsNoTear(t *testing.T) {
	f := func(name string, damage func(b []byte) []byte, wantOffset int64) {
		t.Helper()
		fs := threeCommits(t)
		damaged := damage(fs.Bytes(firstSegment))
		fs.Put(firstSegment, damaged)
		_, err := Open(wideConfig(), nil, WithFS(fs))
		var corrupt *CorruptError
		require.ErrorAs(t, err, &corrupt, name)
		require.ErrorContains(t, err, "run trafficctl journal verify "+wideConfig().Dir, name)
		require.Equal(t, firstSegment, corrupt.Path, name)
		require.Equal(t, wantOffset, corrupt.Offset, name)
		require.Equal(t, damaged, fs.Bytes(firstSegment), "%s: Open must write nothing", name)
	}
	flip := func(at int) func([]byte) []byte { return func(b []byte) []byte { b[at] ^= 1; return b } }
	f("first frame's payload", flip(commit1+frameHeaderBytes+3), commit1)
	f("first frame's mark", flip(commit1), commit1)
	f("first frame's sequence number", flip(commit1+8), commit1)
	f("first frame's length", flip(commit1+4), commit1)
	f("first of a commit", flip(frame2+frameHeaderBytes), alignUp(commit1+frameHeaderBytes+int64(len("holds up the writer")), frameAlign))
	f("second of a commit", flip(frame3+frameHeaderBytes+50), frame3)
	f("last of a commit, small part of the block before the next", flip(frame4+frameHeaderBytes+2999), frame4)
	f("a whole commit lost", func(b []byte) []byte { clear(b[commit2:commit3]); return b },
		alignUp(commit1+frameHeaderBytes+int64(len("holds up the writer")), frameAlign))
	f("the file's header", flip(100), 0)
	f("the file's magic", flip(0), 0)
	f("cut within its header", func(b []byte) []byte { return b[:1000] }, 1000)
}

func TestSealedSegments(t *testing.T) {
	build := func() (*memFS, []string) {
		fs := newMemFS(1)
		j := mustOpen(t, testConfig(), fs)
		for i := range 12 {
			add(t, j, payload(uint64(i+1), 3900))
		}
		require.NoError(t, j.Close())
		names, err := fs.List("/journal")
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(names), 3)
		return fs, names
	}
	t.Run("missing", func(t *testing.T) {
		fs, names := build()
		require.NoError(t, fs.Remove(filepath.Join("/journal", names[1])))
		_, err := Open(testConfig(), nil, WithFS(fs))
		require.ErrorContains(t, err, names[1])
		require.True(t, isCorrupt(err))
	})
	t.Run("every truncation and growth by blocks", func(t *testing.T) {
		fs, names := build()
		path := filepath.Join("/journal", names[0])
		whole := fs.Bytes(path)
		for _, n := range []int{0, 1, blockBytes - 1, blockBytes, blockBytes + 1, len(whole) - blockBytes, len(whole) - 1} {
			fs.Put(path, whole[:n])
			_, err := Open(testConfig(), nil, WithFS(fs))
			require.True(t, isCorrupt(err), "%d bytes: %v", n, err)
			require.ErrorContains(t, err, names[0])
		}
		fs.Put(path, append(whole, 0))
		_, err := Open(testConfig(), nil, WithFS(fs))
		require.True(t, isCorrupt(err))
	})
	t.Run("a broken frame is reported when it is read", func(t *testing.T) {
		fs, names := build()
		path := filepath.Join("/journal", names[0])
		b := fs.Bytes(path)
		b[8192+100] ^= 1
		fs.Put(path, b)
		j := mustOpen(t, testConfig(), fs)
		r := j.Reader(1)
		_, _, ok, err := r.TryNext(nil)
		require.True(t, ok)
		require.NoError(t, err)
		for range 2 { // the reader does not move
			_, _, ok, err = r.TryNext(nil)
			require.False(t, ok)
			var corrupt *CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.Equal(t, CorruptError{Path: path, Offset: 8192, Seq: 2, Reason: "wrong checksum"}, *corrupt)
		}
		_, frame, ok, err := j.Reader(3).TryNext(nil)
		require.True(t, ok)
		require.NoError(t, err, "a reader can start after it")
		require.Equal(t, payload(3, 3900), frame)
		require.NoError(t, j.Close())
	})
}

// TestEveryTruncation truncates the newest segment at every length: exactly the intact frames must
// be recovered.
func TestEveryTruncation(t *testing.T) {
	fs := threeCommits(t)
	whole := fs.Bytes(firstSegment)
	ends := []int{
		commit1 + frameHeaderBytes + len("holds up the writer"), frame2 + frameHeaderBytes + 3000,
		frame3 + frameHeaderBytes + 100, frame4 + frameHeaderBytes + 3000, commit3 + frameHeaderBytes + 900,
	}
	for n := range len(whole) + 1 {
		fs.Put(firstSegment, whole[:n])
		j, err := Open(wideConfig(), nil, WithFS(fs))
		if n < blockBytes {
			require.True(t, isCorrupt(err), "%d bytes", n)
			continue
		}
		require.NoError(t, err, "%d bytes", n)
		want := 0
		for want < len(ends) && ends[want] <= n {
			want++
		}
		require.Len(t, readAll(t, j), want, "%d bytes", n)
		require.NoError(t, j.Close())
	}
}

// TestEveryFlippedByte checks that no frame is read that was not written, whichever byte changes.
// It changes every third byte, which affects each field of a header.
func TestEveryFlippedByte(t *testing.T) {
	fs := threeCommits(t)
	j := mustOpen(t, wideConfig(), fs)
	written := readAll(t, j)
	require.NoError(t, j.Close())
	whole := fs.Bytes(firstSegment)
	for at := 0; at < len(whole); at += 3 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0xff
		fs.Put(firstSegment, damaged)
		j, err := Open(wideConfig(), nil, WithFS(fs))
		if err != nil {
			var version *VersionError
			require.True(t, isCorrupt(err) || errors.As(err, &version), "byte %d: %v", at, err)
			continue
		}
		frames := readAll(t, j)
		require.Equal(t, written[:len(frames)], frames, "byte %d", at)
		require.GreaterOrEqual(t, len(frames), 4, "byte %d: only the last commit can be torn", at)
		require.NoError(t, j.Close())
	}
}

// TestForgedFrame checks that a payload that is itself a frame, with everything that a client can
// know, is not accepted as a frame if the enclosing one is torn.
func TestForgedFrame(t *testing.T) {
	fs := newMemFS(1)
	j := mustOpen(t, wideConfig(), fs)
	salt := j.newest().salt
	require.NoError(t, j.Close())
	forge := func(salt uint64) *memFS {
		fs := fs.clone()
		j := mustOpen(t, wideConfig(), fs)
		forged := make([]byte, 8192)
		at := alignUp(2000, 8) - frameHeaderBytes // 8-aligned in the file
		frameHeader{seq: 7}.encode((*[frameHeaderBytes]byte)(forged[at:]), salt, []byte("forged"))
		copy(forged[at+frameHeaderBytes:], "forged")
		add(t, j, forged)
		require.NoError(t, j.Close())
		b := fs.Bytes(firstSegment)
		b[blockBytes+frameHeaderBytes] ^= 1
		fs.Put(firstSegment, b)
		return fs
	}
	_, err := Open(wideConfig(), nil, WithFS(forge(salt)))
	require.True(t, isCorrupt(err), "a forged frame with the salt of the segment looks like proof of damage")
	guess := segmentHeader{salt: 0x0101_0101_0101_0101}.salt
	j = mustOpen(t, wideConfig(), forge(guess))
	require.Empty(t, readAll(t, j))
	require.NoError(t, j.Close())

	other := mustOpen(t, wideConfig(), newMemFS(1))
	require.NotEqual(t, salt, other.newest().salt, "salts of two segments")
	require.NoError(t, other.Close())
}

func TestAnotherVersion(t *testing.T) {
	fs := threeCommits(t)
	b := fs.Bytes(firstSegment)
	b[8] = 9
	fs.Put(firstSegment, b)
	_, err := Open(wideConfig(), nil, WithFS(fs))
	var version *VersionError
	require.ErrorAs(t, err, &version)
	require.Equal(t, VersionError{Path: firstSegment, Version: 9}, *version)
	require.False(t, isCorrupt(err))
	require.ErrorContains(t, err, "version 9")
}

func TestUnfinishedFilesAreRemoved(t *testing.T) {
	fs := threeCommits(t)
	fs.Put(firstSegment+tempSuffix, []byte("half a header"))
	fs.Put("/journal/a.cursor.tmp", nil)
	j := mustOpen(t, wideConfig(), fs, "a")
	requireNoTempFiles(t, fs)
	require.NoError(t, j.Close())
}

func TestForeignNameOfASegment(t *testing.T) {
	f := func(name string) {
		t.Helper()
		fs := threeCommits(t)
		fs.Put("/journal/"+name, fs.Bytes(firstSegment))
		_, err := Open(wideConfig(), nil, WithFS(fs))
		require.True(t, isCorrupt(err))
		require.ErrorContains(t, err, name)
	}
	f("copy.seg")
	f(fmt.Sprintf("%020d.seg", 6))
}
