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
	for from := range text {
		for to := from + 1; to <= len(text); to++ {
			new(response).setBody(ctx, b, from, to)
			require.Equal(t, text[from:to], string(resp.Body()))
			resp.Reset()
			new(response).setBody(ctx, b, from, to)
			if s, ok := resp.BodyStream().(*stream); ok {
				read, err := io.ReadAll(bufio.NewReaderSize(struct{ io.Reader }{s}, 16))
				require.NoError(t, err)
				require.Equal(t, text[from:to], string(read))
			}
			resp.Reset()
			new(response).setBody(ctx, b, from, to)
			var out bytes.Buffer
			_, err := resp.WriteTo(&out)
			require.NoError(t, err)
			require.True(t, bytes.HasSuffix(out.Bytes(), []byte("\r\n\r\n"+text[from:to])))
		}
	}
}
