package layers

import (
	"bufio"
	"bytes"
	"io"
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
			p.forms[f][e].Store(&form{bytes: []byte(text)})
		}
		return p
	}
	shared, own, empty := pieceOf("shared", false), pieceOf("own", true), &piece{empty: true, own: true}
	d := &document{pieces: []*piece{shared, empty, shared}, changes: map[uint32]*piece{1: nil, 2: pieceOf("changes", false)}}
	require.Equal(t, len("shared"+"shared"+"changes"), d.size(protobuf, identity))
	f := func(wantShared, wantOwn int, pieces ...*piece) {
		t.Helper()
		l := New(DefaultConfig(), zerolog.Nop())
		ctx := &fasthttp.RequestCtx{}
		r := &response{layer: l, document: d, client: "c", pieces: pieces, part: true}
		b := join(pieces, protobuf, identity)
		require.Nil(t, r.setBody(ctx, b, 0, b.size))
		require.Equal(t, wantShared, l.unread["c"][representation{d, protobuf, identity}])
		require.EqualValues(t, wantOwn, l.made.Total())
		require.NoError(t, ctx.Response.CloseBodyStream())
		require.Empty(t, l.unread["c"])
		require.Zero(t, l.made.Total())
	}
	f(0, 0)
	f(0, 0, empty)
	f(0, 0, shared) // small enough to be copied
	f(0, 3, own)
	f(6, 3, shared, empty, own)
	f(12, 0, shared, shared)
}
