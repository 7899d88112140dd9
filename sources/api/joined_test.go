package api

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// TestResponsesOfAllSizes checks that responses of all sizes arrive complete and in order, to
// single and to pipelined requests, and also if their body is not sent.
func TestResponsesOfAllSizes(t *testing.T) {
	sizes := []int{0, 1, 100, writeBuffer - 1, writeBuffer, largeBody - 1, largeBody, largeBody + 1, 10 * largeBody, 3 << 20, 5, largeBody}
	p := &probe{serve: func(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		size, err := ctx.QueryArgs().GetUint("size")
		body := []byte(strings.Repeat("x", size))
		switch string(ctx.QueryArgs().Peek("as")) {
		case "stream":
			ctx.Response.SetBodyStream(bytes.NewReader(body), size)
		case "unchanged":
			ctx.Response.SetBodyRaw(body)
			ctx.SetStatusCode(fasthttp.StatusNotModified)
		default:
			ctx.Response.SetBodyRaw(body)
		}
		return 0, err
	}}
	s := start(t, p, nil)
	c := dial(t, s)
	type request struct{ method, as, text string }
	var list []request
	var all strings.Builder
	for _, size := range sizes {
		for _, r := range []request{{"GET", "raw", ""}, {"GET", "stream", ""}, {"HEAD", "raw", ""}, {"GET", "unchanged", ""}, {"HEAD", "stream", ""}} {
			r.text = r.method + " /base/map?size=" + strconv.Itoa(size) + "&as=" + r.as + " HTTP/1.1\r\n" + good + "\r\n"
			list = append(list, r)
			all.WriteString(r.text)
		}
	}
	expect := func(i int) {
		t.Helper()
		resp := c.responseTo(list[i].method)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		want := sizes[i/5]
		if list[i].method == "HEAD" || list[i].as == "unchanged" {
			want = 0
		}
		require.Equal(t, want, len(body), list[i].text)
	}
	for i, r := range list {
		c.send(r.text)
		expect(i)
	}
	go func() { _, _ = io.WriteString(c, all.String()) }()
	for i := range list {
		expect(i)
	}
}

// limitedConn accepts limit bytes and then fails.
type limitedConn struct {
	net.Conn
	got   bytes.Buffer
	limit int
}

var errFull = errors.New("full")

func (s *limitedConn) Write(p []byte) (int, error) {
	n := min(len(p), s.limit-s.got.Len())
	s.got.Write(p[:n])
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

// TestJoinedWrites checks that what was held back counts as written, so a failure never reports
// more than was passed in.
func TestJoinedWrites(t *testing.T) {
	for limit := range 9 {
		s, j := &limitedConn{limit: limit}, joined{wanted: true}
		n, err := j.write(s, []byte("head"))
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.Zero(t, s.got.Len())
		n, err = j.write(s, []byte("body"))
		require.Equal(t, max(0, limit-4), n)
		require.Equal(t, "headbody"[:limit], s.got.String())
		require.Equal(t, limit < 8, errors.Is(err, errFull))
		s.limit = 100
		n, err = j.write(s, []byte("next"))
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.Equal(t, "headbody"[:limit]+"next", s.got.String())
	}
}
