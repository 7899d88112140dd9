package journal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
)

// The coverage of an input varies between runs, because of the goroutines, and minimisation does
// not converge. Run these fuzz tests with -fuzzminimizetime=5x.

// FuzzSegment opens a directory whose only segment has a valid header, followed by arbitrary bytes.
// A second, simpler decoder must find every frame that the journal reads in these bytes.
func FuzzSegment(f *testing.F) {
	header := segmentHeader{first: 1, salt: 0x1122_3344_5566_7788}
	f.Add([]byte{})
	f.Add(make([]byte, 3*blockBytes))
	for _, sizes := range [][]int{{0}, {10, 20, 30}, {5000}, {1, 4090, 1}} {
		f.Add(commitOf(header.salt, 1, sizes...))
		f.Add(append(commitOf(header.salt, 1, sizes...), commitOf(header.salt, 1+uint64(len(sizes)), 7)...))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fs := newMemFS(1)
		fs.Put(firstSegment, append(header.encode(), body...))
		j, err := Open(wideConfig(), nil, WithFS(fs))
		if err != nil {
			require.True(t, isCorrupt(err), "%v", err)
			return
		}
		for i, frame := range readAll(t, j) {
			require.True(t, contains(body, header.salt, uint64(i)+1, frame))
		}
		require.NoError(t, j.Close())
	})
}

// commitOf encodes one commit without the writer.
func commitOf(salt, seq uint64, sizes ...int) []byte {
	var b []byte
	for i, n := range sizes {
		var h [frameHeaderBytes]byte
		frameHeader{seq: seq + uint64(i), index: uint32(i)}.encode(&h, salt, sized(n))
		b = append(b, make([]byte, alignUp(int64(len(b)), frameAlign)-int64(len(b)))...)
		b = append(append(b, h[:]...), sized(n)...)
	}
	return append(b, make([]byte, alignUp(int64(len(b)), blockBytes)-int64(len(b)))...)
}

func contains(body []byte, salt, seq uint64, frame []byte) bool {
	for at := 0; at+frameHeaderBytes+len(frame) <= len(body); at += frameAlign {
		b := body[at : at+frameHeaderBytes+len(frame)]
		sum := crc32.Update(uint32(salt>>32), castagnoli, b[:20])
		sum = crc32.Update(sum, castagnoli, b[frameHeaderBytes:])
		if bytes.Equal(b[frameHeaderBytes:], frame) && binary.LittleEndian.Uint32(b[20:]) == sum &&
			binary.LittleEndian.Uint64(b[8:]) == seq && binary.LittleEndian.Uint32(b) == uint32(salt) {
			return true
		}
	}
	return false
}

// FuzzCursor reads arbitrary bytes as a cursor file: an accepted slot must encode to the same
// bytes.
func FuzzCursor(f *testing.F) {
	f.Add([]byte{})
	f.Add(slot{gen: 1, seq: 1}.encode(nil))
	f.Add(slot{gen: 2, seq: 77, state: []byte("some state")}.encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := newMemFS(1)
		fs.Put("/journal/a.cursor", b)
		info := readCursor(fs, "/journal", "a")
		if info.Err == nil {
			encoded := slot{gen: info.Generation, seq: info.Seq, state: info.State}.encode(nil)
			at := bytes.Index(b, encoded)
			require.True(t, at == 0 || at == slotBytes, "found at %d", at)
		}
	})
}
