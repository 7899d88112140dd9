package api

import (
	"net"

	"github.com/valyala/fasthttp"
)

// joined saves large answers their first system call. fasthttp fills a buffer with the header and
// the beginning of the body and writes it, then writes the rest directly from the body. Held back,
// the buffer is written together with the rest.
type joined struct {
	wanted bool   // the next write is followed by another one at once
	held   []byte // what that write was about to write

	parts [2][]byte // the write of both
	both  net.Buffers
}

// writeBuffer is fasthttp's, for each connection. A body of twice the size always exceeds the space
// that any header leaves in the buffer by more than a buffer.
const (
	writeBuffer = 4 << 10
	largeBody   = 2 * writeBuffer
)

// want is called before fasthttp writes an answer.
func (j *joined) want(ctx *fasthttp.RequestCtx) {
	status := ctx.Response.StatusCode()
	if ctx.IsHead() || status == fasthttp.StatusNotModified || status == fasthttp.StatusNoContent {
		j.wanted = false
		return
	}
	size := ctx.Response.Header.ContentLength()
	if !ctx.Response.IsBodyStream() {
		size = len(ctx.Response.Body())
	}
	j.wanted = size >= largeBody
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
	j.parts = [2][]byte{j.held, p}
	j.both = j.parts[:]
	total, err := j.both.WriteTo(to)
	n := int(total) - len(j.held)
	j.held, j.parts = j.held[:0], [2][]byte{} // an idle connection keeps no answer in memory
	return max(0, n), err
}
