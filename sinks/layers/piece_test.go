package layers

import (
	"bytes"
	"compress/flate"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// inflate reads deflate blocks that lack only the last one.
func inflate(t *testing.T, blocks []byte) string {
	t.Helper()
	plain, err := io.ReadAll(flate.NewReader(bytes.NewReader(append(bytes.Clone(blocks), gzipLast...))))
	require.NoError(t, err)
	return string(plain)
}

// A piece's blocks can be read without those before them, also where the compressor made
// others just before; or one could not stay while another is replaced.
func TestBlocksStandAlone(t *testing.T) {
	c := newCompressor()
	text := []byte(`{"street":4711,"fromnode":12,"openLRcode":"CwOiYCUMnQkJAP+/ABQBCg=="}`)
	first := c.piece(text)
	require.Equal(t, string(text), inflate(t, first.forms[gzipped]))
	for n := range text {
		require.Equal(t, string(text[:n]), inflate(t, c.deflated(text[:n])))
		framed := append(append(bytes.Clone(heads[zstandard]), c.zstdBlocks(text[:n])...), zstdLast...)
		require.Equal(t, string(text[:n]), string(unpack(t, "zstd", framed)))
	}
	require.Equal(t, first, c.piece(text), "the same bytes, whatever came before")
	require.Equal(t, ",", inflate(t, stored(",").forms[gzipped]))
}

// Whatever stands before a piece in a body, it reads the same. The texts are such that the
// encoder wants to look back, as near and as far as it can.
func TestPiecesJoin(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	c := newCompressor()
	text := func(n int) []byte {
		b := make([]byte, 0, n)
		for len(b) < n {
			switch back := 1 + random.IntN(12); {
			case len(b) > 12 && random.IntN(3) > 0: // again what stands this far back
				for range 4 + random.IntN(20) {
					b = append(b, b[len(b)-back])
				}
			default:
				b = append(b, byte('a'+random.IntN(20)))
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
}

// requireJoined makes bodies of the texts, a page for every three, and unpacks them.
func requireJoined(t *testing.T, c *compressor, texts [][]byte) {
	t.Helper()
	for f := range formats {
		var pages []*page
		var plain [][]byte
		for i, text := range texts {
			if i%3 == 0 {
				pages = append(pages, &page{between: betweens[f], follows: i > 0})
			}
			last := pages[len(pages)-1]
			last.pieces = append(last.pieces, c.piece(text))
			plain = append(plain, text)
		}
		for _, page := range pages {
			page.fill()
		}
		want := bytes.Join(plain, nil)
		if f == jsonText {
			want = []byte(jsonOpen + string(bytes.Join(plain, []byte{','})) + jsonClose)
		}
		p := press{format: f}
		first, again := p.bodies(pages), p.bodies(pages) // when the pieces are views
		require.Equal(t, first, again)
		for e, body := range first {
			whole := bytes.Join(body.stretches, nil)
			require.Len(t, whole, body.size)
			require.True(t, bytes.Equal(want, unpack(t, string(encodingNames[e]), whole)), "%s", encodingNames[e])
		}
	}
}

// FuzzPieces cuts arbitrary bytes at arbitrary places.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("abcabcabcabcabcabcabc"), uint16(3))
	f.Add(bytes.Repeat([]byte("\x00\x01\x00\x00"), 1000), uint16(1001))
	f.Fuzz(func(t *testing.T, text []byte, size uint16) {
		var texts [][]byte
		for len(text) > 0 {
			n := min(len(text), 1+int(size))
			texts, text = append(texts, text[:n]), text[n:]
		}
		requireJoined(t, newCompressor(), texts[:min(len(texts), 100)])
	})
}
