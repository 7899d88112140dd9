package layers

import (
	"bufio"
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// Every span of a body in several stretches is sent as it is, by either way that a
// stream can be read, and again on the same response.
func TestSend(t *testing.T) {
	b := newBody([][]byte{[]byte("ab"), nil, []byte("c"), []byte("defg")}, nil)
	text := "abcdefg"
	require.Equal(t, len(text), b.size)
	resp := &fasthttp.Response{}
	for from := range text {
		for to := from + 1; to <= len(text); to++ {
			b.send(resp, from, to)
			require.Equal(t, text[from:to], string(resp.Body()))
			resp.Reset()
			b.send(resp, from, to)
			if s, ok := resp.BodyStream().(*stream); ok {
				read, err := io.ReadAll(bufio.NewReaderSize(struct{ io.Reader }{s}, 16))
				require.NoError(t, err)
				require.Equal(t, text[from:to], string(read))
			}
			resp.Reset()
			b.send(resp, from, to)
			var out bytes.Buffer
			_, err := resp.WriteTo(&out)
			require.NoError(t, err)
			require.True(t, bytes.HasSuffix(out.Bytes(), []byte("\r\n\r\n"+text[from:to])))
		}
	}
}
