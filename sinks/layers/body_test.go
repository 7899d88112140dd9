package layers

import (
	"bufio"
	"bytes"
	"io"
	"testing"

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
	set := func(from, to int) {
		r := response{snapshot: &snapshot{}, unread: newUnread(1)}
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

// TestOwnMemory checks that a client's quota is charged for copies and for what was made for its
// request, but not for pieces that other responses share.
func TestOwnMemory(t *testing.T) {
	pieceOf := func(text string, own bool) *piece {
		p := &piece{own: own}
		for f, e := range variants {
			p.forms[f][e].Store(&form{[]byte(text), checksum{}.add([]byte(text))})
		}
		return p
	}
	shared, own := pieceOf("shared", false), pieceOf("own", true)
	large := pieceOf(string(make([]byte, maxJoinedSize)), false) // not copied
	for _, c := range []struct {
		pieces []*piece
		want   int64
	}{
		{nil, 0},
		{[]*piece{nil}, 0},
		{[]*piece{shared}, 0},
		{[]*piece{own}, 3},
		{[]*piece{shared, own}, 9},
		{[]*piece{shared, shared}, 12},
		{[]*piece{large, shared}, 0},
		{[]*piece{large, own}, 3},
	} {
		r := &response{pieces: c.pieces, part: true, format: protobuf, encoding: identity}
		require.Equal(t, c.want, r.own(r.body()), c)
	}
}
