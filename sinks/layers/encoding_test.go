package layers

import (
	"bytes"
	"compress/flate"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// inflate decodes deflate blocks without a last one, using the standard library.
func inflate(t *testing.T, blocks []byte) string {
	t.Helper()
	plain, err := io.ReadAll(flate.NewReader(bytes.NewReader(append(bytes.Clone(blocks), deflateEnd...))))
	require.NoError(t, err)
	return string(plain)
}

// TestBlocksAreIndependent checks that a piece's blocks can be decoded on their own, even if the
// compressor has produced others before. Otherwise, a piece could not be reused after a neighbour
// is replaced.
func TestBlocksAreIndependent(t *testing.T) {
	c := new(compressor)
	c.zstd, c.unzstd = newZstd()
	text := []byte(`{"street":4711,"fromnode":12,"openLRcode":"CwOiYCUMnQkJAP+/ABQBCg=="}`)
	values := []value{{10, 14}, {26, 28}, {43, 67}}
	first := c.form(text, values, gzipped, false)
	require.Equal(t, string(text), inflate(t, first.bytes))
	for n := range text {
		require.Equal(t, string(text[:n]), inflate(t, c.deflater.deflate(text[:n], nil)))
		framed := append(append(bytes.Clone(headers[zstandard]), c.zstdBlocks(text[:n])...), zstdEnd...)
		require.Equal(t, string(text[:n]), string(unpack(t, "zstd", framed)))
	}
	require.Equal(t, first, c.form(text, values, gzipped, false), "the bytes must depend only on the text")
	require.Equal(t, ",", inflate(t, stored(",")[gzipped].bytes))
}

// TestPiecesJoin joins random texts for which the encoders write short and long matches. None of
// them needs to be stored uncompressed.
func TestPiecesJoin(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	c := new(compressor)
	c.zstd, c.unzstd = newZstd()
	before := testutil.ToFloat64(piecesStored)
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
		requireJoined(t, c, texts)
	}
	requireJoined(t, c, [][]byte{text(300_000), make([]byte, 300_000), text(10)}) // several blocks in a piece
	require.Equal(t, before, testutil.ToFloat64(piecesStored))
}

// valuesOf returns values of all sizes, some of them next to each other.
func valuesOf(text []byte) (values []value) {
	for at, n := 0, 0; at+n <= len(text); n = (n + 1) % 20 {
		values = append(values, value{at, at + n})
		at += n + n%3
	}
	return values
}

// requireJoined joins pieces with these texts, and requires that the bodies unpack to the texts.
func requireJoined(t *testing.T, c *compressor, texts [][]byte) {
	t.Helper()
	var pieces []*piece
	for _, text := range texts {
		p := &piece{}
		for f := range numFormats {
			for e := range numEncodings {
				p.forms[f][e].Store(c.form(text, valuesOf(text), e, false))
			}
		}
		pieces = append(pieces, p, nil)
	}
	for f := range numFormats {
		want := bytes.Join(texts, nil)
		if f == jsonText {
			want = []byte(jsonOpen + string(bytes.Join(texts, []byte{','})) + jsonClose)
		}
		for e := range numEncodings {
			body := join(pieces, f, e)
			whole := bytes.Join(body.segments, nil)
			require.Len(t, whole, body.size)
			require.True(t, bytes.Equal(want, unpack(t, string(encodingNames[e]), whole)), "%s", encodingNames[e])
		}
	}
}

// TestUnverifiedPiecesAreStored checks that a text is stored uncompressed if its zstd blocks cannot
// be joined: because they refer to a dictionary, or because they reuse a previous offset.
func TestUnverifiedPiecesAreStored(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	text := make([]byte, 2000)
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	c := new(compressor)
	c.zstd, c.unzstd = newZstd()
	var err error
	c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderDictRaw(1, text))
	require.NoError(t, err)
	defer c.zstd.Close()
	before := testutil.ToFloat64(piecesStored)
	requireJoined(t, c, [][]byte{text, text, bytes.Repeat(text, 200)})
	require.Equal(t, before+4*float64(numFormats), testutil.ToFloat64(piecesStored), "the last text has two chunks")

	c = new(compressor)
	c.zstd, c.unzstd = newZstd()
	inherits := []byte{1<<3 | 1, 'a', 1, 0x54, 1, 0, 0, 1} // a literal, and a match of 3 at the last offset
	inherits = append(appendZstdHeader(nil, zstdCompressed, len(inherits)), inherits...)
	frame := append(append(bytes.Clone(headers[zstandard]), inherits...), zstdEnd...)
	require.Equal(t, "aaaa", string(unpack(t, "zstd", frame)), "the block is valid at the start of a frame")
	require.False(t, c.independent(inherits, []byte("aaaa")))
	require.True(t, c.inflates(storeDeflate([]byte("aaaa")), []byte("aaaa")))
	for _, other := range []string{"aaa", "aaaaa", "aaab"} {
		require.False(t, c.inflates(storeDeflate([]byte(other)), []byte("aaaa")))
	}
	require.False(t, c.inflates(storeDeflate([]byte("aaaa"))[:3], []byte("aaaa")))
	earlier := new(deflater).deflate([]byte("abcdefgh-abcdefgh-"), []value{{0, 8}, {9, 17}})
	require.False(t, c.inflates(append(earlier, 0), []byte("abcdefgh-abcdefgh-")))
	require.True(t, c.independent(storeZstd([]byte("aaaa")), []byte("aaaa")))
	last := append(bytes.Clone(inherits), zstdEnd...)
	require.False(t, c.independent(append(last, storeZstd([]byte("b"))...), []byte("aaaab")))

	everyRun := make([]byte, 0, 256*3)
	for b := range 256 {
		everyRun = append(everyRun, byte(b), byte(b), byte(b))
	}
	requireJoined(t, c, [][]byte{everyRun, everyRun}) // leaves no filler byte for independent
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
		requireJoined(t, new(compressor), texts[:min(len(texts), 100)])
	})
}
