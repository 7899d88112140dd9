package layers

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// TestSend checks that every range of a body with several segments can be sent through each method
// of the stream.
func TestSend(t *testing.T) {
	b := &body{segments: [][]byte{[]byte("ab"), []byte("c"), []byte("defg")}, size: 7}
	text := "abcdefg"
	ctx := &fasthttp.RequestCtx{}
	resp := &ctx.Response
	l := New(DefaultConfig(), zerolog.Nop())
	set := func(from, to int) {
		r := response{layer: l, document: &document{}}
		require.Nil(t, r.setBody(ctx, b, from, to))
	}
	for from := range text {
		for to := from + 1; to <= len(text); to++ {
			set(from, to)
			require.Equal(t, text[from:to], string(resp.Body()))
			resp.Reset()
			set(from, to)
			if s, ok := resp.BodyStream().(*stream); ok {
				read, err := io.ReadAll(bufio.NewReaderSize(struct{ io.Reader }{s}, 16))
				require.NoError(t, err)
				require.Equal(t, text[from:to], string(read))
			}
			resp.Reset()
			set(from, to)
			var out bytes.Buffer
			_, err := resp.WriteTo(&out)
			require.NoError(t, err)
			require.True(t, bytes.HasSuffix(out.Bytes(), []byte("\r\n\r\n"+text[from:to])))
		}
	}
}

// TestOwnMemory checks that a client's quota is charged for what was made for its request, but not
// for pieces that other responses share.
func TestOwnMemory(t *testing.T) {
	pieceOf := func(text string, own bool) *piece {
		p := &piece{own: own}
		for f, e := range variants {
			p.forms[f][e].Store(&form{[]byte(text), checksum{}.add([]byte(text))})
		}
		return p
	}
	shared, own := pieceOf("shared", false), pieceOf("own", true)
	changes := pieceOf("changes", false)
	changes.every = true
	for _, c := range []struct {
		pieces  []*piece
		want    sizes
		wantOwn int64
	}{
		{nil, sizes{0, 12}, 0},
		{[]*piece{nil}, sizes{0, 12}, 0},
		{[]*piece{shared}, sizes{6, 12}, 0},
		{[]*piece{own}, sizes{0, 12}, 3},
		{[]*piece{shared, own}, sizes{6, 12}, 3},
		{[]*piece{shared, shared}, sizes{12, 12}, 0},
		{[]*piece{changes}, sizes{7, 7}, 0},
	} {
		r := &response{document: &document{pieces: []*piece{shared, nil, shared}}, pieces: c.pieces, part: true}
		k := r.kept(r.body())
		require.Equal(t, c.want, k.sizes, c)
		require.Equal(t, c.wantOwn, k.own, c)
		require.Equal(t, slices.Contains(c.pieces, changes), k.changes != nil, c)
	}
}
