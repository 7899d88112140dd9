package layers

import (
	"bytes"
	"compress/flate"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// inflate reads deflate blocks that lack only the last one.
func inflate(t *testing.T, blocks []byte) string {
	t.Helper()
	plain, err := io.ReadAll(flate.NewReader(bytes.NewReader(append(bytes.Clone(blocks), lastBlock...))))
	require.NoError(t, err)
	return string(plain)
}

// A part's blocks can be read without those before them, also where the compressor made
// others just before; or one could not stay while another is replaced.
func TestBlocksStandAlone(t *testing.T) {
	c := newCompressor()
	text := []byte(`{"street":4711,"fromnode":12,"openLRcode":"CwOiYCUMnQkJAP+/ABQBCg=="}`)
	first := c.blocks(text)
	require.Equal(t, string(text), inflate(t, first))
	for n := range text {
		require.Equal(t, string(text[:n]), inflate(t, c.blocks(text[:n])))
	}
	require.Equal(t, first, c.blocks(text), "the same bytes, whatever came before")
	require.Equal(t, ",", inflate(t, stored(",").deflated))
}

func TestJoin(t *testing.T) {
	c := newCompressor()
	f := func(texts ...string) {
		t.Helper()
		var pieces []*piece
		whole := ""
		for i, text := range texts {
			p := piece{[]byte(text), c.blocks([]byte(text))}
			if i%2 == 1 {
				p = stored(text)
			}
			pieces = append(pieces, &p)
			whole += text
		}
		plain, member := join(pieces)
		require.Equal(t, whole, string(plain))
		require.Equal(t, whole, string(unpack(t, "gzip", member)))
		again, memberAgain := join(pieces) // the pieces are views now
		require.Equal(t, plain, again)
		require.Equal(t, member, memberAgain)
		for i, text := range texts {
			require.Equal(t, text, string(pieces[i].plain))
			require.Equal(t, text, inflate(t, pieces[i].deflated))
		}
	}
	f()
	f("")
	f("a")
	f("abcabcabc", "abc", "abcabcabc")
	f("", "x", "", "y")
}
