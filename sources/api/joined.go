package api

import (
	"net"

	"github.com/valyala/fasthttp"
)

// joined saves a large answer its first system call. fasthttp fills a buffer with the header
// and the body's beginning and writes that, then it writes the rest straight from
// where the body lies. Held back, the buffer goes out together with the rest.
type joined struct {
	wanted bool   // the next write is followed by another one at once
	held   []byte // what that was about to write
}

// writeBuffer is fasthttp's for each connection. A body of twice the size is larger
// than what is left in the buffer behind any header, by more than a buffer.
const (
	writeBuffer = 4 << 10
	largeBody   = 2 * writeBuffer
)

// want is called before fasthttp writes an answer.
func (j *joined) want(ctx *fasthttp.RequestCtx) {
	bodiless := ctx.IsHead() || ctx.Response.StatusCode() == fasthttp.StatusNotModified || ctx.Response.StatusCode() == fasthttp.StatusNoContent
	j.wanted = !bodiless && bodySize(&ctx.Response) >= largeBody
}

func bodySize(resp *fasthttp.Response) int {
	if resp.IsBodyStream() {
		return resp.Header.ContentLength()
	}
	return len(resp.Body())
}

func (j *joined) write(to net.Conn, p []byte) (int, error) {
	switch {
	case j.wanted:
		j.wanted = false
		j.held = append(j.held[:0], p...)
		return len(p), nil
	case len(j.held) == 0:
		return to.Write(p)
	}
	n, err := writeBoth(to, j.held, p)
	n -= len(j.held)
	j.held = j.held[:0]
	return max(0, n), err
}

func writeBoth(to net.Conn, p, q []byte) (int, error) {
	if s, ok := to.(interface {
		writeBoth(p, q []byte) (int, error)
	}); ok {
		return s.writeBoth(p, q)
	}
	n, err := to.Write(p)
	if err == nil {
		var more int
		more, err = to.Write(q)
		n += more
	}
	return n, err
}
