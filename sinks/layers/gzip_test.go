package layers

import (
	"bytes"
	"compress/flate"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJoinCRC(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	text := make([]byte, 100_000)
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	f := func(cuts ...int) {
		t.Helper()
		whole, from := uint32(0), 0
		for _, to := range append(cuts, len(text)) {
			whole = joinCRC(whole, crc32.ChecksumIEEE(text[from:to]), to-from)
			from = to
		}
		require.Equal(t, crc32.ChecksumIEEE(text), whole, "cut at %v", cuts)
	}
	f()
	f(0)
	f(len(text))
	f(1, 1, 2, 3)
	f(255, 256, 257, 65535, 65536)
	for range 100 {
		a, b := random.IntN(len(text)), random.IntN(len(text))
		f(min(a, b), max(a, b))
	}
}

// inflate decodes deflate blocks without a last one, using the standard library.
func inflate(t *testing.T, blocks []byte) string {
	t.Helper()
	plain, err := io.ReadAll(flate.NewReader(io.MultiReader(bytes.NewReader(blocks), bytes.NewReader([]byte{1, 0, 0, 0xff, 0xff}))))
	require.NoError(t, err)
	return string(plain)
}

// TestBlocksAreIndependent checks that the blocks of a piece can be decoded on their own, even if
// the compressor has produced others before. Otherwise, a piece could not be reused after a
// neighbour is replaced.
func TestBlocksAreIndependent(t *testing.T) {
	c := compressors.Get().(*compressor)
	text := []byte(`{"street":4711,"fromnode":12,"openLRcode":"CwOiYCUMnQkJAP+/ABQBCg=="}`)
	for _, level := range []int{6, 8, 9} {
		first := c.form(text, gzipped, level)
		require.Equal(t, string(text), inflate(t, first.bytes))
		for n := range text {
			require.Equal(t, string(text[:n]), inflate(t, c.form(text[:n], gzipped, level).bytes))
		}
		require.Equal(t, first, c.form(text, gzipped, level), "the bytes must depend only on the text")
	}
	require.Equal(t, ",", inflate(t, stored(",")[gzipped].bytes))
}

// TestPiecesJoin joins random texts with short and long matches.
func TestPiecesJoin(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	text := func(n int) []byte {
		b := make([]byte, 0, n)
		for len(b) < n {
			distance := 1 + random.IntN(12)
			if len(b) <= 12 || random.IntN(3) == 0 {
				b = append(b, byte('a'+random.IntN(20)))
				continue
			}
			for range 4 + random.IntN(20) {
				b = append(b, b[len(b)-distance])
			}
		}
		return b
	}
	for range 300 {
		var texts [][]byte
		for range random.IntN(20) {
			texts = append(texts, text(random.IntN(400)))
		}
		requireJoined(t, texts)
	}
	requireJoined(t, [][]byte{text(300_000), make([]byte, 300_000), text(10)}) // several blocks in a piece
}

// requireJoined joins pieces with these texts, and requires that the bodies unpack to the texts.
func requireJoined(t *testing.T, texts [][]byte) {
	t.Helper()
	c := compressors.Get().(*compressor)
	defer compressors.Put(c)
	var pieces []*piece
	for i, text := range texts {
		p := &piece{}
		for f, e := range variants {
			p.forms[f][e].Store(c.form(text, e, 6+i%4))
		}
		pieces = append(pieces, p, &piece{empty: true})
	}
	for f, e := range variants {
		want := bytes.Join(texts, nil)
		if f == jsonText {
			want = []byte(jsonOpen + string(bytes.Join(texts, []byte{','})) + jsonClose)
		}
		body := join(pieces, f, e)
		whole := bytes.Join(body.segments, nil)
		require.Len(t, whole, body.size)
		require.True(t, bytes.Equal(want, unpack(t, string(encodingNames[e]), whole)), "%s", encodingNames[e])
	}
}

// FuzzPieces joins pieces of arbitrary bytes and sizes.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("abcabcabcabcabcabcabc"), uint16(3))
	f.Add(bytes.Repeat([]byte("\x00\x01\x00\x00"), 1000), uint16(1001))
	f.Fuzz(func(t *testing.T, text []byte, size uint16) {
		var texts [][]byte
		for len(text) > 0 {
			n := min(len(text), 1+int(size))
			texts, text = append(texts, text[:n]), text[n:]
		}
		requireJoined(t, texts[:min(len(texts), 100)])
	})
}
